"""Options: every wish arrives as the text it was, and goes back into a command line the same."""

from __future__ import annotations

import shlex
from dataclasses import fields

import click
import pytest

from tgi_deploy.cli import frame, options
from tgi_deploy.cli.options import with_option
from tgi_deploy.cli.output import Result
from tgi_deploy.operations.planning.wish import Wish

EVERYTHING = shlex.split(
    "--budget 5 --max-spend 20 --ttl 2h --idle-timeout 15m --lease 30m"
    " --context 4096 --input-tokens 100 --output-tokens 50 --concurrency 4"
    " --ttft-ms 500 --tpot-ms 50 --min-tokens-per-s 40 --utilisation 0.5 --prefer cost --quantize awq --num-shard 2"
    " --rps 2 --traffic a.csv --slo none --confidence 0.9 --quality exact --min-bits 8 --replicas 1..4 --max-machines 2"
    " --instance g5.12xlarge --hardware 2xL4"
    " --region us-east-1 --region eu-west-1 --market any --engine-version 3.3.7 --set a=1 --set b=2 --env C=3"
    " --disk 500 --allow-turing --port 9000"
)


@pytest.fixture
def parse(capsys):
    """Parse a command line; the wish that the command gets."""
    seen = []

    @frame.command("take", examples=())
    @options.wish_options
    @options.sandbox_option
    def take(*, wish: Wish, sandbox: bool) -> Result:
        """Take it."""
        seen.append(wish)
        return Result(data={"sandbox": sandbox})

    root = frame.group("root", help_text="", commands=[take])

    def run(*argv):
        assert frame.run(root, ["take", *argv]) == 0, capsys.readouterr().err
        return seen[-1]

    return run


def test_nothing_given_is_nothing_wished(parse):
    assert parse("llama3-13b") == Wish(model="llama3-13b")


def test_every_wish_arrives_as_text(parse):
    wish = parse("llama3-13b", *EVERYTHING)
    assert (wish.budget, wish.ttl, wish.num_shard, wish.port) == ("5", "2h", "2", "9000")
    assert wish.regions == ("us-east-1", "eu-west-1")
    assert wish.set == ("a=1", "b=2")
    assert wish.allow_turing is True
    assert all(getattr(wish, item.name) for item in fields(wish)), "an option is missing in EVERYTHING"


def test_a_wish_becomes_the_same_command_line_again(parse):
    wish = parse("llama3-13b", *EVERYTHING)
    words = with_option("plan", wish, "").split()
    assert words[:3] == ["tgi-deploy", "plan", "llama3-13b"]
    assert parse(*words[2:]) == wish


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
def test_a_hint_replaces_what_it_changes(parse, given, option, command):
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


def test_every_wish_has_its_option():
    wished = {wish.field for wish in options._WISHES} | {"model", "allow_turing"}
    assert wished == {item.name for item in fields(Wish)}
    assert all(isinstance(option, click.Option) or callable(option) for option in (options.name_option,))
