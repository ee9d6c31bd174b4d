"""Checks this computer: the interpreter, the folder for records, optional packages."""

from __future__ import annotations

import importlib.util
import platform
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, Problem, ok, warning
from tgi_deploy.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tgi_deploy.targets.protocol import Target

# An extra of this package → the package that it installs, and its purpose. Targets define their own.
EXTRAS: Final = {
    "hub": ("huggingface_hub", "models that are not in the catalog"),
    "sandbox": ("moto", "the local cloud"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Workstation:
    """This computer. `home` is the folder for records."""

    home: Path

    @property
    def python(self) -> str:
        return platform.python_version()

    def state_folder(self) -> str:
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self.home, prefix=".doctor."):
                pass
        except OSError as error:
            raise DeployError(
                "state_unusable",
                f"writing to {self.home} failed: {error.strerror or error}",
                hint="check the folder's owner and free space, or set TGI_DEPLOY_HOME to another folder",
            ) from error
        return str(self.home)

    def has(self, package: str) -> bool:
        return importlib.util.find_spec(package) is not None


def python_finding(workstation: Workstation) -> Problem:
    return ok("python", workstation.python)


def state_finding(workstation: Workstation) -> Problem:
    try:
        return ok("state_folder", f"{workstation.state_folder()} is writable")
    except DeployError as problem:
        return problem.problem


def extras_findings(workstation: Workstation, targets: Sequence[Target], chosen: str) -> tuple[Problem, ...]:
    """Return the installed extras, and a warning if that of the chosen target is missing."""
    own = {target.name: (target.facts.extra, f"the target {target.name}") for target in targets if target.facts.extra}
    extras = {**EXTRAS, **own}
    missing = [name for name, (package, _) in extras.items() if not workstation.has(package)]
    there = [name for name in extras if name not in missing]
    others = ", ".join(f"{name} ({extras[name][1]})" for name in missing if name != chosen)
    message = f"installed: {', '.join(there) or 'none'}" + (f"; not installed: {others}" if others else "")
    found = ok("extras", message, installed=there)
    if chosen not in missing:
        return (found,)
    message = f"the extra '{chosen}' is not installed ({extras[chosen][1]})"
    return found, warning("extra_missing", message, install_command(chosen), extra=chosen)
