"""Reads files that others may have written: only regular ones, and never more than requested.

Opening a pipe can block forever, and a device may never end. Links are followed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

MIB: Final = 2**20


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: with a reason in `strerror`, also if it is not a regular file.
        ValueError: for an invalid file name.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is not a regular file")


def read_bytes(path: Path, *, most: int) -> bytes:
    """Return the content of a regular file.

    Raises the errors of `open_regular`, and OSError for more than `most` bytes.
    """
    content = read_piece(path, 0, most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // MIB} MiB")
    return content


def read_piece(path: Path, start: int, length: int) -> bytes:
    """Return at most `length` bytes of a regular file from `start`. Raises the errors of `open_regular`."""
    with open_regular(path) as file:
        file.seek(start)
        content: bytes | None = file.read(length)
    if content is None:  # some of the kernel's files are regular, but block until something happens
        raise BlockingIOError(errno.EAGAIN, "it has no data to read now")
    return content


def read_text(path: Path, *, most: int) -> str:
    """Return the text of a regular file. Raises the errors of `read_bytes`, and ValueError if it is not UTF-8."""
    return read_bytes(path, most=most).decode("utf-8")
