"""Processes by their ids: alive or not, what they run, and how to end a whole group. Linux and macOS."""

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
    """`state` begins with Z for a zombie: ended, and not yet asked about by its parent."""

    pid: int
    state: str
    command: str


def is_alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(not found.state.startswith("Z") for found in processes(pid))


def command_of(pid: int) -> str:
    """The process's command line; empty when there is no such process."""
    return "".join(found.command for found in processes(pid))


def processes(pid: int | None = None) -> tuple[Process, ...]:
    """All processes, or the one with this id. Asks ps, and the kernel itself where there is no ps (slim images)."""
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
