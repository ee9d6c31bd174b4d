"""The frame: every command gives one result, and never a traceback."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from tgi_deploy.cli import frame, options
from tgi_deploy.cli.output import Result
from tgi_deploy.data_files import state_home
from tgi_deploy.errors import (
    ConflictError,
    DeployError,
    InputError,
    InterruptedByUserError,
    LeftBehindError,
    NoFeasiblePlanError,
    NotHealthyError,
)


def raiser(error):
    @frame.command("fail", examples=("tgi-deploy fail",))
    def fail() -> Result:
        """Fail."""
        raise error

    return frame.group("root", help_text="", commands=[fail])


@frame.command("show", examples=("tgi-deploy show WHAT",))
@click.argument("what")
@options.target_option
@options.yes_option
def show(*, what: str, target: str, yes: bool) -> Result:
    """Show WHAT."""
    return Result(data={"what": what, "target": target, "yes": yes}, text=f"it is {what}")


ROOT = frame.group("root", help_text="", commands=[show, frame.group("in", help_text="", commands=[show])])


def test_a_result_is_printed(capsys):
    assert frame.run(ROOT, ["show", "x", "--yes"]) == 0
    assert capsys.readouterr() == ("it is x\n", "")


@pytest.mark.parametrize("argv", [["show", "x", "--json"], ["show", "--json", "x"], ["--json", "show", "x"]])
def test_json_anywhere(capsys, argv):
    assert frame.run(ROOT, argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "show"
    assert document["data"] == {"what": "x", "target": "ec2", "yes": False}


def test_json_after_a_double_dash_is_a_value(capsys):
    assert frame.run(ROOT, ["show", "--", "--json"]) == 0
    assert capsys.readouterr().out == "it is --json\n"


def test_a_subcommand_is_named_by_its_path(capsys):
    frame.run(ROOT, ["in", "show", "x", "--json"])
    assert json.loads(capsys.readouterr().out)["command"] == "in show"


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (DeployError("c", "m", hint="h"), 1),
        (InputError("c", "m", hint="h"), 2),
        (NoFeasiblePlanError("c", "m", hint="h"), 3),
        (ConflictError("c", "m", hint="h"), 4),
        (NotHealthyError("c", "m", hint="h"), 5),
        (LeftBehindError("c", "m", hint="h", data={"ids": ["i-1"]}), 6),
        (InterruptedByUserError("c", "m", hint="h"), 130),
    ],
)
def test_every_error_class_has_its_exit_code(capsys, error, exit_code):
    assert frame.run(raiser(error), ["fail"]) == exit_code
    assert capsys.readouterr() == ("", "error[c]: m\nhint: h\n")
    assert frame.run(raiser(error), ["fail", "--json"]) == exit_code
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["exit_code"]) == ("error", exit_code)
    assert document["data"] == error.data


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), click.Abort(), EOFError()])
def test_interrupted(capsys, interruption):
    assert frame.run(raiser(interruption), ["fail"]) == 130
    assert capsys.readouterr().err.startswith("error[interrupted]: ")


@pytest.mark.parametrize(
    ("argv", "code", "expected", "hint"),
    [
        (["shw"], "unknown_command", "unknown command 'shw'", "did you mean 'show'?"),
        (["in", "shw", "x"], "unknown_command", "unknown command 'shw'", "run 'tgi-deploy in --help'"),
        (["show"], "missing_argument", "missing argument 'WHAT'", "run 'tgi-deploy show --help'"),
        (["show", "x", "y"], "bad_usage", "unexpected extra argument (y)", "run 'tgi-deploy show --help'"),
        (["show", "x", "--targt", "ec2"], "unknown_option", "'--targt'", "did you mean '--target'?"),
        (["show", "x", "--target", "moon"], "bad_option_value", "'moon'", "run 'tgi-deploy show --help'"),
        (["show", "x", "--target"], "bad_usage", "requires an argument", "run 'tgi-deploy show --help'"),
        (["in", "show", "x", "-q"], "unknown_option", "'-q'", "run 'tgi-deploy in show --help'"),
    ],
)
def test_bad_usage(capsys, argv, code, expected, hint):
    assert frame.run(ROOT, argv) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"error[{code}]: ")
    assert expected in lines[0]
    assert hint in lines[1]
    assert frame.run(ROOT, ["--json", *argv]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == code


@pytest.mark.parametrize("argv", [[], ["in"]])
def test_a_group_without_a_command_prints_its_help(capsys, argv):
    assert frame.run(ROOT, argv) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: " + " ".join(["tgi-deploy", *argv]))
    assert err == ""
    assert frame.run(ROOT, [*argv, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "bad_usage"


@pytest.mark.parametrize("name", ["shw", "x" * 70_000, "show\nshow", "\x00", "\x1b[31m", "; rm -rf /"])
def test_an_unknown_command_is_one_line(capsys, name):
    assert frame.run(ROOT, [name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 2
    assert all(len(line) < 800 and line.isprintable() for line in err.splitlines())


def test_a_defect_leaves_a_crash_file_and_one_line(capsys):
    assert frame.run(raiser(RuntimeError("boom\nboom")), ["fail"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    error, hint = err.splitlines()
    assert error == "error[internal_error]: an unexpected error occurred: RuntimeError: boom boom"
    crash_file = Path(hint.split()[-1])
    assert crash_file.parent == Path(os.environ["TGI_DEPLOY_HOME"]) / "crashes"
    assert "Traceback" in crash_file.read_text()
    assert stat.S_IMODE(crash_file.stat().st_mode) == 0o600


def test_a_defect_without_a_place_for_the_crash_file(capsys, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(blocked))
    assert frame.run(raiser(RuntimeError("boom")), ["fail", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["data"] == {"crash_file": None}
    assert document["errors"][0]["hint"] == "please report this defect"


def test_help_has_examples_and_headings(capsys):
    assert frame.run(ROOT, ["show", "--help"]) == 0
    text = capsys.readouterr().out
    for part in ("Show WHAT.", "Places:", "--target", "Output:", "--json", "Examples:\n  tgi-deploy show WHAT\n"):
        assert part in text


def test_state_home_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("TGI_DEPLOY_HOME", "/somewhere")
    assert state_home() == Path("/somewhere")
    monkeypatch.delenv("TGI_DEPLOY_HOME")
    assert state_home() == Path.home() / ".local/state/tgi-deploy"


def test_verbose_prints_calls_without_parameters(capsys, monkeypatch):
    import logging  # noqa: PLC0415 -- one test listens to it

    from tgi_deploy.targets.aws.api import CALLS, read_reply  # noqa: PLC0415 -- the SDK is slow to import

    meta = SimpleNamespace(service_model=SimpleNamespace(service_name="ec2"), region_name="eu-west-1")
    client = SimpleNamespace(meta=meta, describe_vpcs=lambda **_parameters: {})
    monkeypatch.setattr(CALLS, "handlers", [])
    monkeypatch.setattr(CALLS, "level", logging.NOTSET)
    frame._show_calls()
    read_reply(client, "describe_vpcs", {"Secret": "sekret"}, lambda _reply: None)
    expected = capsys.readouterr().err
    assert "ec2 describe_vpcs in eu-west-1" in expected
    assert "sekret" not in expected
    CALLS.setLevel(logging.NOTSET)
