"""Write docs/runbooks/, one page per diagnosis code, from profiles/diagnosis. With `--check`: exit 1 if out of date.

The example on a page is the evidence that the diagnosis finds in the first case of that code.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import diagnosis_accuracy as accuracy

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.diagnosis.patterns import Remedy
from tgi_deploy.diagnosis.reader import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.diagnosis.patterns import Page

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "runbooks"
_NOTE: Final = (
    "Written by `scripts/update_runbooks.py` from `profiles/diagnosis/`; a test fails when it is out of date."
)


def pages() -> dict[str, str]:
    """Return every file of the folder: its name and its text."""
    grammar = grammar_from(read_phases("tgi"))
    examples = _examples(grammar)
    files = {f"{code}.md": _page(page, grammar, examples.get(code, "")) for code, page in grammar.pages.items()}
    return {"README.md": _index(grammar.pages), **files}


def _examples(grammar: LogGrammar) -> dict[str, str]:
    """Return an example line by code."""
    found: dict[str, str] = {}
    for case in accuracy.cases():
        if case.codes and case.codes[0] not in found:
            findings = read(case.log, grammar).findings
            found |= {item.code: item.evidence for item in findings[:1] if item.code == case.codes[0]}
    return found


def _index(every: Mapping[str, Page]) -> str:
    rows = [f"| [{page.code}]({page.code}.md) | {page.phase} | {page.title} |" for page in every.values()]
    head = [
        "# Runbooks",
        "",
        "One page for each code that `tgi-deploy diagnose` can name. `tgi-deploy explain CODE` prints a short form.",
        _NOTE,
        "",
        "| code | phase | problem |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _page(page: Page, grammar: LogGrammar, example: str) -> str:
    parts = [
        f"# {page.code}: {page.title}",
        f"Phase: {page.phase}. Engine versions: {page.versions}. Sources: {', '.join(page.sources)}.",
        _symptom(example),
        f"## Cause\n\n{page.cause}{_other_causes(page.code, grammar)}",
        f"## Check\n\n{_commands(page.check)}",
        f"## Remedy\n\n{_plain(page.remedy.text)}\n\n{_commands(page.remedy.general)}",
        f"## What it costs\n\n{page.costs}",
        f"## How to prevent it\n\n{page.prevent}",
    ]
    return "\n\n".join(parts) + "\n"


def _symptom(example: str) -> str:
    return f"## Symptom\n\nA line like this:\n\n```\n{example}\n```"


def _other_causes(code: str, grammar: LogGrammar) -> str:
    reported = [
        f"\n\nThe same line can mean [{other.code}]({other.code}.md): {other.distinguish_by}."
        for pattern in grammar.patterns
        if pattern.code == code
        for other in pattern.other_causes
    ]
    return "".join(dict.fromkeys(reported))


def _commands(lines: Sequence[str]) -> str:
    return "```\n" + "\n".join(_plain(line) for line in lines) + "\n```"


def _plain(text: str) -> str:
    return Remedy(text=text).filled({})[0]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is out of date")
    options = parser.parse_args(argv)
    wanted = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.md")}
    if options.check:
        stale = sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))
        print("\n".join(f"out of date: {name}" for name in stale) or "runbooks are up to date")
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in there.keys() - wanted.keys():
        (TARGET / name).unlink()
    for name, text in wanted.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"{len(wanted)} pages in {TARGET.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
