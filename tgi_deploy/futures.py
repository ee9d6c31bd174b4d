"""Calls in threads that the end of the process does not wait for, unlike those of an executor."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Start a call, and return the future of its result or of any exception, even an unexpected one."""
    future: Future[T] = Future()

    def run() -> None:
        with _errors_into(future):
            future.set_result(call())

    threading.Thread(target=run, daemon=True).start()
    return future


class _errors_into:  # noqa: N801 -- a context manager, used as a function
    """Store any exception raised in the block in the future."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is not None:
            self.future.set_exception(error)
        return True
