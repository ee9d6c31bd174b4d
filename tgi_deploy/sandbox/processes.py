"""Inspects and ends processes and groups by id, on Linux and macOS."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """`state` begins with Z for a zombie: ended, but not yet reaped."""

    pid: int
    state: str
    command: str


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(not found.state.startswith("Z") for found in processes(pid))


def command_of(pid: int) -> str:
    """Return the process's command line; empty if it does not exist."""
    return "".join(found.command for found in processes(pid))


def processes(pid: int | None = None) -> tuple[Process, ...]:
    """Return all processes, or the one with this id, from ps, or from /proc if there is no ps (slim images)."""
    chosen = ["-A"] if pid is None else ["-p", str(pid)]
    try:
        done = subprocess.run(  # noqa: S603 -- fixed words and a number
            ["ps", "-ww", *chosen, "-o", "pid=,stat=,command="],  # noqa: S607 -- ps lies in different places
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return _from_proc("*" if pid is None else str(pid))
    lines = (line.split(None, 2) for line in done.stdout.splitlines())
    return tuple(Process(pid=int(words[0]), state=words[1], command="".join(words[2:])) for words in lines)


def _from_proc(pattern: str) -> tuple[Process, ...]:
    found = []
    for folder in Path("/proc").glob(pattern):
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            state = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2]
            found.append(Process(pid=int(folder.name), state=state, command=command.strip()))
    return tuple(found)


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS raises this for a group of only zombies.
        return False
    return True


def signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def end_group(group: int, *, grace_s: float) -> None:
    """Send SIGTERM, and SIGKILL after the grace period."""
    signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while group_exists(group) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    signal_group(group, signal.SIGKILL)


def recorded_groups(folder: Path, *, marker: str) -> dict[int, str]:
    """Return the groups whose ids are file names in `folder`, with the command of each one's leader.

    Ids can be reused: if the leader is alive, its command must contain `marker`.
    """
    found = {int(record.name): command_of(int(record.name)) for record in sorted(folder.glob("*"))}
    return {
        group: command
        for group, command in found.items()
        if not command or marker in command or "tgi_deploy.sandbox" in command
    }


def end_recorded_groups(folder: Path, *, marker: str) -> None:
    """Kill the groups of `recorded_groups`, and remove their records."""
    for group in recorded_groups(folder, marker=marker):
        signal_group(group, signal.SIGKILL)
    for record in folder.glob("*"):
        record.unlink(missing_ok=True)
