"""Fits the constants of the speed model to the measured rows and writes them, their intervals and left-out figures.

Takes about a minute. Needs nothing but the project itself:

    python scripts/fit_performance.py
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final

from speed_fit import cell_weights, fit, problem, refit_without
from speed_rows import CELLS, ROWS, SOURCES, Measured, current, folder, log_predictions, read, score

from tgi_deploy.values.speed_constants import DEFAULT, KIND_OF_METRIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speed_fit import Fit, Problem

    from tgi_deploy.values.speed_constants import Constants

LEFT_OUT: Final = "left_out.csv"
_HELD: Final = 0.8  # the share of what is measured that an interval is for
_TAIL: Final = 0.1  # what lies on each side of it, if errors of one cell told those of the next
_ELSEWHERE = 0.1  # what an error of another metric, or of another family of cards, counts
_DIGITS: Final = 4

Widths = dict[str, dict[str, list[float]]]


def left_out_logs(of: Problem, full: Fit) -> dict[str, float]:
    """Each row's predicted logarithm, by constants fitted without its cell."""
    found: dict[str, float] = {}
    for cell in sorted({item.cell for item in of.rows}):
        logs = refit_without(of, full, lambda item, cell=cell: item.cell == cell)  # type: ignore[misc]
        rows = [item for item in of.rows if item.cell == cell]
        found.update(zip((item.row["id"] for item in rows), log_predictions(rows, of.at(logs)), strict=True))
    return found


def weighted_quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Linear between the middles of the values' weights."""
    ordered = sorted(zip(values, weights, strict=True))
    wanted, below = share * sum(weights), 0.0
    last_place, last = 0.0, ordered[0][0]
    for value, weight in ordered:
        place = below + weight / 2
        if place >= wanted:
            return last + (value - last) * (wanted - last_place) / (place - last_place) if place > last_place else value
        below, last_place, last = below + weight, place, value
    return last


def widths(
    rows: Sequence[Measured], slowness: Mapping[str, float], constants: Constants, tails: Mapping[str, float]
) -> Widths:
    """Factors on the median time that leave the tail of their metric on each side, by metric and family of cards.

    All left-out errors are looked at each time: those of the same metric on the same family count ten times as much
    as those that share one of the two, so that a few rows cannot make an interval narrow.
    """
    core = [item for item in rows if item.core]
    errors = [slowness[item.row["id"]] for item in core]
    cells = cell_weights(core)
    kinds = [KIND_OF_METRIC[item.row["metric"]] for item in core]
    families = [constants.family(item.case.setup.accelerator) for item in core]

    def width(kind: str, family: str) -> list[float]:
        weights = [
            weight * (1 if kind == own_kind else _ELSEWHERE) * (1 if family in {own, DEFAULT} else _ELSEWHERE)
            for weight, own_kind, own in zip(cells, kinds, families, strict=True)
        ]
        shares = tails[kind], 1 - tails[kind]
        return [round(math.exp(weighted_quantile(errors, weights, share)), 3) for share in shares]

    return {
        kind: {family: width(kind, family) for family in (DEFAULT, *sorted(set(families) - {DEFAULT}))}
        for kind in sorted(set(KIND_OF_METRIC.values()))
    }


def calibrated_tails(rows: Sequence[Measured], slowness: Mapping[str, float], constants: Constants) -> dict[str, float]:
    """Return the largest tails at which intervals of other cells hold four fifths of the rows of each metric.

    Cells are few and differ, so that a tenth of the other cells' errors is less than a tenth of the next cell's.
    """
    found = dict.fromkeys(set(KIND_OF_METRIC.values()), 0.0)
    for percent in range(1, round(100 * _TAIL) + 1):
        tails = dict.fromkeys(found, percent / 100)
        shares = _held(rows, slowness, constants, tails)
        found.update({kind: tails[kind] for kind, share in shares.items() if share >= _HELD or percent == 1})
    return found


def _held(
    rows: Sequence[Measured], slowness: Mapping[str, float], constants: Constants, tails: Mapping[str, float]
) -> dict[str, float]:
    """The share of the clean rows of each metric that intervals without their cells hold."""
    held: dict[str, list[bool]] = {}
    for cell in sorted({item.cell for item in rows if item.core}):
        known = widths([item for item in rows if item.cell != cell], slowness, constants, tails)
        for item in rows:
            if item.cell == cell and item.core:
                kind = KIND_OF_METRIC[item.row["metric"]]
                family = constants.family(item.case.setup.accelerator)
                low, high = known[kind].get(family) or known[kind][DEFAULT]
                held.setdefault(kind, []).append(low <= math.exp(slowness[item.row["id"]]) <= high)
    return {kind: sum(found) / len(found) for kind, found in held.items()}


def nested(
    rows: Sequence[Measured], logs: Mapping[str, float], constants: Constants, tails: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """Left-out figures with intervals that the rows' own cells had no part in either, but for their tails."""
    slowness = {item.row["id"]: item.slowness(logs[item.row["id"]]) for item in rows}
    found = []
    for cell in sorted({item.cell for item in rows}):
        others = [item for item in rows if item.cell != cell]
        known = constants.with_slowness(widths(others, slowness, constants, tails))
        for item in rows:
            if item.cell == cell:
                value = math.exp(logs[item.row["id"]])
                low, high = known.interval(item.row["metric"], item.case.setup.accelerator)
                found.append((item.row["id"], *(f"{value * factor:.5g}" for factor in (1, low, high))))
    return found


def digest(*names: str) -> str:
    """What tells these files from any other edition of them."""
    found = hashlib.sha256()
    for name in names:
        found.update((folder() / name).read_bytes())
    return found.hexdigest()[:16]


def written(document: Mapping[str, Any]) -> str:
    """The document with a line for every constant."""
    head = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items() if key != "constants"]
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(document["constants"].items())]
    return "{\n" + ",\n".join(head) + ',\n "constants": {\n' + ",\n".join(lines) + "\n }\n}\n"


def main() -> None:
    constants = current()
    rows = [item for item in read() if not item.unseen]
    of = problem(rows, constants)
    full = fit(of)
    document = json.loads(json.dumps(constants.document))
    for key, log in zip(of.keys, full.logs, strict=True):
        document["constants"][key]["value"] = float(f"{math.exp(log):.{_DIGITS}g}")
    logs = left_out_logs(of, full)
    slowness = {item.row["id"]: item.slowness(logs[item.row["id"]]) for item in rows}
    tails = calibrated_tails(rows, slowness, constants)
    document["slowness"] = widths(rows, slowness, constants, tails)
    with (folder() / LEFT_OUT).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("id", "value", "low", "high"), *nested(rows, logs, constants, tails)]
        )
    document["fitted_to"] = {"rows": digest(ROWS, SOURCES, CELLS), "left_out": digest(LEFT_OUT)}
    (folder() / "constants.json").write_text(written(document), encoding="utf-8")
    core = [item for item in rows if item.core]
    print("tails", tails)
    print(f"{len(of.keys)} constants fitted to {len(rows)} rows")
    print("core rows", *score(core, log_predictions(core, of.at(full.logs))).cells())
    print("each cell left out", *score(core, [logs[item.row["id"]] for item in core]).cells())


if __name__ == "__main__":
    main()
