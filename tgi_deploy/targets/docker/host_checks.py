"""Checks whether this computer can run GPU containers: Docker, NVIDIA's runtime, GPUs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from shutil import which
from typing import Final

from tgi_deploy import bounded_json
from tgi_deploy.errors import DeployError, Problem, error, ok
from tgi_deploy.values.base import replaced

_PATIENCE_S: Final = 10.0
_FIELDS: Final = "{{json .ServerVersion}} {{json .Runtimes}}"
_GETTING_DOCKER: Final = "start docker, or set DOCKER_HOST; https://docs.docker.com/engine/install/"
_NVIDIA: Final = "nvidia"


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """The Docker daemon of this computer and its container runtimes."""

    version: str
    runtimes: tuple[str, ...]


class Installation:
    """This computer's installation. Programs are searched on PATH."""

    def engine(self) -> Engine:
        """Raises DeployError `docker_missing` or `docker_unreachable`."""
        if which("docker") is None:
            raise DeployError("docker_missing", "there is no 'docker' command on PATH", hint=_GETTING_DOCKER)
        done = _run("docker", "info", "--format", _FIELDS)
        version, _, runtimes = (done or "").strip().partition(" ")
        try:
            return Engine(
                version=str(bounded_json.parse(version)), runtimes=tuple(sorted(bounded_json.parse_object(runtimes)))
            )
        except (ValueError, TypeError):
            raise DeployError("docker_unreachable", "the Docker daemon does not answer", hint=_GETTING_DOCKER) from None

    def cards(self) -> tuple[str, ...]:
        listed = _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader") or ""
        return tuple(line.strip() for line in listed.splitlines() if line.strip())


def host_findings(host: Installation) -> tuple[Problem, ...]:
    """Return the findings. Whatever is missing is an error."""
    try:
        engine = host.engine()
    except DeployError as problem:
        return (replaced(problem.problem, severity="error"),)
    answers = ok("docker", f"engine {engine.version} answers", version=engine.version)
    return (answers, *_gpu_findings(host, engine.runtimes))


def _gpu_findings(host: Installation, runtimes: tuple[str, ...]) -> tuple[Problem, ...]:
    cards = host.cards()
    runtime = ok("nvidia_runtime", "Docker can pass GPUs to containers", runtimes=list(runtimes))
    if _NVIDIA not in runtimes:
        remedy = "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker"
        runtime = error("nvidia_runtime_missing", f"Docker has only {', '.join(runtimes)}", remedy)
    gpu = ok("gpu", "; ".join(cards), cards=list(cards))
    if not cards:
        gpu = error("no_gpu", "nvidia-smi lists no GPU", "install NVIDIA's driver, or use a machine with a GPU")
    return (runtime, gpu)


def _run(*words: str) -> str | None:
    """Return a program's output; None if it is missing, fails, or takes too long."""
    path = which(words[0])
    if path is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 -- a program on the user's own PATH, with fixed words
            [path, *words[1:]],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
