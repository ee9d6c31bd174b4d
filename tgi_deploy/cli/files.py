"""Files that commands write where the user says."""

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
