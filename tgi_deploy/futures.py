"""Passes errors from one thread to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future


class errors_into:  # noqa: N801 -- a context manager, used as a function
    """Store any exception raised in the block, even an unexpected one, in the future."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is not None:
            self.future.set_exception(error)
        return True
