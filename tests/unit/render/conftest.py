"""The tools that judge artefacts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shellcheck() -> str:
    beside = Path(sys.executable).with_name("shellcheck")
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert found, "shellcheck is part of the dev extra"
    return found


@pytest.fixture(scope="session")
def cloud_init() -> str:
    return shutil.which("cloud-init") or pytest.skip("cloud-init is not installed")


@pytest.fixture(scope="session")
def docker_compose() -> tuple[str, ...]:
    """`docker compose`, the plugin: the older docker-compose knows no `name`."""
    command = ("docker", "compose")
    if not shutil.which("docker") or subprocess.run([*command, "version"], check=False, capture_output=True).returncode:
        pytest.skip("docker's compose plugin is not installed")
    return command
