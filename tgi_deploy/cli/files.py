"""Files that the user names: read, and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def write_file(path: Path, content: str | bytes, *, what: str, option: str = "--out") -> None:
    """Write `content` to `path`, which `option` named. Raises InputError `unwritable_file`."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            "unwritable_file",
            f"writing {what} to {str(path)!r} failed: {reason}",
            hint=f"give {option} a file in a folder that exists and that you may write to",
        ) from error


def read_file(path: Path, *, what: str) -> str:
    """The text of `path`. Raises InputError `unreadable_file`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InputError(
            "unreadable_file",
            f"reading {what} from {str(path)!r} failed: {reason}",
            hint="name a file that exists and that you may read",
        ) from error
