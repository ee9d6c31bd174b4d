"""Reader of `profiles/engines/*/phases.json`: how an engine's log tells where its start-up stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tgi_deploy.errors import InputError
from tgi_deploy.resources import profiles_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read_phases(engine: str = "tgi", *, user_dir: Path | None = None) -> Mapping[str, Any]:
    """The engine's phase table as plain data; a user's own file stands in for the packaged one.

    Raises:
        InputError: `bad_phase_table` when the file can't be read as a JSON object.
    """
    path = _path(engine, user_dir)
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from error
    if not isinstance(table, dict):
        raise _bad(path, "it holds no JSON object")
    return table


def _path(engine: str, user_dir: Path | None) -> Path:
    below = f"engines/{engine}/phases.json"
    if user_dir is not None and (user_dir / below).is_file():
        return user_dir / below
    return profiles_dir() / below


def _bad(path: Path, reason: str) -> InputError:
    return InputError(
        "bad_phase_table", f"reading the phase table {path}: {reason}", hint="mend the file, or remove it"
    )
