"""Options: every request survives the conversion to texts and back to a command line."""

from __future__ import annotations

import shlex

import pytest

from tgi_deploy.cli import frame, options
from tgi_deploy.cli.down import down_command
from tgi_deploy.cli.output import Result
from tgi_deploy.operations.planning.no_plan import _with_option as with_option
from tgi_deploy.operations.planning.option_texts import OptionTexts, texts_of
from tgi_deploy.values.base import as_dict
from tgi_deploy.values.plan_options import OPTION

EVERYTHING = shlex.split(
    "--budget 5 --max-spend 20 --ttl 2h --idle-timeout 15m --lease 30m"
    " --context 4096 --input-tokens 100 --output-tokens 50 --concurrency 4"
    " --ttft-ms 500 --tpot-ms 50 --min-tokens-per-s 40 --utilization 0.5 --prefer cost --quantize awq --num-shard 2"
    " --rps 2 --traffic a.csv --slo none --confidence 0.9 --quality exact --min-bits 8 --replicas 1..4 --max-machines 2"
    " --instance g5.12xlarge --hardware 2xL4"
    " --region us-east-1 --region eu-west-1 --market any --engine-version 3.3.7 --set a=1 --set b=2 --env C=3"
    " --disk 500 --driver grid --allow-turing --port 9000"
)


@pytest.fixture
def parse(capsys):
    """Parse a command line and return the request."""
    seen = []

    @frame.command("take", examples=())
    @options.request_options
    @options.sandbox_option
    def take(*, model: str, request: dict[str, object], sandbox: bool) -> Result:
        """Take it."""
        seen.append(texts_of(model, request))
        return Result(data={"sandbox": sandbox})

    root = frame.group("root", help_text="", commands=[take])

    def run(*argv):
        assert frame.run(root, ["take", *argv]) == 0, capsys.readouterr().err
        return seen[-1]

    return run


def test_unset_options_are_not_in_the_request(parse):
    assert parse("llama3-13b") == OptionTexts(model="llama3-13b")


def test_every_option_is_passed_as_text(parse):
    texts = parse("llama3-13b", *EVERYTHING)
    assert (texts.budget, texts.ttl, texts.num_shard, texts.port) == ("5", "2h", "2", "9000")
    assert texts.regions == ("us-east-1", "eu-west-1")
    assert texts.set == ("a=1", "b=2")
    assert texts.allow_turing is True
    assert all(as_dict(texts).values()), "an option is missing in EVERYTHING"


def test_options_round_trip_to_the_command_line(parse):
    texts = parse("llama3-13b", *EVERYTHING)
    words = with_option("plan", texts, "").split()
    assert words[:3] == ["tgi-deploy", "plan", "llama3-13b"]
    assert parse(*words[2:]) == texts


@pytest.mark.parametrize(
    ("given", "option", "command"),
    [
        (["--budget", "1"], "--budget 2.50", "tgi-deploy plan m --budget 2.50"),
        (["--budget", "1"], "--context 4096", "tgi-deploy plan m --budget 1 --context 4096"),
        (["--region", "a", "--region", "b"], "--region c --market spot", "tgi-deploy plan m --region c --market spot"),
        ([], "--allow-turing", "tgi-deploy plan m --allow-turing"),
        (["--set", "x=a b"], "--budget 2", "tgi-deploy plan m --set 'x=a b' --budget 2"),
    ],
)
def test_a_hint_replaces_the_option_it_changes(parse, given, option, command):
    assert with_option("plan", parse("m", *given), option) == command


def test_a_name_with_shell_characters_is_quoted(parse):
    assert with_option("plan", parse("a;rm -rf ~"), "--budget 2") == "tgi-deploy plan 'a;rm -rf ~' --budget 2"


def test_the_sandbox_can_come_from_the_environment(capsys, monkeypatch):
    @frame.command("take", examples=())
    @options.sandbox_option
    def take(*, sandbox: bool) -> Result:
        """Take it."""
        return Result(text=str(sandbox))

    root = frame.group("root", help_text="", commands=[take])
    monkeypatch.setenv("TGI_DEPLOY_SANDBOX", "1")
    frame.run(root, ["take"])
    assert capsys.readouterr().out == "True\n"


def test_every_text_has_its_option():
    assert {"model", *OPTION} == set(OptionTexts.__struct_fields__)


def test_down_takes_several_names():
    with down_command.make_context("down", ["chat", "code", "--yes"]) as ctx:
        assert ctx.params["names"] == ("chat", "code")
