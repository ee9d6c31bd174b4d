"""`exec`: a command next to the engine, its exit code, and the error for targets without a shell."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from fakes.computer import FakeComputer, request

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.watching.shell import run_there
from tgi_deploy.targets.docker.commands import exec_words
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.target import docker_target
from tgi_deploy.targets.ec2.target import Ec2Target
from tgi_deploy.targets.protocol import Finished, RemoteShell, Shell

LOCAL = Endpoint(url="unix:///var/run/docker.sock")


class WithShell(Ec2Target):
    """Machines that run Python; the arguments are its program."""

    run = None

    def child(self, place, machine_id, words, *, terminal):
        return (sys.executable, "-c", *words, place, machine_id, str(terminal))


class WithCloud(Ec2Target):
    def run(self, place, machine_id, words, *, terminal):
        return Finished(exit_code=4, stdout="out", stderr="err")


class WithoutProgram(WithShell):
    def child(self, place, machine_id, words, *, terminal):
        return ("/nowhere/docker", *words)


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    return made


def context(around, kind):
    ec2 = around.targets()[0]
    return around.context(targets=(kind(**{name: getattr(ec2, name) for name in Ec2Target.__struct_fields__}),))


def test_a_command_runs_on_the_machine_and_returns_its_exit_code(around):
    program = "import sys; print(sys.argv[1:]); sys.exit(7)"
    ended = run_there(context(around, WithShell), "demo", (program,), captured=True)
    machine = around.store.load("demo").machine.attributes["id"]
    assert (ended.exit_code, ended.stdout) == (7, f"['us-east-1', '{machine}', 'False']\n")


def test_a_signaled_command_has_a_shell_exit_code(around):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert run_there(context(around, WithShell), "demo", (program,)).exit_code == 128 + 15


def test_terminal_resizes_reach_the_shell(around):
    """A terminal signals its foreground process group, so the program must stay in this one and on its terminal."""
    program = "import os; print(os.getpgrp(), os.getsid(0))"
    ended = run_there(context(around, WithShell), "demo", (program,), captured=True)
    assert ended.stdout == f"{os.getpgrp()} {os.getsid(0)}\n"


def test_a_cloud_that_can_run_commands_is_used(around, capsys):
    ended = run_there(context(around, WithCloud), "demo", ("ls",), captured=True)
    assert ended == Finished(exit_code=4, stdout="out", stderr="err")
    assert run_there(context(around, WithCloud), "demo", ("ls",)) == Finished(exit_code=4)
    assert capsys.readouterr() == ("out", "err")


def test_a_shell_on_ec2_needs_a_terminal(around):
    with pytest.raises(DeployError, match="there is no terminal") as raised:
        run_there(around.context(), "demo", (), terminal=False)
    assert raised.value.code == "no_shell"
    assert "'tgi-deploy exec NAME -- nvidia-smi'" in raised.value.hint


def test_a_missing_program_is_named(around):
    with pytest.raises(
        DeployError, match=r"starting '/nowhere/docker' on this computer failed: No such file"
    ) as raised:
        run_there(context(around, WithoutProgram), "demo", ("ls",))
    assert raised.value.code == "no_shell"


def test_an_unknown_deployment_is_an_error(around):
    with pytest.raises(InputError) as raised:
        run_there(around.context(), "other", ())
    assert raised.value.code == "unknown_deployment"


@pytest.mark.parametrize(
    ("endpoint", "terminal", "start"),
    [
        (LOCAL, False, ("docker", "--host", LOCAL.url, "exec", "--interactive", "c1")),
        (LOCAL, True, ("docker", "--host", LOCAL.url, "exec", "--interactive", "--tty", "c1")),
        (
            Endpoint(url="tcp://gpu:2376", certificates=Path("/certs")), False,
            ("docker", "--host", "tcp://gpu:2376", "--tlsverify", "--tlscacert", "/certs/ca.pem", "--tlscert",
             "/certs/cert.pem", "--tlskey", "/certs/key.pem", "exec", "--interactive", "c1"),
        ),
    ],
)  # fmt: skip
def test_the_docker_cli_runs_the_command(endpoint, terminal, start):
    assert exec_words(endpoint, "c1", ("ls", "-l", "a b"), terminal=terminal) == (*start, "ls", "-l", "a b")
    assert exec_words(endpoint, "c1", (), terminal=terminal)[: len(start) + 1] == (*start, "sh")


def test_all_targets_run_commands_the_same_way(around):
    for target in (*around.targets(), docker_target({})):
        assert isinstance(target, Shell) != isinstance(target, RemoteShell)


def test_exec_passes_arguments_and_returns_the_exit_code(around, monkeypatch, capfd):
    monkeypatch.setattr("tgi_deploy.wiring.context", lambda _setup: context(around, WithShell))
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert frame.run(ROOT, ["exec", "demo", "--", program, "--json"]) == 3
    assert capfd.readouterr() == ("out\n", "err\n")
    assert frame.run(ROOT, ["exec", "demo", "--json", "--", program]) == 3
    document = json.loads(capfd.readouterr().out)
    assert document["exit_code"] == 3
    assert document["data"] == {"name": "demo", "command": [program], "stdout": "out\n", "stderr": "err\n"}
