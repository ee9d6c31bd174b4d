"""Locates the packaged data and the state folder. The only module with paths to `templates/` and `profiles/`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# The environment variable for everything that the tool writes: records, sandbox, crash reports, cached models.
HOME_VARIABLE: Final = "TGI_DEPLOY_HOME"
_PACKAGE: Final = Path(__file__).resolve().parent


def data_root() -> Path:
    """Return the folder with `templates/` and `profiles/`: inside the wheel, or the repository's root."""
    packaged = _PACKAGE / "_data"
    return packaged if packaged.is_dir() else _PACKAGE.parent


def profiles_dir() -> Path:
    return data_root() / "profiles"


def templates_dir() -> Path:
    return data_root() / "templates"


def state_home() -> Path:
    """Return the folder of records, sandbox and crash reports: `$TGI_DEPLOY_HOME`, else the user's state folder."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) if home else Path("~/.local/state/tgi-deploy").expanduser()
