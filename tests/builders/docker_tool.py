"""Runs the real program against the real Docker Engine, with a separate home folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import pytest

TOKEN = "hf_plantedplantedplanted"
KEY = "planted-key-of-the-engine"


class Tool:
    """Runs `tgi-deploy` with a separate home folder against the engine."""

    def __init__(self, engine, home, name):
        self.engine, self.home, self.name = engine, home, name
        self.port = free_port()

    def run(self, *words, **more):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TGI_DEPLOY_HOME": str(self.home / "state"),
            "DOCKER_HOST": self.engine.host,
            "HF_TOKEN": TOKEN,
            "ENGINE_KEY": KEY,
            **more,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tgi_deploy", *words, "--json"],
            capture_output=True, text=True, env=environ, cwd=self.home, timeout=300, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert KEY not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def up(self, *words, model="llama3-8b", hardware="1xL40S", **more):
        where = ("--target", "docker", "--port", str(self.port), "--name", self.name, "--ready", "fast", "--yes")
        return self.run("up", model, *where, *(("--hardware", hardware) if hardware else ()), *words, **more)

    def inspect(self):
        return json.loads(self.engine.docker("inspect", f"tgi-deploy-{self.name}"))[0]

    def names(self):
        listed = self.engine.docker("ps", "--all", "--filter", f"name=tgi-deploy-{self.name}", "--format", "{{.Names}}")
        return listed.split()

    def listed(self, *words):
        """Return its own rows of `list`: other tests may have containers on this host."""
        rows = self.run("list", *words)[1]["data"]["deployments"]
        return [row for row in rows if row["name"] == self.name]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def tool(docker_engine, tmp_path):
    made = Tool(docker_engine, tmp_path, f"t-{os.getpid()}-{time.monotonic_ns() % 10**8}")
    yield made
    for name in made.names():
        docker_engine.attempt("rm", "--force", name)
    docker_engine.attempt("network", "rm", f"tgi-deploy-{made.name}")
