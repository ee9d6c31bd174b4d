"""Computes the coordinates of cost against throughput, for the report and the plot.

Both axes are logarithmic, because prices and speeds span two orders of magnitude. Rejected configurations have a price
but no speed, so they are in lanes below the chart, one for each reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

State = Literal["chosen", "fallback", "works", "over"]

_STEPS: Final = (1.0, 2.0, 5.0)
_ROOM: Final = 1.12  # keeps the outermost points off the frame
_SPREAD: Final = (0.0, -4.0, 4.0)  # separates points of equal price in a lane
_CROWD: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A working configuration at its cheapest offer. `exact` is whether it keeps the checkpoint's precision.

    `state` is `over` if only the budget rules it out. The price is None for the user's own hardware. `span` is the
    range that contains 8 of 10 measured speeds.
    """

    instance_type: str
    where: str
    accelerators: str
    weights: str
    exact: bool
    usd_per_hour: float | None
    tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    usd_per_million_tokens: float | None
    state: State
    span: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectionGroup:
    """Configurations of an instance type that are rejected for the same reason, with the lowest price among them."""

    instance_type: str
    code: str
    message: str
    configurations: str
    number: int
    usd_per_hour: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Sizes in pixels of the drawing and of the chart's margins."""

    name: str
    width: int
    plot_height: int
    left: int
    right: int = 18
    top: int = 14
    axis: int = 40
    lane: int = 30


WIDE: Final = Layout(name="wide", width=960, plot_height=380, left=64)
NARROW: Final = Layout(name="narrow", width=340, plot_height=300, left=46, right=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A logarithmic scale from `low` to `high`, drawn from `start` to `end` pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> tuple[tuple[float, float], ...]:
        """Return (value, position) for 1, 2 and 5 times the powers of ten; over a wide span only for powers."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = _STEPS if last - first <= len(_STEPS) + 1 else _STEPS[:1]
        values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
        return tuple((value, self.at(value)) for value in values if self.low <= value <= self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A point; `row` is its table row."""

    x: float
    y: float
    kind: str
    row: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One reason for rejection: a strip below the chart with its label's baseline and its points."""

    code: str
    number: int
    top: float
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A finished drawing. `pareto` and `budget_x` are None without such a line."""

    layout: Layout
    height: float
    x_axis: Axis
    y_axis: Axis | None
    pareto: str | None
    budget_x: float | None
    marks: tuple[Mark, ...]
    lanes: tuple[Lane, ...]
    whisker: str | None = None

    @property
    def right(self) -> float:
        return self.layout.width - self.layout.right

    @property
    def floor(self) -> float:
        """Return the lower end of the chart, where its horizontal axis is."""
        return self.y_axis.start if self.y_axis else float(self.layout.top)


def chart(
    variants: Sequence[Variant], rejections: Sequence[RejectionGroup], budget: float | None, layout: Layout
) -> Chart | None:
    """Return the drawing; None if nothing has a price. Marks of `variants[i]` name row `w<i>`, of rejections `r<i>`."""
    prices = [variant.usd_per_hour for variant in variants if variant.usd_per_hour]
    prices += [item.usd_per_hour for item in rejections if item.usd_per_hour]
    if not prices:
        return None
    x_axis = _axis([*prices, *([budget] if budget else [])], layout.left, layout.width - layout.right)
    floor = layout.top + layout.plot_height
    speeds = [variant.tokens_per_s for variant in variants if variant.usd_per_hour]
    speeds += [speed for variant in variants if variant.state == "chosen" for speed in variant.span or ()]
    y_axis = _axis(speeds, floor, layout.top) if speeds else None
    marks = _variant_marks(variants, x_axis, y_axis) if y_axis else ()
    top = (floor if y_axis else layout.top) + layout.axis
    lanes = tuple(_lanes(rejections, x_axis, top, layout.lane))
    return Chart(
        layout=layout, height=top + layout.lane * len(lanes) + 4, x_axis=x_axis, y_axis=y_axis,
        pareto=_pareto_line(variants, x_axis, y_axis) if y_axis else None,
        budget_x=x_axis.at(budget) if budget else None,
        marks=marks, lanes=lanes, whisker=_whisker(variants, x_axis, y_axis) if y_axis else None,
    )  # fmt: skip


def pareto(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    """Return the Pareto front, cheapest first: each is faster than everything that costs no more."""
    priced = [variant for variant in variants if variant.usd_per_hour]
    priced.sort(key=lambda variant: (variant.usd_per_hour or 0.0, -variant.tokens_per_s))
    best: list[Variant] = []
    for variant in priced:
        if not best or variant.tokens_per_s > best[-1].tokens_per_s:
            best.append(variant)
    return tuple(best)


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    return Axis(low=min(values) / _ROOM, high=max(values) * _ROOM, start=start, end=end)


def _pareto_line(variants: Sequence[Variant], x_axis: Axis, y_axis: Axis) -> str | None:
    """Return the stepped line: at each price, the speed of the best variant that costs no more."""
    best = pareto(variants)
    if len(best) < 2:  # noqa: PLR2004 -- a line has two ends
        return None
    path = [f"M{x_axis.at(best[0].usd_per_hour or 0)} {y_axis.at(best[0].tokens_per_s)}"]
    path += [f"H{x_axis.at(variant.usd_per_hour or 0)}V{y_axis.at(variant.tokens_per_s)}" for variant in best[1:]]
    return "".join(path)


def _whisker(variants: Sequence[Variant], x_axis: Axis, y_axis: Axis) -> str | None:
    """Return the interval of the chosen variant, with a serif at each end."""
    for variant in variants:
        if variant.state == "chosen" and variant.usd_per_hour and variant.span:
            x, (low, high) = x_axis.at(variant.usd_per_hour), map(y_axis.at, variant.span)
            return f"M{x - 6} {low}h12m-6 0V{high}m-6 0h12"
    return None


def _variant_marks(variants: Sequence[Variant], x_axis: Axis, y_axis: Axis) -> tuple[Mark, ...]:
    """Return the marks by price; the chosen one last, on top of the others."""
    marks = [
        Mark(x=x_axis.at(variant.usd_per_hour), y=y_axis.at(variant.tokens_per_s), kind=_kind(variant), row=f"w{index}")
        for index, variant in enumerate(variants)
        if variant.usd_per_hour
    ]
    return tuple(sorted(marks, key=lambda mark: (mark.kind.startswith("chosen"), mark.x, -mark.y)))


def _kind(variant: Variant) -> str:
    return f"{variant.state} {'exact' if variant.exact else 'lossy'}"


def _lanes(rejections: Sequence[RejectionGroup], x_axis: Axis, top: float, height: int) -> Iterator[Lane]:
    """Yield the lanes, the reasons with the fewest configurations first."""
    rows: dict[str, list[tuple[int, RejectionGroup]]] = {}
    for index, item in enumerate(rejections):
        rows.setdefault(item.code, []).append((index, item))
    counted = sorted((sum(item.number for _, item in group), code) for code, group in rows.items())
    for place, (number, code) in enumerate(counted):
        lane_top = top + place * height
        marks = tuple(_lane_marks(rows[code], x_axis, lane_top + height * 0.66))
        yield Lane(code=code, number=number, top=lane_top, marks=marks)


def _lane_marks(rows: Sequence[tuple[int, RejectionGroup]], x_axis: Axis, middle: float) -> Iterator[Mark]:
    priced = sorted((x_axis.at(item.usd_per_hour), index) for index, item in rows if item.usd_per_hour)
    crowd, before = 0, -math.inf
    for x, index in priced:
        crowd = crowd + 1 if x - before < _CROWD else 0
        before = x
        yield Mark(x=x, y=round(middle + _SPREAD[crowd % len(_SPREAD)], 1), kind="refused", row=f"r{index}")
