"""What this computer's answers mean. Docker and GPUs matter to some targets only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, Problem, warning
from tgi_deploy.operations.checking.check_result import error, ok

if TYPE_CHECKING:
    from tgi_deploy.reconcile.inspection import Workstation

# Extra of this package → the package that it brings, and what it is for.
EXTRAS: Final = {
    "hub": ("huggingface_hub", "models that the catalogue does not know"),
    "sandbox": ("moto", "the local cloud"),
    "docker": ("docker", "docker hosts"),
}
_NVIDIA: Final = "nvidia"


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


def engine_findings(workstation: Workstation, *, needed: bool) -> tuple[Problem, ...]:
    """`needed`: the target runs containers here, so that an engine, its NVIDIA runtime and a GPU must be there."""
    try:
        engine = workstation.engine()
    except DeployError as error_met:
        return (replace(error_met.problem, severity="error" if needed else "warning"),)
    findings = [ok("docker", f"engine {engine.version} answers", version=engine.version)]
    return (*findings, *_gpu_findings(workstation, engine.runtimes)) if needed else tuple(findings)


def _gpu_findings(workstation: Workstation, runtimes: tuple[str, ...]) -> tuple[Problem, ...]:
    cards = workstation.cards()
    runtime = ok("nvidia_runtime", "docker can hand GPUs to containers", runtimes=list(runtimes))
    if _NVIDIA not in runtimes:
        remedy = "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker"
        runtime = error("nvidia_runtime_missing", f"docker knows only {', '.join(runtimes)}", remedy)
    gpu = ok("gpu", "; ".join(cards), cards=list(cards))
    if not cards:
        gpu = error("gpu_missing", "nvidia-smi lists no GPU", "install NVIDIA's driver, or use a machine with a GPU")
    return (runtime, gpu)
