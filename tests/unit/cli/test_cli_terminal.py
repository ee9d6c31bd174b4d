"""Resizing the terminal during a command leaves no stale copies of the live line."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

_PROGRAM = """
import sys
from tgi_deploy.cli.progress import Progress
from tgi_deploy.values.progress import NoteEvent, PhaseEvent

with Progress() as progress:
    progress(NoteEvent(text="created instance i-0123456789abcdef0 " + "in us-east-1a and elsewhere " * 4))
    for second, detail in enumerate(("ghcr.io/huggingface/text-generation-inference " * 3, "9 of 10 MB", "10 MB")):
        progress(PhaseEvent(phase="pulling", detail=detail, elapsed_s=second, expected_s=90))
        sys.stdin.readline()
    progress(NoteEvent(text="one is ready"))
"""
_STEERING = re.compile(r"\x1b\[(?P<number>\d*)(?P<code>[A-Za-z])|\x1b\[\?25[lh]|\r|\n|[^\x1b\r\n]+")


def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def read_until(terminal, *, seen):
    """Return what is written up to `seen`, or to the end."""
    written = ""
    while seen not in written:
        try:
            written += os.read(terminal, 65536).decode()
        except OSError:  # the program has ended
            return written
    return written


def screen_of(written):
    """Return the remaining lines on a screen wide enough for all of them."""
    lines, row = [""], 0
    for found in _STEERING.finditer(written):
        if found["code"] == "K":
            lines[row] = ""
        elif found["code"] == "A":
            row -= int(found["number"] or 1)
        elif found[0] == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif found[0] != "\r" and not found[0].startswith("\x1b"):
            lines[row] += found[0]
    return [line for line in lines if line]


@pytest.mark.parametrize(("before", "after"), [(200, 80), (80, 200)])
def test_resizing_the_terminal_leaves_no_stale_lines(before, after):
    reader, writer = os.pipe()
    process, terminal = pty.fork()
    if not process:
        os.dup2(reader, 0)  # what is typed on a terminal would be echoed into its lines
        os.environ["TERM"] = "xterm"
        os.environ.pop("COLUMNS", None)
        os.execv(sys.executable, [sys.executable, "-c", f"input(); {_PROGRAM.strip()}"])  # noqa: S606 -- it has to be the process of the terminal
    resize(terminal, before)
    os.write(writer, b"\n")
    written = read_until(terminal, seen="pulling 0 s")
    resize(terminal, after)
    os.write(writer, b"\n" * 3)
    written += read_until(terminal, seen="ready\r\n")
    os.waitpid(process, 0)
    for opened in (terminal, reader, writer):
        os.close(opened)
    live = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in re.findall(r"\x1b\[2K(.+?)\r", written)]
    assert live
    assert max(map(len, live)) < min(before, after), "a terminal would fold it, and only the last part is erased"
    shown = screen_of(written)
    assert shown[-2:] == ["pulling (about 90 s)", "one is ready"]
    assert not any("\u280b" in line for line in shown)
    assert max(map(len, shown)) <= before
