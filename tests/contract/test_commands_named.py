"""Every command line of this program in a message, page, template or document parses, and can be completed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from builders.sources import nodes

from tgi_deploy.cli.frame import PROGRAM
from tgi_deploy.cli.main import NAMES, ROOT

REPOSITORY = Path(__file__).parents[2]
PLACES = (
    "tgi_deploy/**/*.py",
    "profiles/diagnosis/*.json",
    "profiles/engines/*/alerts.json",
    "templates/**/*.j2",
    "docs/**/*.md",
    "docs/**/*.yml",
    "README.md",
)
# On a separate line or in quotes: in prose the program's name may precede any word.
LINE = re.compile(
    rf"(?:^\s*(?:\$ )?|['\"`]|\$\(|run: |[|;&] |- |Command: |More: ){PROGRAM} ([^'\"`\n|;)]+)", re.MULTILINE
)
# A command with arguments but without the program's name, and a name that nothing fills in (values/pasted.py).
BARE = re.compile(rf"'(?:{'|'.join(NAMES)}) [^'\n]+'")
UNNAMED = re.compile(rf"{PROGRAM} [a-z]+ (?!NAME\b|[^'\n]*--kube-context NAME)[^'\n]*\bNAME\b")
OPTION = re.compile(r"--[a-z][a-z-]*|(?<=\s)-[a-z]\b")


def texts(path, *, helps=True):
    """Yield the texts of a file: of a module its strings, in one piece, with X for values; perhaps without helps."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield source
        return
    found = nodes(source)
    joined = [node for node in found if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in ast.walk(node)}
    if not helps:
        inside |= {id(node.value) for node in found if isinstance(node, ast.Expr)}
        inside |= {id(node.value) for node in found if isinstance(node, ast.keyword) and node.arg == "help"}
    for node in joined:
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
    for node in found:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def found(pattern, *places):
    paths = [path for place in places for path in sorted(REPOSITORY.glob(place))]
    return [
        (path.name, match[0]) for path in paths for text in texts(path, helps=False) for match in pattern.finditer(text)
    ]


def lines():
    for place in PLACES:
        for path in sorted(REPOSITORY.glob(place)):
            for match in LINE.finditer("\n".join(texts(path))):
                yield path.relative_to(REPOSITORY).as_posix(), match[1].split("  #")[0].replace("\\", " ").strip()


def wrong(line: str) -> str | None:
    """Return the error in the arguments after the program's name; None if they parse."""
    item, words = ROOT, line.partition(" -- ")[0].split()
    ctx = click.Context(ROOT, info_name=PROGRAM, **ROOT.context_settings)  # click keeps the help option that it makes
    while isinstance(item, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        if words[0] not in item.list_commands(ctx):
            return f"no command {words[0]}"
        item, words = item.get_command(ctx, words[0]), words[1:]
    known = {option for param in item.get_params(ctx) for option in (*param.opts, *param.secondary_opts)}
    strange = [option for option in OPTION.findall(" " + " ".join(words)) if option not in known]
    return f"{strange} not among the options" if strange else None


def test_every_printed_command_parses():
    found = [(where, line, wrong(line)) for where, line in lines()]
    assert found
    assert [item for item in found if item[2]] == []


@pytest.mark.parametrize("pattern", [BARE, UNNAMED])
def test_every_command_in_a_message_can_be_completed(pattern):
    assert found(pattern, "tgi_deploy/**/*.py", "profiles/diagnosis/*.json", "profiles/*/errors.json") == []


@pytest.mark.parametrize(
    "line", ["catalog regions", "catalog accelerators", "bring-up llama3-8b", "down NAME --forever", "doctor -z"]
)
def test_an_invalid_command_is_detected(line):
    assert wrong(line)


def test_an_incomplete_command_is_detected():
    assert BARE.search("read it with 'logs NAME'")
    assert UNNAMED.search("'tgi-deploy logs --tail 5 NAME'")
    assert not UNNAMED.search("'tgi-deploy extend NAME --ttl TIME'")
