"""`plan --sweep`: the choices for several values of one option, side by side."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.text import table, wrapped
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
    """Return the table; values without a plan come after it, each with its reason."""
    found = [(row.value, *_cells(row.choice)) for row in rows if row.choice is not None]
    missed = [
        wrapped(one_line(f"{row.value}  {row.code}: {row.reason}"), first="") for row in rows if row.choice is None
    ]
    shown = table((setting.upper(), *_COLUMNS), found, right=_RIGHT) if found else ""
    return shown + "".join(f"{line}\n" for line in missed)


def _cells(choice: Candidate) -> tuple[str, ...]:
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
