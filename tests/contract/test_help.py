"""Every command has help with examples that parse, and docs/cli.md is current."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path

import click
import pytest

from tgi_deploy.cli.frame import PROGRAM, FrameCommand, run
from tgi_deploy.cli.main import EXAMPLES, HIDDEN, NAMES, ROOT, SECTIONS, WORDS_ELSEWHERE
from tgi_deploy.cli.removed import REMOVED

REPOSITORY = Path(__file__).parents[2]
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


def commands(item=ROOT, path=()):
    """Return all commands except the root, with their names."""
    ctx = click.Context(item, info_name=PROGRAM)
    for name in item.list_commands(ctx):
        member = item.get_command(ctx, name)
        yield (*path, name), member
        if isinstance(member, click.Group):
            yield from commands(member, (*path, name))


def leaves():
    return [(path, item) for path, item in commands() if isinstance(item, FrameCommand)]


def test_the_first_help_page_has_the_everyday_commands():
    first, more = ([entry.name for entry in entries] for entries in SECTIONS.values())
    assert first == ["plan", "up", "status", "ask", "logs", "open", "scale", "rollback", "extend", "down"]
    assert len(first) + len(more) <= 31
    shown = ROOT.get_help(click.Context(ROOT, info_name=PROGRAM, **ROOT.context_settings))
    assert not [name for name in HIDDEN if f"\n  {name} " in shown]


@pytest.mark.parametrize(
    ("line", "today"),
    [
        ("why-not m g5.xlarge --budget 5", "plan m --why-not g5.xlarge --budget 5"),
        ("why-not --budget 5 m --json 'two g6e.xlarge'", "plan --budget 5 m --json --why-not 'two g6e.xlarge'"),
        ("why-not", "plan MODEL --why-not TYPE"),
        ("what-if m --sweep budget=1,2 --csv -", "plan m --sweep budget=1,2 --csv -"),
        ("renew m --ttl 2h", "extend m --ttl 2h"),
        ("init m --budget 5", "profile init m --budget 5"),
        ("catalog compare A10G L4 --region eu-west-1", "catalog list A10G L4 --region eu-west-1"),
    ],
)
def test_a_removed_command_prints_its_replacement(capsys, line, today):
    assert run(ROOT, [*shlex.split(line)]) == 2
    out, err = capsys.readouterr()
    hint = (json.loads(out)["errors"][0]["hint"] if "--json" in line else err.splitlines()[1]).partition("run: ")[2]
    assert hint == f"{PROGRAM} {today}"
    parse_example(hint)


@pytest.mark.parametrize(
    ("line", "today"),
    [
        ("gc --all-regions --yes", "gc --region all --yes"),
        ("plan llama3-8b --plot plan.svg", "plan llama3-8b --report plan.svg"),
        ("diff a b --max-memory-margin-decrease=5%", "diff a b --min-memory-margin-tokens 4096"),
    ],
)
def test_a_removed_option_prints_its_replacement(capsys, line, today):
    assert run(ROOT, shlex.split(line)) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error[unknown_option]")
    assert hint.removeprefix("hint: it was removed: use ").split()[0] in today.split()
    parse_example(f"{PROGRAM} {today}")


@pytest.mark.parametrize("row", REMOVED)
def test_the_usage_of_a_replacement_parses(row):
    parse_example(f"{PROGRAM} {row.usage}")


def test_every_command_has_a_summary():
    for path, item in commands():
        assert item.help, path
        assert item.help.strip().splitlines()[0].endswith((".", ",")) or len(item.help) > 20, path


def test_headings_come_in_the_same_order_on_every_page():
    pages = []
    for path, item in leaves():
        ctx = click.Context(item, info_name=path[-1], **item.context_settings)
        pages.append(re.findall(r"^([A-Z][a-z ]+):$", item.get_help(ctx), re.MULTILINE))
    order = max(pages, key=len)
    assert len(order) > 5
    for page in pages:
        assert page == sorted(page, key=order.index)


def test_every_command_accepts_json():
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
def test_first_page_examples_parse(example):
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


@pytest.mark.slow
def test_the_examples_of_plan_have_a_plan(tmp_path, monkeypatch):
    """Except those that need another file or a Docker host."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(json.dumps(CONFIG))
    examples = next(item.examples for path, item in leaves() if path == ("plan",))
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])[1:]
        if not {"--own", "--locked", "docker"} & {*words}:
            assert run(ROOT, words) == 0, example


def test_an_example_with_an_invalid_option_is_detected():
    with pytest.raises(click.NoSuchOption):
        parse_example("tgi-deploy plan llama3-13b --bugdet 5")


def test_help_lines_fit():
    ctx = click.Context(ROOT, info_name=PROGRAM, terminal_width=100, **ROOT.context_settings)
    assert max(map(len, ROOT.get_help(ctx).splitlines())) <= 100
    for path, item in commands():
        ctx = click.Context(item, info_name=" ".join(path), terminal_width=100, **item.context_settings)
        text = item.get_help(ctx)
        assert max(map(len, text.splitlines())) <= 100, path


def test_docs_are_current(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "scripts")
    script = importlib.import_module("update_cli_docs")
    text = script.document()
    assert script.TARGET.read_text() == text, "run scripts/update_cli_docs.py"
    assert script.SCHEMA.read_text() == script.schema_text(), "run scripts/update_cli_docs.py"
    for path, _ in commands():
        assert f"`{PROGRAM} {' '.join(path)}`" in text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ps", "list"), ("watch", "status"), ("kill", "down"), ("DELETE", "down"), ("deploy", "up"), ("update", "up"),
        ("ssh", "exec"), ("chat", "ask"), ("bench", "smoke"), ("help", "--help"), ("version", "--version"),
    ],
)  # fmt: skip
def test_a_command_of_another_tool_suggests_ours(capsys, word, expected):
    assert run(ROOT, [word, "x"]) == 2
    assert f"did you mean '{expected}'?" in capsys.readouterr().err


def test_suggested_commands_exist_and_aliases_do_not():
    assert set(WORDS_ELSEWHERE.values()) <= {*NAMES, "--help", "--version"}
    assert not set(WORDS_ELSEWHERE) & set(NAMES)
