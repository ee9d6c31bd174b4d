"""The real Docker Engine of the tests: `scripts/docker_engine start` runs it; this connects to it.

Suites that need it import the fixture in their conftest: `from builders.docker_engine import docker_engine`.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# Read before any test clears the environment.
_HOST = os.environ.get("TGI_DEPLOY_TEST_DOCKER_HOST", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerEngine:
    """`host` is a value for DOCKER_HOST, `home` the folder of the engine. Both engine images are stubs.

    The engine's host has 4 L40S GPUs of 46068 MiB. A container's environment controls its stub server: STUB_SPEED
    (divides real durations, 600 if unset), STUB_FAULTS (names separated by commas) and FAKE_DRIVER_ERROR (the error
    message of the NVIDIA driver). The folder `fakes` controls all containers: `accelerators.json`, `engine.json` with
    the first two, `driver_error`; a test that writes there restores it, and does not run in parallel with others.
    """

    host: str
    image: str = "ghcr.io/huggingface/text-generation-inference:3.3.7"
    machine_image: str = "tgi-deploy-test/machine"

    @property
    def socket(self) -> Path:
        return Path(self.host.removeprefix("unix://"))

    @property
    def home(self) -> Path:
        return self.socket.parent

    @property
    def fakes(self) -> Path:
        return self.home / "fakes"

    @property
    def machine_store(self) -> Path:
        """`/var/lib/docker` of a machine that holds the engine images."""
        return self.home / "machine-store"

    def docker(self, *arguments: str, timeout_s: float = 120) -> str:
        """Run the Docker CLI. Raises AssertionError with its output if it fails."""
        done = self.attempt(*arguments, timeout_s=timeout_s)
        assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def attempt(self, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "--host", self.host, *arguments],  # noqa: S607 -- the client that belongs to the engine
            capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip


@pytest.fixture(scope="session")
def docker_engine() -> DockerEngine:
    if not _HOST:
        pytest.skip("no Docker Engine: `scripts/docker_engine start`, then TGI_DEPLOY_TEST_DOCKER_HOST=unix://…")
    return DockerEngine(host=_HOST)
