"""One writer per deployment on this computer: an advisory lock on a file that names its holder.

The kernel releases it when the holder dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files, bounded_json
from tgi_deploy.errors import ConflictError

if TYPE_CHECKING:
    from pathlib import Path

# A holder writes its entry right after taking the lock. In between, others wait this long.
SIGNATURE_S: Final = 3.0
_LOOK_S: Final = 0.01


def acquire(path: Path, *, what: str, command: str) -> int:
    """Take the lock at `path` and return the handle for `release`.

    Raises ConflictError("locked") naming the holder; never waits for a holder that has written its entry.
    """
    handle = _acquire(path, what)
    _sign(handle, command)
    return handle


def release(handle: int, path: Path, *, keep: bool) -> None:
    """Release the lock. Without `keep`, delete the file, and its folder if that leaves it empty."""
    os.ftruncate(handle, 0)
    if not keep and _is_current(handle, path):
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()
    os.close(handle)


def _acquire(path: Path, what: str) -> int:
    deadline = time.monotonic() + SIGNATURE_S
    while True:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = _open(path)
        if handle is None:
            continue
        if not _try_to_lock(handle):
            os.close(handle)
            holder = _holder(path)
            if holder or time.monotonic() >= deadline:
                raise _locked(what, holder)
            time.sleep(_LOOK_S)
        elif _is_current(handle, path):
            return handle
        else:
            os.close(handle)  # the previous holder removed the file: lock the current one


def _try_to_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int | None:
    """Open the file; None if its folder was removed in between."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None


def _is_current(handle: int, path: Path) -> bool:
    try:
        return os.fstat(handle).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _sign(handle: int, command: str) -> None:
    signature = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }
    os.ftruncate(handle, 0)
    os.write(handle, json.dumps(signature).encode())


def _holder(path: Path) -> dict[str, Any]:
    try:
        found = bounded_json.parse_object(bounded_files.read_bytes(path, most=bounded_files.MIB))
    except (OSError, ValueError):
        return {}
    return {} if _is_stale(found) else found


def _is_stale(signature: dict[str, Any]) -> bool:
    """Return whether the writer, a local process, has exited: the current holder has not written its entry yet."""
    pid = signature.get("pid")
    if signature.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _locked(what: str, holder: dict[str, Any]) -> ConflictError:
    who = (
        f"'{holder.get('command')}' (process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')})"
        if holder
        else "another process"
    )
    return ConflictError(
        "locked",
        f"deployment '{what}' is being changed by {who}",
        hint="wait until that command has finished, then try again",
        data={"holder": holder},
    )
