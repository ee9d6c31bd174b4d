"""Processes by their ids, without /proc: alive or not, what they run, and how to end a whole group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S = 0.02


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _ps(pid, "stat").startswith("Z")


def command_of(pid: int) -> str:
    """The process's command line; empty when there is no such process."""
    return _ps(pid, "command")


def _ps(pid: int, column: str) -> str:
    done = subprocess.run(  # noqa: S603 -- fixed command, a number
        ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)],  # noqa: S607 -- ps lies in different places
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS says so of a group that holds nothing but zombies.
        return False
    return True


def signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end_group(group: int, *, grace_s: float) -> None:
    """SIGTERM, and SIGKILL for what is left after the grace."""
    signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while group_exists(group) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    signal_group(group, signal.SIGKILL)


def end_recorded_groups(folder: Path, *, marker: str) -> None:
    """Kill the groups whose ids are file names in `folder`.

    An id may have been given to a stranger since: where the group's leader lives, its command must contain `marker`.
    """
    for record in sorted(folder.glob("*")) if folder.is_dir() else []:
        group = int(record.name)
        command = command_of(group)
        if not command or marker in command or "tgi_deploy.sandbox" in command:
            signal_group(group, signal.SIGKILL)
        record.unlink(missing_ok=True)
