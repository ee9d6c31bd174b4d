"""The README's examples match the program's output, and the links of all pages work."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))


def text_of(page):
    """Without code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors_of(page):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.slow
def test_the_shown_plans_match_the_output():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "update_readme.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


def test_links_resolve_and_table_rows_are_complete():
    assert [problem for page in PAGES for problem in problems(page)] == []


def problems(page):
    text = text_of(page)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists() or (anchor and anchor not in anchors_of(found)):
            yield f"{page.name}: {target}"
    yield from (f"{page.name}: {row}" for row in re.findall(r"^\|.*[^|\n]$", text, re.MULTILINE))


def test_problems_of_a_page_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](none.md)\n| x | y |\n| x | y\n")
    assert [*problems(page)] == ["page.md: #two", "page.md: none.md", "page.md: | x | y"]


def test_the_recording_ends_with_nothing_left():
    shown = html.unescape((ROOT / "docs" / "recording.svg").read_text(encoding="utf-8")).replace("\xa0", " ")
    for words in (
        "tgi-deploy up llama3-13b",
        "is ready at http",
        "tokens/s",
        "a final search found nothing left of it",
    ):
        assert words in shown
