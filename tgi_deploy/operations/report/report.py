"""Renders the report, a self-contained HTML page.

Its Content-Security-Policy forbids network access and allows its only script by its hash; its style is inline. All
content is in the text; the script adds tooltips, keyboard navigation and copying.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy import data_files
from tgi_deploy.operations.report.scatter import NARROW, WIDE, chart
from tgi_deploy.templating import render_html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.operations.report.scatter import RejectionGroup, Variant

_TIGHTEST: Final = 0.004  # of a bar: thinner parts would be invisible


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A key figure; `note` is its condition or range."""

    label: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of an accelerator's memory. `kind` is its color."""

    kind: str
    label: str
    size_bytes: int
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The memory of one of `accelerators` equal accelerators; `idle_accelerators` of the machine are unused."""

    accelerator: str
    accelerators: int
    idle_accelerators: int
    total_bytes: int
    parts: tuple[Part, ...]

    def share(self, part: Part) -> float:
        return round(max(_TIGHTEST, part.size_bytes / self.total_bytes) * 100, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A phase before the first answer; after `deadline_s` it counts as stalled."""

    title: str
    start_s: float
    expected_s: float
    deadline_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A rendered artifact to copy, or the `problem` that prevented it."""

    title: str
    file_name: str
    text: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRow:
    item: str
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A fallback or near miss: a description, its price, and the option that selects it."""

    text: str
    usd_per_hour: float | None
    tokens_per_s: float
    reason: str = ""
    option: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The content of a page. Without a plan there is no memory, phase or command."""

    title: str
    sentence: str
    feasible: bool
    load: str
    budget_usd_per_hour: float | None
    catalog_date: str
    version: str
    considered: int
    figures: tuple[Figure, ...] = ()
    cost_rows: tuple[CostRow, ...] = ()
    memory: Memory | None = None
    phases: tuple[Phase, ...] = ()
    commands: tuple[Command, ...] = ()
    fallbacks: tuple[Choice, ...] = ()
    near_misses: tuple[Choice, ...] = ()
    variants: tuple[Variant, ...] = ()
    rejections: tuple[RejectionGroup, ...] = ()
    notices: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def total_s(self) -> float:
        return sum(phase.expected_s for phase in self.phases)

    @property
    def total_usd_per_hour(self) -> float:
        return sum(row.usd_per_hour for row in self.cost_rows)


def report_html(report: Report) -> str:
    """Return the page. The same report always gives the same bytes."""
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    layouts = (WIDE, NARROW)
    charts = [chart(report.variants, report.rejections, report.budget_usd_per_hour, layout) for layout in layouts]
    values = {
        "report": report,
        "charts": [drawing for drawing in charts if drawing is not None],
        "rejections": _by_code(report.rejections),
        "style": _asset("report.css"),
        "script": script,
        "script_hash": f"sha256-{digest}",
    }
    return render_html("report.html.j2", values)


def _by_code(rejections: Sequence[RejectionGroup]) -> Mapping[str, list[tuple[int, RejectionGroup]]]:
    """Return the rejections with their row numbers, by code."""
    found: dict[str, list[tuple[int, RejectionGroup]]] = {}
    for index, item in enumerate(rejections):
        found.setdefault(item.code, []).append((index, item))
    return dict(sorted(found.items()))


def _asset(name: str) -> str:
    return (data_files.templates_dir() / "report" / name).read_text(encoding="utf-8")
