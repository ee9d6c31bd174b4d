"""Reads and writes files named by the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy import bounded_files
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES: Final = 32 * bounded_files.MIB


def write_file(path: Path, content: str | bytes, *, what: str, option: str = "--out", append: bool = False) -> None:
    """Write `content` to `path`, which is the value of `option`. Raises InputError `unwritable_file`."""
    try:
        data = content.encode() if isinstance(content, str) else content
        with path.open("ab" if append else "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error, what, option) from error


def check_writable(path: Path, *, what: str, option: str = "--out") -> None:
    """Check before the work whether `write_file` would fail after it, without changing an existing file.

    Raises InputError `unwritable_file`.
    """
    try:
        if path.is_fifo():  # opening and closing it would send its reader an end of file
            return
        missing = not path.exists()
        with path.open("ab"):
            pass
        if missing and not path.is_symlink():
            path.unlink()
    except (OSError, ValueError) as error:
        raise _unwritable(path, error, what, option) from error


def _unwritable(path: Path, error: OSError | ValueError, what: str, option: str) -> InputError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return InputError(
        "unwritable_file",
        f"writing {what} to {str(path)!r} failed: {reason}",
        hint=f"give {option} a file in an existing, writable folder",
    )


def read_file(path: Path, *, what: str) -> str:
    """Return the text of `path`, a regular file. Raises InputError `unreadable_path`."""
    try:
        return bounded_files.read_text(path, most=_MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            "unreadable_path",
            f"reading {what} from {str(path)!r} failed: {reason}",
            hint="name an existing, readable file",
        ) from error
