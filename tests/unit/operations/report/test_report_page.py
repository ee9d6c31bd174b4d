"""The page as text: complete in itself, small, escaped, the same every time."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from builders.hostile import HOSTILE

from tgi_deploy.operations.report.report import Choice, Command, report_html

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


@pytest.fixture(scope="module", params=NAMES)
def page(request, reports) -> str:
    return report_html(reports[request.param])


def test_it_is_small(page):
    assert len(page.encode()) < 500_000


def test_it_loads_nothing(page):
    for tag, attributes in Elements(page).tags:
        assert not LOADING & set(attributes), tag
        assert attributes.get("href", "data:,").startswith(("data:,", "#")), tag
    assert not re.search(r"url\(|@import|https?://(?!github\.com|www\.w3\.org)[^\s]*\.(js|css|woff)", page)


def test_its_policy_names_the_hash_of_its_one_script(page):
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    (policy,) = [item["content"] for item in Elements(page).all("meta") if "http-equiv" in item]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_ids_are_unique_and_every_reference_has_one(page):
    tags = Elements(page).tags
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


def test_it_is_the_same_every_time(reports):
    assert report_html(reports["plan"]) == report_html(reports["plan"])


def test_it_says_what_matters(reports):
    text = " ".join(Elements(report_html(reports["plan"])).texts)
    for expected in (
        "g5.xlarge", "20 % of the budget", "KV cache, promised", "arch_flash_attention", "memory_weights",
        "Meta never released a 13B Llama 3", "docker run", "warm up", "root volume", "When there is no capacity",
    ):  # fmt: skip
        assert expected in text, expected


def test_without_a_plan_it_says_the_way_out(reports):
    text = " ".join(Elements(report_html(reports["no-plan"])).texts)
    assert "No machine serves llama3-70b" in text
    assert "The smallest changes that would do" in text
    assert "To run it" not in text


@pytest.mark.parametrize("hostile", [*HOSTILE, "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>'])
def test_nothing_that_is_named_becomes_markup(hostile, reports):
    base = reports["plan"]
    choice = Choice(text=hostile, usd_per_hour=1.0, tokens_per_s=1.0, reason=hostile, option=hostile)
    page = report_html(
        replace(
            base, title=hostile, sentence=hostile, load=hostile, version=hostile, catalogue_date=hostile,
            notices=(hostile,), assumptions=(hostile,), fallbacks=(choice,), near_misses=(choice,),
            commands=(Command(title=hostile, file_name=hostile, text=hostile),),
            ways=tuple(replace(way, where=hostile, weights=hostile) for way in base.ways[:3]),
            refusals=tuple(replace(item, message=hostile, code=hostile) for item in base.refusals[:3]),
        )
    )  # fmt: skip
    clean = report_html(
        replace(
            base, title="x", sentence="x", load="x", version="x", catalogue_date="x", notices=("x",),
            assumptions=("x",), fallbacks=(replace(choice, text="x", reason="x", option="x"),),
            near_misses=(replace(choice, text="x", reason="x", option="x"),),
            commands=(Command(title="x", file_name="x", text="x"),),
            ways=tuple(replace(way, where="x", weights="x") for way in base.ways[:3]),
            refusals=tuple(replace(item, message="x", code="x") for item in base.refusals[:3]),
        )
    )  # fmt: skip
    assert [tag for tag, _ in Elements(page).tags] == [tag for tag, _ in Elements(clean).tags]
    assert [set(attributes) for _, attributes in Elements(page).tags] == [
        set(attributes) for _, attributes in Elements(clean).tags
    ]
