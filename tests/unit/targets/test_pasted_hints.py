"""When a command about a deployment fails, the commands in its hint have the deployment's name and work when pasted."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import click
import pytest
from test_every_target import BENCHES

from tgi_deploy import Client, wiring
from tgi_deploy.cli.frame import PROGRAM, run
from tgi_deploy.cli.main import NAMES, ROOT
from tgi_deploy.errors import DeployError
from tgi_deploy.readiness.http import HttpEngine
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.values.base import replaced

SUGGESTED = re.compile(rf"'({PROGRAM} [^']+)'")
# Commands that ask, those that only plan, the parameters for a name, and the words after it.
ASKING = {"up", "down", "rollback", "smoke", "stop", "start", "restart"}
NAMED = {"name", "names", "source"}
PLANNING = {"rehearse", "render", "runbook"}
WORDS = {"ask": ("Why?",), "scale": ("2",), "extend": ("--ttl", "2h")}


@pytest.fixture(params=wiring.target_names())
def bench(request, tmp_path):
    return BENCHES[request.param](tmp_path / "state")


@pytest.fixture
def program(monkeypatch, capsys, bench):
    """Run the command line on the bench, with some ports of its context replaced; return the error."""
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    monkeypatch.setattr(wiring, "target_in", lambda _name, **_given: bench.target)

    def call(*words, code=None, **ports):
        monkeypatch.setattr(wiring, "context", lambda _setup: replace(bench.context(), **ports))
        assert run(ROOT, (words[0], "--json", *words[1:])) != 0
        (error,) = json.loads(capsys.readouterr().out)["errors"]
        assert error["code"] == code or code is None
        return error

    return call


def pasted(line):
    """Parse a command line like the shell and the program; return the command and its arguments."""
    words = shlex.split(line)[1:]
    ctx = click.Context(ROOT, info_name=PROGRAM, obj=None)
    found = ROOT.get_command(ctx, words[0])
    return words[0], found.make_context(words[0], words[1:], parent=ctx).params


def commands_about(error, name="demo"):
    """Return the suggested commands of a hint, all of which parse; those with an argument for a name have this one."""
    assert "NAME" not in f"{error['message']} {error['hint']}"
    lines = SUGGESTED.findall(error["hint"])
    found = [pasted(line) for line in lines]
    assert found, error
    assert len({*lines}) == len(lines), "a command is suggested twice"
    for command, given in found:
        named = given.get("names") or given.get("name") or given.get("source")
        assert command in {"list", "doctor", "up"} or named in {name, (name,)}, (command, given)
    return {command for command, _ in found}


def unreachable(_address):
    return HttpEngine("http://127.0.0.1:1")


def where(bench):
    return () if bench.target.name == "ec2" else ("--target", bench.target.name)


def test_an_engine_that_does_not_answer(bench, program):
    bench.up()
    silent = {"engine_client": unreachable, "probe": lambda _address: Probe(outcome="refused")}
    asked = program("ask", "demo", "Why?", *where(bench), code="engine_unreachable", **silent)
    assert commands_about(asked) == {"status", "logs"}
    seen = program("status", "demo", *where(bench), code="not_answering", **silent)
    assert commands_about(seen) == {"logs", "diagnose", "down"}


class Forgetful:
    """A store whose record has lost its resources."""

    def __init__(self, store):
        self.load = lambda name: replaced(store.load(name), resources=())


@pytest.mark.parametrize("command", ["logs", "exec", "diagnose"])
def test_a_deployment_without_a_machine(bench, program, command):
    cloud = bench.target.cloud(bench.place)
    for record in reversed(bench.up().resources):
        cloud.handler(record.kind).delete(record.attributes)
        while record.is_machine and bench.machines():
            cloud.handler(record.kind).read(record.attributes)  # a deletion takes several looks
    store = Forgetful(bench.context().store)
    error = program(command, "demo", *where(bench), code="machine_missing", store=store)
    assert commands_about(error) == {"status"}


def test_an_unknown_name_suggests_an_option_that_the_target_accepts(bench, program):
    error = program("status", "unknown", *where(bench), code="unknown_deployment")
    assert ("--region searches elsewhere" in error["hint"]) is bench.target.facts.regions


def test_there_is_no_earlier_revision(bench, program):
    bench.up()
    assert commands_about(program("rollback", "demo", "--yes", code="no_previous_revision")) == {"status"}


@pytest.mark.parametrize(
    ("bench", "words", "code", "suggested"),
    [
        ("ec2", ("restart", "demo", "--yes"), "not_ready", {"diagnose", "down"}),
        ("ec2", ("scale", "demo", "many"), "bad_option_value", {"scale"}),
        ("docker", ("restart", "demo", "--yes"), "not_ready", {"diagnose", "down"}),
        ("docker", ("extend", "demo", "--ttl", "2h"), "limits_unsupported", {"down"}),
        ("kubernetes", ("start", "demo", "--yes"), "not_ready", {"diagnose", "down"}),
        ("kubernetes", ("stop", "demo", "--yes"), "not_stoppable", {"down"}),
        ("sagemaker", ("restart", "demo", "--yes"), "not_restartable", {"status", "down"}),
        ("sagemaker", ("exec", "demo", "--", "ls"), "no_shell", {"logs"}),
        ("sagemaker", ("scale", "demo", "2"), "not_ready", {"diagnose"}),
    ],
    indirect=["bench"],
)
def test_what_a_target_cannot_do_or_does_not_do_in_time(bench, program, words, code, suggested):
    bench.up()
    at = words.index("--") if "--" in words else len(words)
    error = program(*words[:at], *where(bench), *words[at:], code=code, probe=lambda _address: Probe(outcome="refused"))
    assert commands_about(error) == suggested


@pytest.mark.parametrize(
    ("bench", "options"),
    [
        ("ec2", ("--budget", "5")),
        ("docker", ("--hardware", "1xL40S")),
        ("kubernetes", ("--hardware", "1xL40S")),
        ("sagemaker", ("--budget", "5", "--create-role")),
    ],
    indirect=["bench"],
)
def test_an_engine_that_does_not_start(bench, program, options):
    silent = {"probe": lambda _address: Probe(outcome="refused")}
    how = ("--name", "demo", "--yes", "--no-preflight", "--on-failure", "keep")
    error = program("up", "phi3-mini", *options, *how, *where(bench), code="not_ready", **silent)
    assert {"diagnose", "logs", "down"} >= commands_about(error)


class Failing:
    """A store; what it raises stands for any error of a layer that does not know the name."""

    def __getattr__(self, _name):
        raise DeployError("request_refused", "it failed", hint="'tgi-deploy status NAME' shows what exists")


@pytest.fixture
def failing(tmp_path, monkeypatch):
    bench = BENCHES["ec2"](tmp_path / "state")
    monkeypatch.setattr(wiring, "context", lambda _setup: replace(bench.context(), store=Failing()))


def named_commands():
    ctx = click.Context(ROOT)
    params = {name: {item.name for item in ROOT.get_command(ctx, name).params} for name in set(NAMES) - PLANNING}
    return sorted(name for name, items in params.items() if "sandbox" in items and NAMED & items)


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("command", named_commands())
def test_an_error_of_a_lower_layer_gets_the_name(capsys, command):
    words = ("llama3-8b", "--name", "demo") if command == "up" else ("demo", *WORDS.get(command, ()))
    yes = ("--yes",) if command in ASKING else ()
    assert run(ROOT, (command, *words, *yes, "--sandbox", "--json")) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["hint"] == "'tgi-deploy status --sandbox demo' shows what exists"


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.logs("demo"),
        lambda client: client.scale(name="demo", replicas=2),
        lambda client: list(client.follow_logs("demo")),
        lambda client: client.up("llama3-8b", name="demo"),
        lambda client: client.down("demo"),
    ],
)
def test_a_program_gets_the_name_and_the_options_of_its_client(call):
    with pytest.raises(DeployError) as caught:
        call(Client(sandbox=True))
    assert caught.value.hint == "'tgi-deploy status --sandbox demo' shows what exists"


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("call", [Client.list, Client.statuses, Client.costs, Client.gc])
def test_a_program_that_names_no_deployment_gets_the_options_of_its_client(call):
    with pytest.raises(DeployError) as caught:
        call(Client(sandbox=True))
    assert caught.value.hint == "'tgi-deploy status --sandbox NAME' shows what exists"
