from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from tgi_deploy.operations.report.scatter import NARROW, WIDE, Axis, RejectionGroup, Variant, chart, pareto

WAY = Variant(
    instance_type="g6.xlarge",
    where="on-demand in us-east-1",
    accelerators="1 L4",
    weights="awq",
    exact=False,
    usd_per_hour=1.0,
    tokens_per_s=100.0,
    ttft_ms=200.0,
    tpot_ms=20.0,
    usd_per_million_tokens=2.0,
    state="works",
)
REFUSAL = RejectionGroup(
    instance_type="g4dn.xlarge", code="arch_flash_attention", message="No.", configurations="none", number=3,
    usd_per_hour=0.5,
)  # fmt: skip


def variant(usd: float | None, speed: float, **changes) -> Variant:
    return replace(WAY, usd_per_hour=usd, tokens_per_s=speed, **changes)


def test_an_axis_is_logarithmic_and_reaches_both_ends():
    axis = Axis(low=1, high=100, start=0, end=200)
    assert [axis.at(value) for value in (1, 10, 100)] == [0, 100, 200]
    assert [value for value, _ in axis.ticks()] == [1, 2, 5, 10, 20, 50, 100]


def test_a_wide_axis_has_only_powers_of_ten():
    assert [value for value, _ in Axis(low=0.1, high=10_000, start=0, end=9).ticks()] == pytest.approx(
        [0.1, 1, 10, 100, 1000, 10_000]
    )


def test_pareto_keeps_undominated_points():
    variants = [
        variant(3, 50),
        variant(1, 80),
        variant(2, 80),
        variant(2, 200),
        variant(4, 200),
        variant(9, 300),
        variant(None, 999),
    ]
    assert [(item.usd_per_hour, item.tokens_per_s) for item in pareto(variants)] == [(1, 80), (2, 200), (9, 300)]


def test_pareto_matches_its_definition():
    variants = [
        variant(usd, speed) for usd, speed in itertools.product((1, 2, 3, 5), (10, 20, 40)) if (usd * speed) % 3
    ]
    beaten = {
        (one.usd_per_hour, one.tokens_per_s)
        for one in variants
        for other in variants
        if (other.usd_per_hour <= one.usd_per_hour and other.tokens_per_s > one.tokens_per_s)
        or (other.usd_per_hour < one.usd_per_hour and other.tokens_per_s >= one.tokens_per_s)
    }
    kept = {(item.usd_per_hour, item.tokens_per_s) for item in pareto(variants)}
    assert kept == {(item.usd_per_hour, item.tokens_per_s) for item in variants} - beaten


@pytest.mark.parametrize("layout", [WIDE, NARROW], ids=lambda layout: layout.name)
def test_every_mark_lies_inside_the_drawing(layout):
    variants = [variant(10**power, 7.0 * 10**power) for power in range(-1, 4)]
    rejections = [replace(REFUSAL, usd_per_hour=0.05 * index, code=f"c{index % 4}") for index in range(1, 30)]
    drawing = chart(variants, rejections, 5.0, layout)
    marks = [*drawing.marks, *(mark for lane in drawing.lanes for mark in lane.marks)]
    assert len(marks) == len(variants) + len(rejections)
    for mark in marks:
        assert layout.left <= mark.x <= drawing.right
        assert layout.top <= mark.y <= drawing.height


def test_more_expensive_is_further_right_and_faster_is_higher():
    cheap, dear = chart([variant(1, 10), variant(2, 20)], [], None, WIDE).marks
    assert cheap.x < dear.x
    assert cheap.y > dear.y


def test_a_mark_names_its_row_and_the_chosen_one_is_on_top():
    variants = [variant(2, 20, state="chosen"), variant(1, 10), variant(3, 30, state="over", exact=True)]
    marks = chart(variants, [REFUSAL], None, WIDE).marks
    assert [(mark.row, mark.kind) for mark in marks] == [
        ("w1", "works lossy"), ("w2", "over exact"), ("w0", "chosen lossy"),
    ]  # fmt: skip


def test_lanes_show_rejections_by_code_rarest_first():
    rejections = [replace(REFUSAL, code="many", number=9), REFUSAL, replace(REFUSAL, usd_per_hour=None)]
    lanes = chart([], rejections, None, WIDE).lanes
    assert [(lane.code, lane.number) for lane in lanes] == [("arch_flash_attention", 6), ("many", 9)]
    assert [mark.row for mark in lanes[0].marks] == ["r1"]  # the one without a price stands in the table alone


def test_rejections_at_one_price_are_drawn_apart():
    lane = chart([], [REFUSAL] * 3, None, WIDE).lanes[0]
    assert len({mark.y for mark in lane.marks}) == 3


def test_the_pareto_line_needs_two_points():
    assert chart([variant(1, 10)], [], None, WIDE).pareto is None
    assert chart([variant(1, 10), variant(2, 20)], [], None, WIDE).pareto.startswith("M")


def test_the_interval_of_the_chosen_one_is_drawn_to_scale():
    drawing = chart([variant(1, 100, state="chosen", span=(50, 400)), variant(2, 120, span=(1, 9000))], [], None, WIDE)
    low, high = drawing.y_axis.at(50), drawing.y_axis.at(400)
    x = drawing.x_axis.at(1)
    assert drawing.whisker == f"M{x - 6} {low}h12m-6 0V{high}m-6 0h12"
    assert WIDE.top <= high < low <= drawing.floor
    assert drawing.y_axis.high < 9000  # the intervals of others are not drawn and make no room
    assert chart([variant(1, 100, state="chosen")], [], None, WIDE).whisker is None


def test_the_budget_line_is_always_visible():
    for budget in (0.01, 1.5, 400.0):
        drawing = chart([variant(1, 10), variant(2, 20)], [], budget, WIDE)
        assert WIDE.left <= drawing.budget_x <= drawing.right
        assert math.isclose(drawing.budget_x, drawing.x_axis.at(budget))


def test_without_a_price_there_is_no_chart():
    assert chart([variant(None, 10)], [replace(REFUSAL, usd_per_hour=None)], None, WIDE) is None
