"""The page as text: self-contained, small, escaped, reproducible."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from builders.hostile import HOSTILE
from builders.samples import quick

from tgi_deploy.operations.report.report import Choice, Command, Report, report_html

NAMES = ["plan", "everywhere", "no-plan", "owned"]
LOADING = {"src", "srcset", "action", "data", "poster", "background", "formaction", "ping", "xlink:href"}


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@cache
def elements(page: str) -> Elements:
    return Elements(page)


@pytest.fixture(scope="module", params=quick(NAMES, 2))
def page(request, reports) -> str:
    return report_html(reports[request.param])


def test_the_report_is_small(page):
    assert len(page.encode()) < 500_000


def test_the_report_loads_nothing(page):
    for tag, attributes in elements(page).tags:
        assert not LOADING & set(attributes), tag
        assert attributes.get("href", "data:,").startswith(("data:,", "#")), tag
    assert not re.search(r"url\(|@import|https?://(?!github\.com|www\.w3\.org)[^\s]*\.(js|css|woff)", page)


def test_the_content_security_policy_has_the_hash_of_the_script(page):
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    (policy,) = [item["content"] for item in elements(page).all("meta") if "http-equiv" in item]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_ids_are_unique_and_every_reference_resolves(page):
    tags = elements(page).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    pointed = [
        attributes[name] for _, attributes in tags for name in ("data-row", "data-copy", "for") if name in attributes
    ]
    assert pointed
    assert set(pointed) <= set(ids)


def test_each_chart_has_one_stop_for_the_tab_key(reports):
    charts = re.findall(r'<svg class="chart.*?</svg>', report_html(reports["plan"]), re.DOTALL)
    assert charts
    for part in charts:
        assert part.count('tabindex="0"') == 1
        assert part.count('data-row="') == part.count('role="img"') > 100


def test_the_report_is_reproducible(reports):
    assert report_html(reports["plan"]) == report_html(reports["plan"])


def test_the_report_shows_the_key_facts(reports):
    text = " ".join(Elements(report_html(reports["plan"])).texts)
    for expected in (
        "g5.xlarge", "20% of the budget", "KV cache, needed", "arch_flash_attention", "memory_weights",
        "Meta never released a 13B Llama 3", "docker run", "warm up", "root volume", "When there is no capacity",
    ):  # fmt: skip
        assert expected in text, expected


def test_without_a_plan_the_report_shows_near_misses(reports):
    text = " ".join(Elements(report_html(reports["no-plan"])).texts)
    assert "No machine serves llama3-70b" in text
    assert "The smallest changes that would work" in text
    assert "How to run it" not in text


def named(base: Report, word: str) -> Elements:
    """Return a page on which every name is this one."""
    choice = Choice(text=word, usd_per_hour=1.0, tokens_per_s=1.0, reason=word, option=word)
    page = report_html(
        replace(
            base, title=word, sentence=word, load=word, version=word, catalog_date=word,
            notices=(word,), assumptions=(word,), fallbacks=(choice,), near_misses=(choice,),
            commands=(Command(title=word, file_name=word, text=word),),
            variants=tuple(replace(variant, where=word, weights=word) for variant in base.variants[:3]),
            rejections=tuple(replace(item, message=word, code=word) for item in base.rejections[:3]),
        )
    )  # fmt: skip
    return Elements(page)


@pytest.fixture(scope="module")
def harmless(reports) -> Elements:
    return named(reports["plan"], "x")


@pytest.mark.parametrize(
    "hostile", [*quick(HOSTILE, 8), "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>']
)
def test_names_are_escaped(hostile, reports, harmless):
    found = named(reports["plan"], hostile)
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in harmless.tags]
    assert [set(attributes) for _, attributes in found.tags] == [set(attributes) for _, attributes in harmless.tags]
