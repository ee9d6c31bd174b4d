"""What this computer's answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, Problem, warning
from tgi_deploy.values.check_result import ok

if TYPE_CHECKING:
    from tgi_deploy.operations.checking.workstation import Workstation

# Extra of this package → the package that it brings, and what it is for.
EXTRAS: Final = {
    "hub": ("huggingface_hub", "models that the catalogue does not know"),
    "sandbox": ("moto", "the local cloud"),
    "docker": ("docker", "docker hosts"),
}


def python_finding(workstation: Workstation) -> Problem:
    return ok("python", workstation.python)


def state_finding(workstation: Workstation) -> Problem:
    try:
        return ok("state_folder", f"{workstation.state_folder()} is writable")
    except DeployError as problem:
        return problem.problem


def extras_findings(workstation: Workstation) -> tuple[Problem, ...]:
    """A missing extra is no fault: it is said what it would give."""
    missing = [name for name, (package, _) in EXTRAS.items() if not workstation.has(package)]
    there = [name for name in EXTRAS if name not in missing]
    findings = [ok("extras", f"installed: {', '.join(there) or 'none'}", installed=there)]
    for name in missing:
        told = f"the extra '{name}' is not installed ({EXTRAS[name][1]})"
        findings.append(warning("extra_missing", told, f"pip install 'tgi-deploy[{name}]'", extra=name))
    return tuple(findings)
