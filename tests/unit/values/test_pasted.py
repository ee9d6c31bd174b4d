"""Suggested commands are completed so that they work when pasted."""

from __future__ import annotations

import json
import re

import click
import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import NAMES, ROOT
from tgi_deploy.cli.options import cloud_options, name_argument, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.errors import DeployError, Diagnosis, Failure, Problem, StillRunning, warning
from tgi_deploy.values.base import Result as ApiResult
from tgi_deploy.values.pasted import CALLING, PLANNING, SEARCHING, Pasted

SANDBOX = Pasted(sandbox=True)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("'tgi-deploy down demo' removes it", "'tgi-deploy down --sandbox demo' removes it"),
        ("tgi-deploy up m --set 'x=a b'; more", "tgi-deploy up --sandbox m --set 'x=a b'; more"),
        ("tgi-deploy logs --sandbox demo", "tgi-deploy logs --sandbox demo"),
        ("by 'tgi-deploy up m --sandbox --yes' (process 1)", "by 'tgi-deploy up m --sandbox --yes' (process 1)"),
        (
            "'tgi-deploy up m' or 'tgi-deploy list --sandbox'",
            "'tgi-deploy up --sandbox m' or 'tgi-deploy list --sandbox'",
        ),
        ("tgi-deploy explain oom_load", "tgi-deploy explain oom_load"),
        ("tgi-deploy plan m", "tgi-deploy plan m"),
        ("a security group of tgi-deploy-demo", "a security group of tgi-deploy-demo"),
    ],
)
def test_the_sandbox_is_kept(line, reported):
    assert SANDBOX.text(line) == reported


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("'tgi-deploy logs NAME' shows it", "'tgi-deploy logs demo' shows it"),
        ("'tgi-deploy extend NAME --ttl TIME'", "'tgi-deploy extend demo --ttl TIME'"),
        ("'tgi-deploy status NAME', 'tgi-deploy down NAME'", "'tgi-deploy status demo', 'tgi-deploy down demo'"),
        ("'tgi-deploy down other'", "'tgi-deploy down other'"),
        ("'kubectl create namespace NAME'", "'kubectl create namespace NAME'"),
        ("'tgi-deploy up MODEL --kube-context NAME'", "'tgi-deploy up MODEL --kube-context NAME'"),
        ("'tgi-deploy smoke NAMES'", "'tgi-deploy smoke NAMES'"),
    ],
)
def test_the_name_is_filled_in(line, reported):
    assert Pasted(name="demo").text(line) == reported


def test_a_name_is_quoted_for_the_shell():
    assert Pasted(name="a b;c").text("run: tgi-deploy down NAME") == "run: tgi-deploy down 'a b;c'"


def test_without_a_name_the_placeholder_stays():
    assert SANDBOX.text("'tgi-deploy down NAME'") == "'tgi-deploy down --sandbox NAME'"


def test_only_commands_that_search_keep_the_location():
    found_in = Pasted(name="demo", searches=True, regions=("eu-west-1", "us-west-2"), target="sagemaker")
    words = "--region eu-west-1 --region us-west-2 --target sagemaker"
    assert found_in.text("'tgi-deploy logs NAME'") == f"'tgi-deploy logs {words} demo'"
    assert found_in.text("'tgi-deploy rollback NAME'") == "'tgi-deploy rollback demo'"
    assert found_in.text("'tgi-deploy list --region all'") == "'tgi-deploy list --target sagemaker --region all'"


def test_the_target_of_a_launch_is_that_of_its_checks_and_plans():
    launched = Pasted(name="demo", target="sagemaker")
    assert launched.text("'tgi-deploy doctor --policy'") == "'tgi-deploy doctor --target sagemaker --policy'"
    assert launched.text("'tgi-deploy plan MODEL --lock FILE'").startswith("'tgi-deploy plan --target sagemaker MODEL")
    assert launched.text("'tgi-deploy doctor --target docker'") == "'tgi-deploy doctor --target docker'"
    assert launched.text("'tgi-deploy down NAME'") == "'tgi-deploy down demo'"


def test_commands_that_plan_keep_the_profiles():
    own = Pasted(profiles_dir="my profiles", sandbox=True)
    assert own.text("tgi-deploy up my-model --budget 9") == (
        "tgi-deploy up --profiles-dir 'my profiles' --sandbox my-model --budget 9"
    )
    assert own.text("'tgi-deploy down demo'") == "'tgi-deploy down --sandbox demo'"


@pytest.mark.parametrize("line", ["tgi-deploy up my-model --budget 9", "'tgi-deploy list' or 'tgi-deploy logs NAME'"])
def test_a_completed_command_stays(line):
    """The client completes the commands of an error, and then the command line those of its result."""
    own = Pasted(name="a b", profiles_dir="my profiles", sandbox=True, searches=True, regions=("b c",), target="docker")
    assert own.text(own.text(line)) == own.text(line)


def commands_with(*options):
    ctx = click.Context(ROOT)
    shown = {name: [item for item in ROOT.get_command(ctx, name).params if not getattr(item, "hidden", False)]
             for name in NAMES}  # fmt: skip
    return {name for name, params in shown.items() if set(options) <= {item.name for item in params}}


def test_the_lists_are_complete():
    planning = {"up", "smoke", "doctor", "runbook"}  # their --region says where to launch
    assert set(SEARCHING) == commands_with("sandbox", "regions") - planning
    assert set(CALLING) == commands_with("sandbox")
    assert set(PLANNING) == commands_with("profiles_dir")


def test_all_parts_of_an_error_are_completed():
    line, reported = "tgi-deploy down NAME", "tgi-deploy down --sandbox demo"
    failure = Failure(
        diagnosis=Diagnosis(evidence=line, remedy=line, command=line),
        still_running=StillRunning(machine="i-1", region="r", usd_per_hour=None, ends_at=None, ends_with=line),
    )
    with pytest.raises(DeployError) as caught, Pasted(name="demo", sandbox=True).errors():
        raise DeployError("lost", line, hint=line, data={"next": [line]}, failure=failure)
    error = caught.value
    assert (error.message, error.hint, error.problem.data) == (reported, reported, {"next": (reported,)})
    assert error.failure.diagnosis == Diagnosis(evidence=line, remedy=reported, command=reported)
    assert error.failure.still_running.ends_with == reported


def test_the_problems_of_a_result_are_completed():
    line, reported = "tgi-deploy down NAME", "tgi-deploy down demo"
    found = Pasted(name="demo").result(
        ApiResult(data=None, outcome=None, warnings=(warning("w", line),), errors=(Problem(code="e", message=line),))
    )
    assert (found.warnings[0].message, found.errors[0].message) == (reported, reported)


def test_hashed_data_and_lines_of_a_log_stay_unchanged():
    line = "tgi-deploy down demo"
    data = {"still_billed": [{"ends_with": line}], "receipt": {"left": [line], "sha256": "1"}, "n": 1, "evidence": line}
    reported = {
        "still_billed": ({"ends_with": "tgi-deploy down --sandbox demo"},),
        "receipt": {"left": [line], "sha256": "1"},
        "n": 1,
        "evidence": line,
    }
    assert SANDBOX.data(data) == reported


def ran(capsys, command, *words):
    frame.run(click.Group("tgi-deploy", commands=[command]), [command.name, *words])
    return capsys.readouterr().out


@pytest.mark.parametrize(("given", "hint"), [([], "tgi-deploy list'"), (["--sandbox"], "tgi-deploy list --sandbox'")])
def test_from_the_command_line(capsys, given, hint):
    @frame.command("lose", examples=("tgi-deploy lose",))
    @sandbox_option
    def lose(*, sandbox):
        raise DeployError("lost", f"it is lost: {sandbox}", hint="'tgi-deploy list' shows what exists")

    (error,) = json.loads(ran(capsys, lose, "--json", *given))["errors"]
    assert re.search(r"tgi-deploy list[^']*'", error["hint"])[0] == hint


def test_the_location_of_a_search_is_kept_in_texts(capsys):
    @frame.command("status", examples=("tgi-deploy status demo",))
    @name_argument
    @cloud_options
    def find(*, client, name):
        return Result(text="next: tgi-deploy logs NAME")

    out = ran(capsys, find, "demo", "--region", "eu-west-1", "--target", "sagemaker", "--sandbox")
    assert out == "next: tgi-deploy logs --region eu-west-1 --target sagemaker --sandbox demo\n"


@pytest.mark.parametrize("command", ["logs", "render"])
def test_a_log_and_an_artifact_are_printed_unchanged(capsys, command):
    @frame.command(command, examples=(f"tgi-deploy {command} demo",))
    @name_argument
    @sandbox_option
    def show(*, name, sandbox):
        return Result(text="tgi-deploy down NAME")

    assert ran(capsys, show, "demo", "--sandbox") == "tgi-deploy down NAME\n"
