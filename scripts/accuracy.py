"""Print the errors of predicted speed and memory, by held-out source and GPU, worst first.

    python scripts/accuracy.py                 print them
    python scripts/accuracy.py --update        write them into docs/accuracy.md
    python scripts/accuracy.py --rows FILE     score other rows with the columns of measured.csv

Predictions with a cell held out come from `profiles/performance/left_out.csv`, which scripts/fit_performance.py writes.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import itertools
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import accuracy_memory
import plain_roofline
from fit_performance import LEFT_OUT
from speed_rows import Measured, current, folder, read, score

from tgi_deploy.operations.planning import predict_speed
from tgi_deploy.values.speed_constants import KIND_OF_METRIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.values.speed_constants import Constants

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
_HEADER: Final = ("n", "MAPE", "median", "measured is slower by", "80 % interval holds", "by chance")
_TAIL: Final = 0.025
_FEWEST: Final = 8  # rows; a share of fewer has no meaning


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A row with its prediction."""

    item: Measured
    log: float
    low: float
    high: float

    @property
    def held(self) -> bool:
        return self.low <= math.exp(self.item.log_value) <= self.high

    @property
    def kind(self) -> str:
        return KIND_OF_METRIC[self.item.row["metric"]]


def by_constants(rows: Sequence[Measured], constants: Constants) -> list[Scored]:
    """Return predictions by these constants."""
    known = [(item, predict_speed.interval(item.case, constants)) for item in rows]
    return [Scored(item=item, log=math.log(one.value), low=one.low, high=one.high) for item, one in known]


def left_out(rows: Sequence[Measured]) -> list[Scored]:
    """Return predictions by constants and intervals that were fitted without the row's cell."""
    with (folder() / LEFT_OUT).open(encoding="utf-8", newline="") as file:
        known = {row["id"]: row for row in csv.DictReader(file)}
    found = []
    for item in rows:
        row = known[item.row["id"]]
        value, low, high = (float(row[name]) for name in ("value", "low", "high"))
        found.append(Scored(item=item, log=math.log(value), low=low, high=high))
    return found


def cells(scored: Sequence[Scored]) -> tuple[str, ...]:
    found = score([one.item for one in scored], [one.log for one in scored])
    slower = math.expm1(statistics.median(one.item.slowness(one.log) for one in scored))
    held = sum(one.held for one in scored) / len(scored)
    count, mean, median, _ = found.cells()
    low, high = (100 * few / len(scored) for few in by_chance(len(scored)))
    return count, mean, median, f"{100 * slower:+.0f} %", f"{100 * held:.0f} %", f"{low:.0f} to {high:.0f} %"


def by_chance(rows: int) -> tuple[int, int]:
    """Return how many rows correct 80 % intervals contain in 95 of 100 draws: 1 in 40 is below, 1 in 40 above."""
    up_to = list(itertools.accumulate(math.comb(rows, n) * 0.8**n * 0.2 ** (rows - n) for n in range(rows + 1)))
    return bisect.bisect_right(up_to, _TAIL), bisect.bisect_left(up_to, 1 - _TAIL)


def groups(
    scored: Sequence[Scored], name_of: Callable[[Scored], str], *, fewest: int = 1
) -> Iterator[tuple[str, list[Scored]]]:
    """Yield the rows by name, the worst MAPE first."""
    named: dict[str, list[Scored]] = {}
    for one in scored:
        named.setdefault(name_of(one), []).append(one)

    def mean(found: Sequence[Scored]) -> float:
        return score([one.item for one in found], [one.log for one in found]).mean

    for name in sorted(named, key=lambda name: -mean(named[name])):
        if len(named[name]) >= fewest:
            yield name, named[name]


def table(title: str, lines: Sequence[tuple[str, Sequence[Scored]]]) -> str:
    """Return Markdown, a line for every group of rows."""
    head = [_line([title, *_HEADER]), _line(["---", *["---:"] * len(_HEADER)])]
    return "\n".join([*head, *(_line([name, *cells(scored)]) for name, scored in lines)])


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def of_kind(one: Scored) -> str:
    return one.kind


def of_gpu_and_kind(one: Scored) -> str:
    return f"{one.item.gpu}, {one.kind}"


def of_cell(one: Scored) -> str:
    return one.item.cell


def report(rows: Sequence[Measured]) -> str:
    """Return every table: each cell held out, and all of them together."""
    current_engines = left_out([item for item in rows if item.core])
    legacy = left_out([item for item in rows if item.row["era"] == "legacy"])
    return "\n\n".join(
        [
            "Every cell, predicted with constants and intervals that were fitted without it:",
            table("held out: source x GPU", list(groups(current_engines, of_cell))),
            "All together:",
            table("metric", [("**all**", current_engines), *groups(current_engines, of_kind)]),
            table("GPU, metric", list(groups(current_engines, of_gpu_and_kind, fewest=_FEWEST))),
            table("engine", list(groups(current_engines, lambda one: one.item.row["engine"], fewest=_FEWEST))),
            "Engines of 2023, which differ from all others:",
            table("held out: TGI 0.9 to 1.1", list(groups(legacy, of_cell))),
            _compared_to_roofline(current_engines),
        ]
    )


def _compared_to_roofline(scored: Sequence[Scored]) -> str:
    items = [one.item for one in scored]
    plain = score(items, [math.log(plain_roofline.median(item.case)) for item in items]).cells()
    own = score(items, [one.log for one in scored]).cells()
    return (
        f"A plain roofline without fitted constants is off by {plain[1]} on the same rows (median {plain[2]}); the"
        f" model, on held-out cells, by {own[1]} (median {own[2]})."
    )


def report_rows(rows: Sequence[Measured], constants: Constants) -> str:
    """Return the tables of other rows, none of which the constants were fitted to."""
    scored = by_constants(rows, constants)
    return "\n\n".join(
        [
            table("source x GPU", list(groups(scored, of_cell))),
            table("metric", [("**all**", scored), *groups(scored, of_kind)]),
            table("GPU, metric", list(groups(scored, of_gpu_and_kind, fewest=_FEWEST))),
        ]
    )


def updated(document: str, text: str) -> str:
    """Return the document with the text between its markers."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the tables into docs/accuracy.md")
    parser.add_argument("--rows", type=Path, help="a CSV of other measured rows")
    options = parser.parse_args()
    if options.rows:
        print(report_rows(read(options.rows), current()))
        return
    text = report(read())
    if options.update:
        DOCUMENT.write_text(updated(DOCUMENT.read_text(encoding="utf-8"), text), encoding="utf-8")
        accuracy_memory.update(DOCUMENT)
    print(f"{text}\n\n{accuracy_memory.report()}")


if __name__ == "__main__":
    main()
