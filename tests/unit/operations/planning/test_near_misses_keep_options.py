"""A suggested command that changes one option keeps the others of the user's command."""

from __future__ import annotations

import json
import shlex

import pytest

from tgi_deploy import Client, NoPlanError
from tgi_deploy.cli.frame import run
from tgi_deploy.cli.main import ROOT


@pytest.mark.parametrize(
    "words",
    [
        ("up", "--name", "demo", "--tunnel", "--instance-profile", "a b"),
        ("up", "--subnet", "subnet-1", "--no-wait", "--strategy", "recreate"),
        ("up", "--target", "sagemaker", "--create-role", "--ready", "fast"),
        ("doctor", "--tunnel"),
        ("runbook", "--name", "demo"),
    ],
)
def test_the_options_of_the_command_are_kept(capsys, words):
    assert run(ROOT, (*words, "llama3-13b", "--budget", "0.2", "--region", "us-east-1", "--json")) == 3
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    suggested = shlex.split(error["hint"].partition("tgi-deploy ")[2])
    assert suggested[0] == words[0]
    assert {*words, "--region", "us-east-1"} <= {*suggested}


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_a_program_in_the_sandbox_gets_commands_for_the_sandbox(command):
    with pytest.raises(NoPlanError) as caught:
        getattr(Client(sandbox=True), command)("llama3-13b", budget="0.2", region="us-east-1")
    assert caught.value.commands
    assert all(line.startswith(f"tgi-deploy {command} --sandbox llama3-13b ") for line in caught.value.commands)
