"""`up -f`: each deployment of a file is one call of `up`, and a failed call stops the run."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tgi_deploy.api import Client
from tgi_deploy.cli import output
from tgi_deploy.cli.frame import run
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import ConflictError, NoFeasiblePlanError, warning
from tgi_deploy.values.base import Result

THREE = """
owner = "search-team"
budget = 5

[deployments.one]
model = "llama3-8b"
ttl = "2h"

[deployments.two]
model = "llama3-8b"
allow_cidr = "203.0.113.0/24"

[deployments.three]
model = "llama3-8b"
"""
OUTCOME = SimpleNamespace(changed=False, declined=False, proposal=None)


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Return the arguments of each `up`, by the deployment's name; `outcomes` replace successes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "envelope", output.envelope.__wrapped__)  # these calls return no data of an `up`
    monkeypatch.setattr("tgi_deploy.cli.views.deployment.up_text", lambda _outcome: "")
    (tmp_path / "d.toml").write_text(THREE, encoding="utf-8")
    made = {}

    def up(client, **given):
        made[given["name"]] = {**given, "client": client}
        outcome = calls.outcomes.get(given["name"], Result(data={"name": given["name"]}, outcome=OUTCOME))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(Client, "up", up)
    calls = type("Calls", (), {"made": made, "outcomes": {}})()
    return calls


def up_of_file(capsys, *words):
    code = run(ROOT, ["up", "-f", "d.toml", "--yes", "--sandbox", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_each_deployment_gets_its_options_and_those_of_the_run(calls, capsys):
    code, document = up_of_file(capsys, "--ready", "fast")
    one, two, three = (calls.made[name] for name in ("one", "two", "three"))
    assert (code, document["data"]) == (0, {"deployments": [{"name": n} for n in calls.made], "pruned": None})
    assert (one["budget"], one["ttl"], "allow_cidr" in one) == ("5", "2h", False)
    assert (two["budget"], "ttl" in two, two["allow_cidr"]) == ("5", False, ("203.0.113.0/24",))
    assert {item["client"]._owner for item in (one, two, three)} == {"search-team"}
    assert [(item["ready"], item["client"].target.name) for item in (one, three)] == [("fast", "ec2"), ("fast", "ec2")]


def test_a_missing_plan_ends_the_run_with_its_exit_code(calls, capsys):
    calls.outcomes["two"] = NoFeasiblePlanError("no_feasible_plan", "not any more")
    code, document = up_of_file(capsys, "--prune")
    assert (code, [item["code"] for item in document["errors"]]) == (3, ["no_feasible_plan"])
    assert list(calls.made) == ["one", "two"]


def test_an_error_names_the_deployment_and_those_already_up(calls, capsys):
    calls.outcomes["three"] = ConflictError("name_taken", "it is taken", hint="take another")
    code, document = up_of_file(capsys)
    (error,) = document["errors"]
    assert (code, error["code"], error["message"]) == (4, "name_taken", "'three' of d.toml: it is taken")
    assert error["hint"] == (
        "take another; already up from this file: one, two; the same command resumes where it stopped"
    )


def test_warnings_of_every_deployment_are_shown(calls, capsys):
    for name in ("one", "three"):
        calls.outcomes[name] = Result(data={}, outcome=OUTCOME, warnings=(warning("no_limit", f"nothing ends {name}"),))
    _, document = up_of_file(capsys)
    assert [item["message"] for item in document["warnings"]] == ["nothing ends one", "nothing ends three"]
