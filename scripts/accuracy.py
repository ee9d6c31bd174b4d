"""Prints how far predicted speed and memory are from measured ones.

    python scripts/accuracy.py                 print it
    python scripts/accuracy.py --update        write it into docs/accuracy.md
    python scripts/accuracy.py --rows FILE     score other rows with the columns of measured.csv

Figures with something left out come from `profiles/performance/left_out.csv`, which scripts/fit_performance.py writes.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import accuracy_memory
import plain_roofline
from speed_rows import Measured, current, folder, log_predictions, read, score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.values.speed_constants import Constants

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
_HEADER: Final = (
    "rows of measured figures", "n", "MAPE", "median", "within 25 %", "card left out: MAPE, median",
    "source left out: MAPE, median", "plain roofline: MAPE, median",
)  # fmt: skip
_LEFT_OUT: Final = ("accelerator", "source", "group")

Logs = dict[str, float]


def sections(rows: Sequence[Measured]) -> Iterator[tuple[str, list[Measured]]]:
    """Every slice that is scored, with its name."""
    core = [item for item in rows if item.core]
    yield "**current engines, all**", core
    yield from _slices("metric", core, lambda item: item.row["metric"])
    yield from _slices("load", core, lambda item: item.row["load"])
    yield from _slices("card", core, lambda item: item.gpu)
    yield from _slices("engine", core, lambda item: item.row["engine"])
    legacy = [item for item in rows if item.row["era"] == "legacy" and item.row["engine"] == "TGI"]
    if legacy:
        yield "**TGI 0.9 to 1.1**", legacy


def _slices(
    kind: str, rows: Sequence[Measured], name_of: Callable[[Measured], str]
) -> Iterator[tuple[str, list[Measured]]]:
    for name in sorted({name_of(item) for item in rows}):
        yield f"{kind}: {name}", [item for item in rows if name_of(item) == name]


def table(rows: Sequence[Measured], constants: Constants, left_out: Mapping[str, Logs]) -> str:
    """Markdown, a line for every slice."""
    own = _by_id(rows, log_predictions(rows, constants))
    plain = _by_id(rows, [math.log(plain_roofline.median(item.case)) for item in rows])
    lines = [_line(_HEADER), _line(["---", *["---:"] * (len(_HEADER) - 1)])]
    for name, chosen in sections(rows):
        cells = score(chosen, [own[item.row["id"]] for item in chosen]).cells()
        others = [_short(chosen, left_out.get(key)) for key in ("accelerator", "source")]
        lines.append(_line([name, *cells, *others, _short(chosen, plain)]))
    return "\n".join(lines)


def _by_id(rows: Sequence[Measured], logs: Sequence[float]) -> Logs:
    return {item.row["id"]: log for item, log in zip(rows, logs, strict=True)}


def _short(rows: Sequence[Measured], logs: Logs | None) -> str:
    if logs is None:
        return "-"
    _, mean, median, _ = score(rows, [logs[item.row["id"]] for item in rows]).cells()
    return f"{mean}, {median}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def coverage(rows: Sequence[Measured], constants: Constants, logs: Logs) -> float:
    """Share of measured values inside the interval around predictions `logs`."""
    inside = 0
    for item in rows:
        low, high = constants.interval(item.row["metric"], item.row["load"])
        off = item.log_value - logs[item.row["id"]]
        inside += math.log(low) <= off <= math.log(high)
    return inside / len(rows)


def coverage_lines(rows: Sequence[Measured], constants: Constants, left_out: Mapping[str, Logs]) -> str:
    core = [item for item in rows if item.core]
    lines = [_line(["80 % intervals hold", "all", *sorted({item.row["metric"] for item in core})])]
    lines.append(_line(["---", *["---:"] * (lines[0].count("|") - 2)]))
    for key, logs in left_out.items():
        metrics = [[item for item in core if item.row["metric"] == name] for name in _metrics(core)]
        shares = [coverage(chosen, constants, logs) for chosen in (core, *metrics)]
        lines.append(_line([f"each {key} left out", *(f"{100 * share:.0f} %" for share in shares)]))
    return "\n".join(lines)


def _metrics(rows: Sequence[Measured]) -> list[str]:
    return sorted({item.row["metric"] for item in rows})


def read_left_out() -> dict[str, Logs]:
    with (folder() / "left_out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: {row["id"]: math.log(float(row[key])) for row in rows} for key in _LEFT_OUT}


def report(rows: Sequence[Measured], left_out: Mapping[str, Logs]) -> str:
    constants = current()
    text = table(rows, constants, left_out)
    if not left_out:
        return text
    core = [item for item in rows if item.core]
    groups = score(core, [left_out["group"][item.row["id"]] for item in core]).cells()
    extra = (
        f"Each group of model, card and source left out: MAPE {groups[1]}, median {groups[2]}, {groups[3]} within 25 %."
    )
    return f"{text}\n\n{extra}\n\n{coverage_lines(rows, constants, left_out)}"


def updated(document: str, text: str) -> str:
    """The document with the text between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the table into docs/accuracy.md")
    parser.add_argument("--rows", type=Path, help="a CSV of other measured rows")
    options = parser.parse_args()
    rows = read(options.rows)
    text = report(rows, {} if options.rows else read_left_out())
    if options.update:
        DOCUMENT.write_text(updated(DOCUMENT.read_text(encoding="utf-8"), text), encoding="utf-8")
        accuracy_memory.update(DOCUMENT)
    print(text)
    if not options.rows:
        print(f"\n{accuracy_memory.report()}")


if __name__ == "__main__":
    main()
