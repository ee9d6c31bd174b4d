"""The plan as text: its contents, that it adds up, and that it fits in 100 columns."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

import click
import pytest
from msgspec.structs import replace

from tgi_deploy.cli.views.plan import _bar, details_text, no_plan_text
from tgi_deploy.cli.views.plan_summary import summary_text
from tgi_deploy.operations.planning.documents import no_plan_document, plan_document
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import MemoryBudget


@pytest.fixture(scope="module")
def made(catalog):
    return plan(OptionTexts(model="llama3-13b", budget="5"), catalog, {})


def section(text, title):
    return next(block for block in click.unstyle(text).split("\n\n") if block.startswith(title))


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def summary(plan):
    return click.unstyle(summary_text(plan_document(plan)))


def details(plan):
    return details_text(plan, plan_document(plan))


def test_the_choice_is_printed_first(made):
    first, model, machine, *_ = summary(made).splitlines()
    assert first == "llama3-13b on g5.xlarge for $1.0218/h"
    assert "elinas/Llama-3-13B-Instruct, 13.0B parameters" in model
    assert "1 x A10G, on-demand in us-east-1, fp8 (bfloat16)" in machine


def test_a_plan_prints_about_fifteen_lines(made, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert 10 <= len(summary(made).splitlines()) <= 15


def test_a_listed_price_has_its_date(made):
    assert f"(listed {made.chosen.offer.price_date})" in " ".join(summary(made).split())


def with_price_dates(made, dates):
    """Return the plan with a price date, and whether it is an estimate, for each row of its tables."""

    def offer(item, date, estimated):
        return replaced(item, offer=replaced(item.offer, price_date=date, estimated=estimated))

    return replaced(
        made,
        frontier=tuple(
            replaced(made.frontier[0], price_date=date, estimated=estimated) for date, estimated in dates
        ),
        alternatives=tuple(offer(made.alternatives[0], *given) for given in dates),
    )  # fmt: skip


EACH = "price dates on the right"


@pytest.mark.parametrize("title", ["Frontier", "All alternatives", "Alternatives"])
@pytest.mark.parametrize(
    ("dates", "heading", "rows"),
    [
        ([("2026-07-20", False)] * 2, "listed 2026-07-20", ["", ""]),
        ([("2025-06-28", True)] * 2, "estimated 2025-06-28", ["", ""]),
        ([("2026-07-20", False), ("2026-07-21", False)], EACH, ["2026-07-20", "2026-07-21"]),
        ([("2026-07-20", False), ("2026-07-20", True)], EACH, ["2026-07-20", "2026-07-20"]),
        ([("", False), ("2026-07-20", False)], EACH, ["", "2026-07-20"]),
    ],
)
def test_a_table_has_the_date_of_its_prices_in_the_heading_or_in_each_row(made, title, dates, heading, rows):
    plan = with_price_dates(made, dates)
    first, *lines = section(summary(plan) if title == "Alternatives" else details(plan), title).splitlines()
    assert first.endswith(heading)
    shown = re.sub(r"\n {10,}", "  ", "\n".join(line for line in lines if "AS OF" not in line)).splitlines()
    shown = [line for line in shown if "$" in line]
    assert [found[0] if (found := re.search(r"\d{4}-\d\d-\d\d$", line)) else "" for line in shown] == rows
    assert ["about $" in line for line in shown] == [estimated for _, estimated in dates]


def test_every_price_of_the_json_has_its_date(catalog):
    document = plan_document(plan(OptionTexts(model="llama3-13b", market="any"), catalog, {}))
    for row in (document.chosen, *document.frontier, *document.alternatives, *document.fallbacks):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.price_date)
        assert row.estimated == (row.market == "spot")


def test_a_near_miss_has_the_date_of_its_price(catalog):
    outcome = plan(OptionTexts(model="llama3-13b", budget="0.3"), catalog, {})
    endings = {re.search(r", (about )?\$\S+/h \((listed|estimated) [-\d]{10}\)$", item.message).groups()
               for item in outcome.near_misses}  # fmt: skip
    assert endings == {(None, "listed"), ("about ", "estimated")}
    for shown, item in zip(no_plan_document(outcome)["near_misses"], outcome.near_misses, strict=True):
        assert f"{shown.chosen.price_date})" in shown.message
        assert shown.chosen.estimated == item.candidate.offer.estimated


def test_spot_prices_are_labeled_as_estimates_everywhere(catalog):
    text = summary(plan(OptionTexts(model="llama3-13b", market="spot"), catalog, {}))
    assert re.search(r"\(estimated\s+\d{4}-", text)
    for line in (line for line in text.splitlines() if "/h" in line and "budget" not in line):
        assert "about $" in line


def test_cost_lines_add_up(made):
    *lines, total = [Decimal(found) for found in re.findall(r"\$(\d+\.\d{4})", section(details(made), "Cost"))]
    assert sum(lines) == total
    assert len(lines) == len(made.chosen.cost.lines)


def test_a_month_is_730_hours(made):
    text = section(details(made), "Cost")
    month = re.search(r"a month of 730 hours +\$([\d,.]+)$", text, re.MULTILINE)[1]
    assert Decimal(month.replace(",", "")) == round(made.chosen.cost.usd_per_hour * 730, 2)


def test_predictions_come_with_their_intervals(made):
    speed = made.chosen.performance
    text = section(details(made), "Predicted speed")
    for value, span in (
        (speed.ttft_ms, speed.ttft_ms_span), (speed.output_tokens_per_s, speed.output_tokens_per_s_span)
    ):  # fmt: skip
        assert re.search(rf" {value:,.0f} \S+ \({span.low:,.0f} to {span.high:,.0f}\)", text)
    assert f"{speed.tpot_ms:.1f} ms ({speed.tpot_ms_span.low:.1f} to {speed.tpot_ms_span.high:.1f})" in text
    price = speed.usd_per_million_output_tokens_span
    assert f"(${price.low:.2f} to ${price.high:.2f})" in text
    assert f"${speed.usd_per_million_blended_tokens:.2f}" in text
    bare = replaced(speed, ttft_ms_span=None, tpot_ms_span=None, output_tokens_per_s_span=None,
                   usd_per_million_output_tokens_span=None)  # fmt: skip
    without = replaced(made, chosen=replaced(made.chosen, performance=bare))
    text = section(details(without), "Predicted speed")
    assert "(" not in text
    assert "interval" not in text


def test_alternatives_show_the_best_of_each_gpu_and_class(made):
    _, *lines = section(details(made), "All alternatives").splitlines()
    lines = [line for line in lines if line.split()[0].rstrip(".").isdigit()]
    assert len(lines) == len(made.alternatives)
    for number, (line, item) in enumerate(zip(lines, made.alternatives, strict=True), start=1):
        words = line.split()
        assert words[:2] == [f"{number}.", item.offer.instance_type.name]
        assert f"{item.num_shard} " in line
        assert (item.dtype if item.quantize == "none" else item.quantize) in {word.rstrip("*") for word in words}
        assert f"{item.performance.output_tokens_per_s:.0f} tokens/s" in line
        assert "$" in line
    assert len(set(map(len, lines))) == 1, "columns are aligned"


def test_fallbacks_are_listed(made):
    text = " ".join(details(made).split())
    names = dict.fromkeys(item.offer.instance_type.name for item in made.fallbacks)
    assert f"If there is no capacity: {', '.join(names)}." in text


def test_without_alternatives_there_is_no_list(made):
    alone = replaced(made, fallbacks=(), alternatives=(), frontier=made.frontier[:1])
    text = click.unstyle(details(alone))
    assert not any(title in text for title in ("Alternatives", "Frontier", "no capacity"))


def test_the_frontier_has_at_most_seven_lines(made):
    point = made.frontier[0]
    points = tuple(
        replaced(point, instance_type=f"x.{number}", chosen=number == 5, knee=number == 9) for number in range(20)
    )
    title, _, *lines = section(details(replaced(made, frontier=points)), "Frontier").splitlines()
    assert "13 more" in title
    assert len(lines) == 7
    assert [line.split()[0] for line in lines if "chosen" in line or "knee" in line] == ["x.5", "x.9"]
    assert (lines[0].split()[0], lines[-1].split()[0]) == ("x.0", "x.19")


def test_no_probability_is_printed_as_certain(catalog):
    text = details(plan(OptionTexts(model="llama3-8b", instance="p5.4xlarge"), catalog, {}))
    assert "met: 99%" in text
    assert "100%" not in text


def test_the_longest_names_fit_too(made):
    """With every column at its widest, from the catalog."""
    kind = replace(
        made.chosen.offer.instance_type, name="p4de.24xlarge", accelerator_count=16,
        accelerator=replace(made.chosen.offer.instance_type.accelerator, name="RTX-PRO-6000-SE"),
    )  # fmt: skip
    offer = replaced(made.chosen.offer, instance_type=kind, region="ap-northeast-3", market="spot")
    wide = replaced(made.chosen, offer=offer, num_shard=8, quantize="bitsandbytes-nf4")
    text = section(details(replaced(made, chosen=wide, alternatives=(wide,) * 5)), "All alternatives")
    assert all(len(line) <= 100 for line in text.splitlines()), text


def test_memory_bar_is_to_scale(made):
    bar = re.search(r"\[(.+)\]", section(details(made), "Memory"))[1]
    memory = made.chosen.memory
    assert len(bar) == 60
    for letter, size in {"w": memory.weights_bytes, "k": memory.kv_cache_bytes}.items():
        assert bar.count(letter) == pytest.approx(60 * size / memory.total_bytes, abs=1)


def test_every_engine_argument_is_shown(made):
    text = " ".join(section(details(made), "Engine").split())
    container = made.chosen.engine.container
    assert " ".join(container.args) in text
    assert all(f"{name}={value}" in text for name, value in container.env)


def test_every_reason_is_shown_once_with_its_number(made):
    refused = section(details(made), "Rejected")
    counts = Counter(item.code for item in made.rejections)
    assert {code: int(number) for code, number in re.findall(r"(\w+) \((\d+)\)", refused)} == counts
    assert len(re.findall(r"\w+ \(\d+\)", refused)) == len(counts)


def test_rejections_that_a_request_can_fix_come_first(made):
    codes = re.findall(r"^  (\w+) \(", section(details(made), "Rejected"), re.MULTILINE)
    assert codes.index("over_budget") < codes.index("arch_flash_attention")


def test_notices_and_assumptions_are_shown(made):
    text = " ".join(f"{summary(made)}{click.unstyle(details(made))}".split())
    assert all(" ".join(item.split()) in text for item in (*made.notices, *made.assumptions))


def test_an_owned_machine_shows_no_price(catalog):
    text = details(plan(OptionTexts(model="llama3-13b", hardware="2xRTX-4090"), catalog, {}))
    assert "$" not in text
    assert "Cost" not in text


@pytest.mark.parametrize("model", ["llama3-13b", "llama3.1-405b-fp8", "mixtral-8x7b", "gpt2"])
def test_nothing_is_wider_than_100_columns(catalog, model):
    made = plan(OptionTexts(model=model), catalog, {})
    for line in click.unstyle(details(made)).splitlines():
        assert len(line) <= 100 or " " not in line.strip(), line


def test_a_hostile_name_cannot_control_the_terminal(made):
    wanted = made.request
    hostile = replaced(made, request=replaced(wanted, model=replace(wanted.model, name="x\x1b]0;owned\x07\ny")))
    text = click.unstyle(details(hostile))
    assert text.replace("\n", "").isprintable()


def test_no_plan_shows_the_nearest_misses_as_commands(catalog):
    outcome = plan(OptionTexts(model="llama3-13b", budget="0.3"), catalog, {})
    commands = [f"tgi-deploy plan llama3-13b {miss.option}" for miss in outcome.near_misses]
    text = click.unstyle(no_plan_text(outcome, commands))
    assert text.startswith("No machine meets your requirements for llama3-13b.")
    for command in commands:
        assert f"    {command}\n" in text
    assert "costs $0.821/h in total (listed 2026-07-20), over the budget of $0.3/h" in " ".join(text.split())


def test_the_nearest_memory_miss_lacks_the_least(catalog):
    texts = OptionTexts(model="llama3.1-70b", hardware="2xL4")
    outcome = plan(texts, catalog, {})
    assert "memory_weights (16): 2xL4, 2 shards, bitsandbytes-nf4: 18.4 GiB" in " ".join(
        no_plan_text(outcome, ()).split()
    )
    assert without_plan("plan", texts, outcome).hint.startswith("every machine is rejected: 18.4 GiB")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("deepseek-ai/DeepSeek-R1", "the images of TGI 3.3.7 do not have; --engine-version 3.1.0 has them"),
        ("Qwen/Qwen3-235B-A22B", "--json shows every rejection; or choose another model"),
    ],
)
def test_the_hint_names_a_reason_shared_by_every_machine(model, says, catalog):
    """Only a reason shared by every machine is named; individual ones are not."""
    texts = OptionTexts(model=model)
    error = without_plan("plan", texts, plan(texts, catalog, {}))
    assert error.hint.endswith(says)


def test_with_several_replicas_the_price_of_a_spare_is_shown(catalog):
    """Another machine costs an instance, its disk and its address; there is already a load balancer."""
    several = plan(OptionTexts(model="llama3.1-8b", rps="30", replicas="3", instance="p5.4xlarge"), catalog, {})
    lines = {line.item: line.usd_per_hour for line in several.chosen.cost.lines}
    spare = (several.chosen.cost.usd_per_hour - lines["load balancer"]) / 3
    assert several.spare_usd_per_hour == spare
    text = re.sub(r"\s+", " ", click.unstyle(details(several)))
    assert "1. 3 x p5.4xlarge 3 x H100-80GB" in text
    assert f"of the load; all of it with one more machine for ${spare:.4f}/h." in text
    assert plan(OptionTexts(model="llama3.1-8b"), catalog, {}).spare_usd_per_hour is None


def test_a_memory_bar_without_free_memory(made):
    over = MemoryBudget(
        total_bytes=100, reserved_bytes=10, weights_bytes=150, activation_bytes=5, overhead_bytes=5,
        kv_cache_bytes=-70, kv_bytes_per_token=1, kv_capacity_tokens=0, required_kv_tokens=1,
    )  # fmt: skip
    assert _bar(over) == "w" * 60
