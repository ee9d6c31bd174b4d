from __future__ import annotations

import json

import pytest
from builders.control_plane import namespace, plane

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT

__all__ = ["namespace", "plane"]


@pytest.fixture
def run(namespace, monkeypatch, capsys, caplog, tmp_path):
    """Return a function that runs a command in the test's namespace and returns its exit code and its envelope.

    A test that fails shows its calls, and why a connection to a pod failed.
    """
    caplog.set_level("INFO", "tgi_deploy.calls")
    document = json.loads(namespace.plane.kubeconfig.read_text(encoding="utf-8"))
    document["contexts"][0]["context"]["namespace"] = namespace.name
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    def command(*words):
        code = frame.run(ROOT, (*words, "--json"))
        return code, json.loads(capsys.readouterr().out)

    return command
