"""Every command line of this program in a message, page, template or document parses."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tgi_deploy.cli.frame import PROGRAM
from tgi_deploy.cli.main import ROOT

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
OPTION = re.compile(r"--[a-z][a-z-]*|(?<=\s)-[a-z]\b")


def lines():
    for place in PLACES:
        for path in sorted(REPOSITORY.glob(place)):
            for match in LINE.finditer(path.read_text(encoding="utf-8")):
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


@pytest.mark.parametrize(
    "line", ["catalog regions", "catalog accelerators", "bring-up llama3-8b", "down NAME --forever", "doctor -z"]
)
def test_an_invalid_command_is_detected(line):
    assert wrong(line)
