"""Every test starts with no credentials, no settings of the user's, and no way out but loopback."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from pytest_socket import socket_allow_hosts

if TYPE_CHECKING:
    from pathlib import Path

_PREFIXES = ("AWS_", "HF_", "HUGGING_FACE_", "TGI_DEPLOY_", "MOTO_", "DOCKER_", "OPENAI_")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in [name for name in os.environ if name.startswith(_PREFIXES)]:
        monkeypatch.delenv(name)
    home: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(home / "state"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "aws-credentials"))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))


@pytest.fixture(autouse=True)
def _loopback_only() -> None:
    socket_allow_hosts(["127.0.0.0/8", "::1", "localhost"], allow_unix_socket=True)
