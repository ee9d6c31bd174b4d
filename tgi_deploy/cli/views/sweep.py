"""Formats `plan --sweep`: the choices for several values of one option, side by side."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.text import price_dates, table, wrapped
from tgi_deploy.text import cents, count, one_line, usd
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from tgi_deploy.values.plan_document import Choice, PlannedSpeed
    from tgi_deploy.values.plan_results import SweepData, SweepRow

_COLUMNS: Final = ("instance type", "accelerators", "weights", "$/h", "ttft", "tpot", "tokens/s", "$/1m")
_RIGHT: Final = frozenset({4, 5, 6, 7, 8})
CSV_COLUMNS: Final = (
    "value", "instance_type", "region", "market", "num_shard", "quantize", "usd_per_hour", "ttft_ms", "tpot_ms",
    "output_tokens_per_s", "usd_per_million_output_tokens", "kv_capacity_tokens", "code", "reason", "price_date",
    "estimated",
)  # fmt: skip


def sweep_csv(found: SweepData) -> str:
    """Return the table as CSV: the header, then a line for each value; unknown figures are empty."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([(found.setting, *CSV_COLUMNS[1:]), *map(_csv_row, found.rows)])
    return written.getvalue()


def _csv_row(row: SweepRow) -> tuple[str, ...]:
    parts = (part for part in (row.chosen, row.performance, row) if part is not None)
    flat = {key: value for part in parts for key, value in as_dict(part).items()}
    return tuple("" if flat.get(column) is None else str(flat[column]) for column in CSV_COLUMNS)


def sweep_text(found: SweepData) -> str:
    """Return the table; values without a plan come after it, each with its reason."""
    planned = [
        (_cells(row, row.chosen, row.performance), (row.chosen.price_date, row.chosen.estimated))
        for row in found.rows
        if row.chosen and row.performance
    ]
    date, dates = price_dates(priced for _, priced in planned)
    rows = [(*cells, cell) for (cells, _), cell in zip(planned, dates, strict=True)]
    missed = [
        wrapped(one_line(f"{row.value}  {row.code}: {row.reason}"), first="") for row in found.rows if not row.chosen
    ]
    shown = table((found.setting, *_COLUMNS, "as of" * any(dates)), rows, right=_RIGHT) if rows else ""
    notes = [] if any(dates) or not date else [f"prices {date}"]
    return shown + "".join(f"{line}\n" for line in (*notes, *missed))


def _cells(row: SweepRow, chosen: Choice, speed: PlannedSpeed) -> tuple[str, ...]:
    million = speed.usd_per_million_output_tokens
    return (
        row.value,
        chosen.instance_type,
        f"{chosen.num_shard}/{chosen.accelerator_count} {chosen.accelerator}",
        chosen.dtype if chosen.quantize == "none" else chosen.quantize,
        usd(row.usd_per_hour, estimated=chosen.estimated),
        f"{count(speed.ttft_ms)} ms",
        f"{speed.tpot_ms:.1f} ms",
        count(speed.output_tokens_per_s),
        cents(None if million is None or row.usd_per_hour is None else float(million), estimated=chosen.estimated),
    )
