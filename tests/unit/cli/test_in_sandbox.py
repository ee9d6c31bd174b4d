"""Commands suggested in the sandbox keep --sandbox."""

from __future__ import annotations

import json
import re

import click
import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.in_sandbox import COMMANDS, in_sandbox, with_option
from tgi_deploy.cli.main import NAMES, ROOT
from tgi_deploy.cli.options import sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.errors import DeployError, Problem, warning


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
def test_a_line(line, reported):
    assert with_option(line) == reported


def test_the_list_covers_every_command_that_calls_a_cloud():
    ctx = click.Context(ROOT)
    asking = {
        name
        for name in NAMES
        for param in getattr(ROOT.get_command(ctx, name), "params", ())
        if param.name == "sandbox" and not param.hidden
    }
    assert set(COMMANDS) == asking


def test_sandbox_is_added_everywhere_except_in_hashed_parts():
    line, reported = "tgi-deploy down demo", "tgi-deploy down --sandbox demo"
    result = Result(
        data={"still_billed": [{"ends_with": line}], "receipt": {"left": [line], "sha256": "1"}, "n": 1},
        text=line,
        warnings=(warning("w", line),),
        errors=(Problem(code="e", message=line, hint=line),),
        failure_text=line,
    )
    found = in_sandbox(result)
    assert found.data == {
        "still_billed": ({"ends_with": reported},),
        "receipt": {"left": [line], "sha256": "1"},
        "n": 1,
    }
    assert (found.text, found.warnings[0].message) == (reported, reported)
    error = found.errors[0]
    assert (error.message, error.hint) == (reported, reported)
    assert found.failure_text == reported


@pytest.mark.parametrize(("given", "hint"), [([], "tgi-deploy list'"), (["--sandbox"], "tgi-deploy list --sandbox'")])
def test_from_the_command_line(capsys, given, hint):
    @frame.command("lose", examples=("tgi-deploy lose",))
    @sandbox_option
    def lose(*, sandbox):
        raise DeployError("lost", f"it is lost: {sandbox}", hint="'tgi-deploy list' shows what exists")

    code = frame.run(click.Group("tgi-deploy", commands=[lose]), ["lose", "--json", *given])
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (code, re.search(r"tgi-deploy list[^']*'", error["hint"])[0]) == (1, hint)
