"""Every command explains itself, with examples that parse, and stands in docs/cli.md as it is."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

import click
import pytest

from tgi_deploy.cli.frame import PROGRAM, FrameCommand, run
from tgi_deploy.cli.main import EXAMPLES, ROOT, SECTIONS, WORDS_ELSEWHERE

REPOSITORY = Path(__file__).parents[2]
NAMES = [entry.name for _, entries in SECTIONS for entry in entries]


def commands(item=ROOT, path=()):
    """All commands but the root, with their words."""
    ctx = click.Context(item, info_name=PROGRAM)
    for name in item.list_commands(ctx):
        member = item.get_command(ctx, name)
        yield (*path, name), member
        if isinstance(member, click.Group):
            yield from commands(member, (*path, name))


def leaves():
    return [(path, item) for path, item in commands() if isinstance(item, FrameCommand)]


def test_every_command_of_the_contract_is_there():
    wanted = {"plan", "render", "up", "down", "status", "list", "logs", "open", "catalog", "profile", "sandbox"}
    wanted |= {"completion", "predict", "why-not", "what-if", "diff", "gc"}
    wanted |= {"diagnose", "explain", "doctor", "extend", "rehearse", "smoke", "runbook", "rollback", "ask"}
    wanted |= {"stop", "start", "restart"}
    assert wanted == set(NAMES)


def test_every_command_says_what_it_does():
    for path, item in commands():
        assert item.help, path
        assert item.help.strip().splitlines()[0].endswith((".", ",")) or len(item.help) > 20, path


def test_every_command_takes_json():
    for path, item in leaves():
        assert any("--json" in param.opts for param in item.params), path


def test_every_option_has_help():
    for path, item in leaves():
        for param in item.params:
            assert not isinstance(param, click.Option) or param.help, (path, param.name)


def test_every_command_has_examples_that_parse():
    for path, item in leaves():
        assert item.examples, path
        for example in item.examples:
            parse_example(example, path)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_front_page_parse(example):
    parse_example(example)


def parse_example(example, path=None):
    """Parse the tgi-deploy part of a shell line as click would; values are not looked at."""
    line = example.removeprefix('eval "$(').removesuffix(')"')
    words = shlex.split(line.partition(" > ")[0].partition(" | ")[0])
    assert words[0] == PROGRAM, example
    item, args = ROOT, words[1:]
    ctx = click.Context(ROOT, info_name=PROGRAM)
    taken = []
    while isinstance(item, click.Group):
        taken.append(args[0])
        item, args = item.get_command(ctx, args[0]), args[1:]
    assert path is None or tuple(taken) == path, example
    item.make_context(taken[-1], list(args), resilient_parsing=False)


def test_an_example_with_a_wrong_option_would_be_found():
    with pytest.raises(click.NoSuchOption):
        parse_example("tgi-deploy plan llama3-13b --bugdet 5")


def test_help_lines_fit():
    ctx = click.Context(ROOT, info_name=PROGRAM, terminal_width=100, **ROOT.context_settings)
    assert max(map(len, ROOT.get_help(ctx).splitlines())) <= 100
    for path, item in commands():
        ctx = click.Context(item, info_name=" ".join(path), terminal_width=100, **item.context_settings)
        text = item.get_help(ctx)
        assert max(map(len, text.splitlines())) <= 100, path


def test_docs_are_current():
    location = REPOSITORY / "scripts" / "update_cli_docs.py"
    spec = importlib.util.spec_from_file_location("update_cli_docs", location)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.document()
    assert script.TARGET.read_text() == text, "run scripts/update_cli_docs.py"
    for path, _ in commands():
        assert f"`{PROGRAM} {' '.join(path)}`" in text


@pytest.mark.parametrize(("word", "meant"), [("ps", "list"), ("kill", "down"), ("DELETE", "down"), ("deploy", "up")])
def test_a_word_of_other_tools_is_answered_with_ours(capsys, word, meant):
    assert run(ROOT, [word, "x"]) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_words_of_other_tools_lead_to_commands_and_are_none():
    assert set(WORDS_ELSEWHERE.values()) <= set(NAMES)
    assert not set(WORDS_ELSEWHERE) & set(NAMES)
