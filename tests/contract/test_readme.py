"""The README shows what the program prints, and links to what exists."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, ROOT / "docs" / "tour.md")


@pytest.mark.slow
def test_the_plans_it_shows_are_what_is_printed():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "update_readme.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_recording_is_of_a_run_that_ended_with_nothing_left():
    shown = html.unescape((ROOT / "docs" / "recording.svg").read_text(encoding="utf-8")).replace("\xa0", " ")
    for words in ("tgi-deploy up llama3-13b", "is ready at http", "tokens/s", "nothing is left of it"):
        assert words in shown
