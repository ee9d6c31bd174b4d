"""The cost gate: figures compared exactly, limits met to the cent, unknown figures never better."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from decimal import Decimal

import pytest
from fakes.computer import plan

from tgi_deploy.cli.diff import diff_text
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare_plans import Limits, compare, percent
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.values.base import replaced


def document(usd=1.0, per_million=2.0, margin=1000, **chosen):
    usual = plan_document(plan())
    return replaced(
        usual,
        chosen=replaced(usual.chosen, **chosen),
        cost=replaced(usual.cost, usd_per_hour=Decimal(str(usd))),
        performance=replaced(
            usual.performance,
            usd_per_million_output_tokens=None if per_million is None else Decimal(str(per_million)),
        ),
        memory=replaced(usual.memory, kv_capacity_tokens=8192 + margin, required_kv_tokens=8192),
    )


def passed(old, new, **limits):
    checks = compare(old, new, Limits(**limits)).checks
    assert len(checks) == 1
    return checks[0].passed


COST = "max_cost_increase_percent"
TOKENS = "max_token_cost_increase_percent"
LEAST = "min_memory_margin_tokens"


@pytest.mark.parametrize(
    ("old", "new", "limit", "value", "good"),
    [
        ({"usd": 1.0}, {"usd": 1.1}, COST, Decimal(10), True),
        ({"usd": 1.0}, {"usd": 1.1001}, COST, Decimal(10), False),
        ({"usd": 1.1}, {"usd": 1.21}, COST, Decimal(10), True),
        ({"usd": 1.0}, {"usd": 1.0}, COST, Decimal(0), True),
        ({"usd": 1.0}, {"usd": 1.0001}, COST, Decimal(0), False),
        ({"usd": 2.0}, {"usd": 0.5}, COST, Decimal(0), True),
        ({"usd": 0}, {"usd": 0.5}, COST, Decimal(1000), False),
        ({"usd": 0}, {"usd": 0}, COST, Decimal(0), True),
        ({"per_million": 2.0}, {"per_million": 2.5}, TOKENS, Decimal(25), True),
        ({"per_million": 2.0}, {"per_million": 2.5}, TOKENS, Decimal("24.9"), False),
        ({"per_million": None}, {"per_million": None}, TOKENS, Decimal(0), True),
        ({"per_million": 2.0}, {"per_million": None}, TOKENS, Decimal(100), False),
        ({"per_million": None}, {"per_million": 2.0}, TOKENS, Decimal(100), False),
        ({"margin": 5}, {"margin": 100}, LEAST, 100, True),
        ({"margin": 500}, {"margin": 99}, LEAST, 100, False),
    ],
)
def test_a_limit_is_compared_with_the_change(old, new, limit, value, good):
    assert passed(document(**old), document(**new), **{limit: value}) is good


def test_without_limits_nothing_is_checked():
    assert compare(document(), document(usd=100.0), Limits()).checks == ()


def test_figures_and_changes():
    found = compare(document(), document(usd=1.5, num_shard=4), Limits())
    assert [(item.name, item.change_percent) for item in found.metrics] == [
        ("usd_per_hour", 50), ("usd_per_million_output_tokens", 0), ("memory_margin_tokens", 0),
    ]  # fmt: skip
    assert [(item.field, item.old, item.new) for item in found.changes] == [("chosen.num_shard", 1, 4)]


def test_figures_of_a_row_have_the_same_decimals():
    rows = diff_text(compare(document(usd=1.8768), document(usd=2), Limits())).splitlines()
    assert next(line for line in rows if line.startswith("US dollars an hour")).split()[4:6] == ["1.8768", "2.0000"]


def test_a_change_from_nothing_has_no_percentage():
    assert compare(document(usd=0), document(usd=1.5), Limits()).metrics[0].change_percent is None


@pytest.mark.parametrize(
    ("text", "value"), [("10%", "10"), ("10", "10"), (" 7.5 % ", "7.5"), ("0%", "0"), ("100000%", "100000")]
)
def test_percentages(text, value):
    assert percent(text, "--x") == Decimal(value)


@pytest.mark.parametrize("text", ["", "%", "-5%", "1e3", "ten", "5%%", "1.", "nan", "٣%"])
def test_invalid_percentages(text):
    with pytest.raises(InputError) as raised:
        percent(text, "--max-cost-increase")
    assert raised.value.code == "bad_option_value"
    assert "--max-cost-increase" in raised.value.message


@pytest.fixture
def dearer(edited):
    edited("old.lock")
    edited("new.lock", cost={"usd_per_hour": 1.361}, engine={"image": "new:1"}, memory={"kv_capacity_tokens": 10240})
    return "old.lock", "new.lock"


def test_a_passed_gate_exits_0(tool, dearer):
    exit_code, out, err = tool("diff", *dearer, "--max-cost-increase", "50%")
    assert (exit_code, err) == (0, "")
    assert "ok   max-cost-increase" in out
    assert "engine.image" in out


def test_a_failed_gate_exits_3_and_reports_the_difference(tool, dearer):
    exit_code, out, err = tool("diff", *dearer, "--max-cost-increase", "10%", "--min-memory-margin-tokens", "1")
    assert exit_code == 3
    assert [line.split(":")[0] for line in err.splitlines()] == ["error[cost_gate]", "hint"] * 2
    assert "$1.0218 → $1.361 (+33.2%)" in err
    assert out.count("FAIL") == 2


def test_the_json_of_a_gate(tool, dearer):
    exit_code, out, err = tool("diff", *dearer, "--max-cost-increase", "10", "--json")
    found = json.loads(out)
    assert (exit_code, err, found["status"], found["exit_code"]) == (3, "", "error", 3)
    assert found["errors"][0]["code"] == "cost_gate"
    data = found["data"]["diff"]
    assert data.keys() == {"promises", "metrics", "changes", "checks", "old_prices", "new_prices"}
    assert data["metrics"][0]["old"] == 1.0218
    assert [check["passed"] for check in data["checks"]] == [False]


def test_the_same_plan_passes_every_gate(tool, locked):
    limits = ("--max-cost-increase", "0", "--max-token-cost-increase", "0", "--min-memory-margin-tokens", "0")
    exit_code, out, _ = tool("diff", locked[0].name, locked[0].name, *limits)
    assert exit_code == 0
    assert "What is run" not in out


def test_junit(tool, dearer, tmp_path):
    limits = ("--max-cost-increase", "10%", "--max-token-cost-increase", "10%")
    assert tool("diff", *dearer, *limits, "--junit", "gate.xml")[0] == 3
    suite = ET.fromstring((tmp_path / "gate.xml").read_text())  # noqa: S314 -- written just now
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = {case.get("name"): [failure.get("message") for failure in case] for case in suite}
    assert list(cases) == ["max-cost-increase", "max-token-cost-increase"]
    assert "+33.2%" in cases["max-cost-increase"][0]
    assert cases["max-token-cost-increase"] == []


def test_junit_survives_hostile_names(tool, dearer, tmp_path):
    hostile = 'a"<&\x07.lock'
    (tmp_path / "new.lock").rename(tmp_path / hostile)
    assert tool("diff", "old.lock", hostile, "--max-cost-increase", "10%", "--junit", "gate.xml")[0] == 3
    suite = ET.fromstring((tmp_path / "gate.xml").read_text())  # noqa: S314 -- written just now
    assert suite.get("name") == 'tgi-deploy diff old.lock a"<&\\x07.lock'


def test_annotations(tool, dearer):
    _, out, _ = tool("diff", *dearer, "--max-cost-increase", "10%", "--github")
    place = "file=new.lock,title=cost_gate%3A max-cost-increase"
    says = "the price per hour: $1.0218 → $1.361 (+33.2%25), at most +10%25 allowed"
    assert [line for line in out.splitlines() if line.startswith("::")] == [f"::error {place}::{says}"]


def test_each_annotation_is_a_separate_line(tool, dearer, tmp_path):
    (tmp_path / "new.lock").rename(tmp_path / "a\n::error::b,c:d.lock")
    _, out, _ = tool("diff", "old.lock", "a\n::error::b,c:d.lock", "--max-cost-increase", "10%", "--github")
    lines = [line for line in out.splitlines() if line.startswith("::")]
    assert len(lines) == 1
    assert "file=a%0A%3A%3Aerror%3A%3Ab%2Cc%3Ad.lock," in lines[0]


def test_annotations_and_json_exclude_each_other(tool, dearer):
    exit_code, out, _ = tool("diff", *dearer, "--github", "--json")
    assert exit_code == 2
    assert json.loads(out)["errors"][0]["code"] == "conflicting_options"


def test_a_printed_plan_and_a_lock_can_be_compared(tool, locked, tmp_path):
    (tmp_path / "plan.json").write_text(tool("plan", "llama3-13b", "--budget", "1", "--json")[1])
    exit_code, out, _ = tool("diff", locked[0].name, "plan.json", "--max-cost-increase", "0", "--json")
    assert exit_code == 0
    fields = {change["field"] for change in json.loads(out)["data"]["diff"]["changes"]}
    assert fields >= {"chosen.instance_type", "chosen.accelerator"}


def test_a_changed_request_is_listed_first_with_a_warning(tool, locked):
    assert tool("plan", "llama3-13b", "--budget", "5", "--concurrency", "16", "--lock", "busy.lock")[0] == 0
    exit_code, out, err = tool("diff", "plan.lock", "busy.lock", "--max-token-cost-increase", "10")
    assert exit_code == 0
    assert out.startswith("Request")
    assert "concurrency: 8 → 16" in out.partition("FIGURE")[0]
    assert "warning[request_changed]" in err


def test_plans_for_the_same_request_have_no_warning(tool, locked):
    exit_code, out, err = tool("diff", "plan.lock", "plan.lock", "--max-cost-increase", "0")
    assert (exit_code, err) == (0, "")
    assert "Request" not in out


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({"price_date": "2026-07-20"}, {"price_date": "2026-07-20"}, "prices listed 2026-07-20"),
        (
            {"price_date": "2026-07-20"},
            {"price_date": "2025-06-28", "estimated": True},
            "prices listed 2026-07-20 (old) and estimated 2025-06-28 (new)",
        ),
        ({"price_date": ""}, {"price_date": ""}, "no prices"),
    ],
)
def test_compared_prices_have_their_dates(old, new, line):
    found = compare(document(**old), document(usd=2, **new), Limits())
    assert line in diff_text(found).splitlines()
