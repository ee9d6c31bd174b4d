"""`plan --sweep`: the choices for many values of one option, side by side."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.text import WIDTH, table
from tgi_deploy.operations.planning.sweep import csv_rows
from tgi_deploy.text import count, one_line, usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.planning.sweep import Row
    from tgi_deploy.values.plan import Candidate

_COLUMNS: Final = ("INSTANCE TYPE", "CARDS", "QUANTIZE", "$/H", "TTFT", "TPOT", "TOKENS/S", "$/1M")
_RIGHT: Final = frozenset({4, 5, 6, 7, 8})


def sweep_csv(rows: Sequence[Row], setting: str) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(csv_rows(rows, setting))
    return written.getvalue()


def sweep_text(rows: Sequence[Row], setting: str) -> str:
    """A value without a plan has its reason in place of the figures."""
    lines = table(
        (setting.upper(), *_COLUMNS), [(row.value, *_cells(row.choice)) for row in rows], right=_RIGHT
    ).splitlines()
    width = max(len(setting), *(len(row.value) for row in rows))
    for number, row in enumerate(rows, start=1):
        if row.choice is None:
            reason = one_line(f"{row.code}: {row.reason}", limit=WIDTH - width - 2)
            lines[number] = f"{row.value:<{width}}  {reason}"
    return "\n".join(lines) + "\n"


def _cells(choice: Candidate | None) -> tuple[str, ...]:
    if choice is None:
        return ("",) * len(_COLUMNS)
    kind, speed = choice.offer.instance_type, choice.performance
    price = choice.rent_usd_per_hour
    million = speed.usd_per_million_output_tokens
    return (
        kind.name,
        f"{choice.num_shard}/{kind.accelerator_count} {kind.accelerator.name}",
        choice.quantize,
        usd(price),
        f"{count(speed.ttft_ms)} ms",
        f"{speed.tpot_ms:.1f} ms",
        count(speed.output_tokens_per_s),
        usd(None if million is None or price is None else round(million, 2)),
    )
