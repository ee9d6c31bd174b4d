"""Controls a sandbox in tests, and runs the real command line against it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from builders.waiting import eventually

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.sandbox import api

if TYPE_CHECKING:
    import pytest


@dataclass
class Sandboxed:
    url: str
    access_key: str

    def control(self, method: str, path: str, document: object = None) -> Any:
        return api.control(
            api.Endpoint(url=self.url, access_key=self.access_key), method, f"/_sandbox/{path}", document
        )

    def fault(self, **document: Any) -> None:
        self.control("POST", "faults", document)

    def calls(self, action: str) -> list[dict[str, Any]]:
        return self.control("GET", f"calls?action={action}")["calls"]

    def all_calls(self) -> list[dict[str, Any]]:
        return self.control("GET", "calls")["calls"]

    def client(self, service: str, region: str = "us-east-1", **settings: Any) -> Any:
        """Return an administrator's client of a service."""
        return boto3.Session().client(
            service,
            region_name=region,
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key="any",
            **settings,
        )


@dataclass
class Ran:
    """One run: exit code, stdout, stderr; `json` is the envelope."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Program(Sandboxed):
    home: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> Ran:
        code = frame.run(ROOT, words)
        captured = self.capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    def here(self, *words: str) -> Ran:
        """Run with --sandbox and --json."""
        return self.run(*words, "--sandbox", "--json")

    def parameter(self, verb: str, name: str) -> str:
        """Run `aws ssm VERB-parameter` on the only machine, once it has booted; return its output and errors."""
        (machine,) = self.control("GET", "machines")["machines"]
        aws = Path(machine["console"]).parent / "bin" / "aws"
        eventually(aws.exists)
        words = [str(aws), "ssm", f"{verb}-parameter", "--name", name, "--with-decryption", "--output", "text"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def instances(self) -> list[dict[str, Any]]:
        """Return the deployments in the cloud."""
        return self.here("list").json["data"]["deployments"]
