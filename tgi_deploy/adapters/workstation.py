"""This computer: the interpreter, the records' folder, optional packages, the container engine and the GPUs."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from shutil import which
from typing import TYPE_CHECKING, Final

from tgi_deploy import bounded_json
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.inspection import Engine

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_S: Final = 10.0
_FIELDS: Final = "{{json .ServerVersion}} {{json .Runtimes}}"
_GETTING_DOCKER: Final = "start docker, or set DOCKER_HOST; https://docs.docker.com/engine/install/"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalWorkstation:
    """`home` is the folder of records. Programs are looked for on PATH."""

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
                hint="check that folder's owner and space, or set TGI_DEPLOY_HOME to another one",
            ) from error
        return str(self.home)

    def has(self, package: str) -> bool:
        return importlib.util.find_spec(package) is not None

    def engine(self) -> Engine:
        """Raises DeployError `docker_missing` or `docker_unreachable`."""
        if which("docker") is None:
            raise DeployError("docker_missing", "there is no docker command on PATH", hint=_GETTING_DOCKER)
        done = _run("docker", "info", "--format", _FIELDS)
        version, _, runtimes = (done or "").strip().partition(" ")
        try:
            return Engine(
                version=str(bounded_json.parse(version)), runtimes=tuple(sorted(bounded_json.parse_object(runtimes)))
            )
        except (ValueError, TypeError):
            raise DeployError(
                "docker_unreachable", "the container engine does not answer", hint=_GETTING_DOCKER
            ) from None

    def cards(self) -> tuple[str, ...]:
        listed = _run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader") or ""
        return tuple(line.strip() for line in listed.splitlines() if line.strip())


def _run(*words: str) -> str | None:
    """What a program prints; None when it is missing, fails, or takes too long."""
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
