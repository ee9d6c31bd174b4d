"""Missing extras, and the command that adds their packages to this installation: by pip, pipx, uv or from a clone."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME: Final = "tgi-deploy"
_OF_AN_EXTRA: Final = re.compile(r"^(?P<requirement>[^;]+?)\s*;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]$")


def extra_missing(extra: str, doing: str, error: ImportError) -> InputError:
    return InputError("extra_missing", f"{doing} needs the package {error.name!r}", hint=install_command(extra))


def install_command(extra: str) -> str:
    """Return a pasteable command line.

    It names the packages themselves: no package index has this program, and its source folder may no longer exist.
    """
    return shlex.join((*_installer(Path(sys.prefix)), *_requirements(extra)))


def _installer(prefix: Path) -> Sequence[str]:
    if (prefix / "pipx_metadata.json").exists():
        return ("pipx", "inject", _NAME)
    if find_spec("pip") is None:  # uv's environments have none
        return ("uv", "pip", "install", "--python", sys.executable)
    return (sys.executable, "-m", "pip", "install")


def _requirements(extra: str) -> Sequence[str]:
    """Return the extra's requirements; for a source tree that was never installed, the extra itself."""
    try:
        every = importlib.metadata.requires(_NAME) or ()
    except importlib.metadata.PackageNotFoundError:
        return ("-e", f"{Path(__file__).resolve().parent.parent}[{extra}]")
    found = (_OF_AN_EXTRA.match(line) for line in every)
    return tuple(match["requirement"] for match in found if match is not None and match["extra"] == extra)
