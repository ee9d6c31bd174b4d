"""Signals the calling process during a call, to test kills at the worst moment.

The process opts in with its id in the SDK's application id (`AWS_SDK_UA_APP_ID=pid-4711`).
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.sandbox.wire import Call

NAMES: Final = ("KILL", "INT", "TERM", "HUP")
_CALLER: Final = re.compile(r"\bapp/pid-([1-9]\d{0,9})\b", re.ASCII)


def send(call: Call, name: str) -> bool:
    """Signal the caller. Return False if it did not opt in, or has ended."""
    found = _CALLER.search(call.headers.get("HTTP_USER_AGENT", ""))
    if found is None or name not in NAMES:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.kill(int(found[1]), signal.Signals[f"SIG{name}"])
        return True
    return False


class Afterwards:
    """A WSGI body with a callback after it was sent."""

    def __init__(self, body: bytes, then: Callable[[], object]) -> None:
        self._body = body
        self._then = then

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        self._then()
