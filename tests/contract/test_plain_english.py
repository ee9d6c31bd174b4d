"""Calques that have been removed stay out: each has a plain word that an American engineer would use."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# Recorded logs and figures are data; the changelog quotes old names.
PLACES = ["tgi_deploy", "templates", "scripts", "docs", "profiles/diagnosis", "tests", "README.md"]
DATA = ("tests/cases/", "tests/contract/test_plain_english.py", "tgi_deploy/state/first_schema.py")
REPLACEMENTS = {
    r"(?:is|are) told": "is reported, gets",
    r"anew": "again",
    r"artefacts?": "artifact",
    r"as wished": "with these options",
    r"befall": "happen to, hit",
    r"born": "created",
    r"catalogues?": "catalog",
    r"comes? to light": "becomes visible, turns up",
    r"doom\w*": "scheduled end",
    r"fates?": "outcome",
    r"goes on (?:with it|from there)": "resumes it, continues",
    r"gravest": "most severe",
    r"hears?|heard": "receive",
    r"in vain": "without success",
    r"(?<!there )is no (?:address|duration|folder|lock|model|percentage|resource|whole number)": "is not a",
    r"lead back to": "keep",
    r"licences?": "license",
    r"likewise": "also, as above",
    r"looks for (?:the|its) cause": "finds the cause",
    r"meant\b(?! for)": "intended",
    r"mend(?:s|ed|ing)?": "fix",
    r"looks? whether": "check whether",
    r"nobody owns": "orphaned",
    r"stand[-_]ins?": "fake, stub server",
    r"taken back": "reclaimed, withdrawn",
    r"tells? of": "reports, has",
    r"the like": "and so on",
    r"utilisation": "utilization",
}


@cache
def texts():
    command = ["git", "ls-files", *PLACES]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    names = (name for name in listed.stdout.splitlines() if not name.startswith(DATA))
    written = (name for name in names if name.endswith((".py", ".md", ".json", ".toml", ".j2", ".sh")))
    return tuple((name, (REPOSITORY / name).read_text(encoding="utf-8")) for name in written)


def test_removed_calques_stay_out():
    words = re.compile(rf"\b(?:{'|'.join(REPLACEMENTS)})\b", re.IGNORECASE)
    found = [
        f"{name}:{number}: {line.strip()[:100]} (instead of '{word[0]}', {plain_word(word[0])!r})"
        for name, text in texts()
        if words.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if (word := words.search(line))
    ]
    assert not found, "\n".join(found)


def plain_word(found):
    return next(word for pattern, word in REPLACEMENTS.items() if re.fullmatch(pattern, found, re.IGNORECASE))
