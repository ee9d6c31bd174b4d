"""Inspects and ends processes and groups by id."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from pathlib import Path


class Process(Frozen, frozen=True, kw_only=True):
    pid: int
    command: str


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie: ended, but not yet reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return psutil.pid_exists(pid)


def command_of(pid: int) -> str:
    """Return the process's command line; empty if it does not exist."""
    with suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def processes() -> tuple[Process, ...]:
    """Return all processes."""
    found = psutil.process_iter(["cmdline"])
    return tuple(Process(pid=one.pid, command=" ".join(one.info["cmdline"] or ())) for one in found)


def group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # the latter on macOS, for a group of only zombies
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
        time.sleep(0.02)
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
