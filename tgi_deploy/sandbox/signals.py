"""A signal to the process that makes a call, exactly there: what a kill at the worst moment does.

Who wants this says its own process id in the SDK's application id (`AWS_SDK_UA_APP_ID=pid-4711`); nobody can be
signalled who has not asked for it.
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
    """Signal the caller. False when it has not said who it is, or has ended."""
    found = _CALLER.search(call.headers.get("HTTP_USER_AGENT", ""))
    if found is None or name not in NAMES:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.kill(int(found[1]), signal.Signals[f"SIG{name}"])
        return True
    return False


class Afterwards:
    """A WSGI body with something to do once it has been sent."""

    def __init__(self, body: bytes, then: Callable[[], object]) -> None:
        self._body = body
        self._then = then

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        self._then()
