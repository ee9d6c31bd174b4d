"""Where data lies, the packaged and our own. Nothing else builds a path to `templates/` or `profiles/`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# The environment variable that moves everything the tool writes: records, sandbox, crash reports, kept models.
HOME_VARIABLE: Final = "TGI_DEPLOY_HOME"
_PACKAGE: Final = Path(__file__).resolve().parent


def data_root() -> Path:
    """The folder that holds `templates/` and `profiles/`: inside the wheel, or the repository's root."""
    packaged = _PACKAGE / "_data"
    return packaged if packaged.is_dir() else _PACKAGE.parent


def profiles_dir() -> Path:
    return data_root() / "profiles"


def templates_dir() -> Path:
    return data_root() / "templates"


def state_home() -> Path:
    """Where records, the sandbox and crash reports live: `$TGI_DEPLOY_HOME`, else the user's state folder."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) if home else Path("~/.local/state/tgi-deploy").expanduser()
