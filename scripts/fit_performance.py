"""Fits the constants of the speed model to the measured rows and writes them, their intervals and left-out figures.

Takes about a minute. Needs nothing but the project itself:

    python scripts/fit_performance.py
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from speed_fit import cell_weights, fit, problem, refit_without
from speed_rows import ROWS, SOURCES, Measured, current, folder, log_predictions, read, score

from tgi_deploy.values.speed_constants import DEFAULT, KIND_OF_METRIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from speed_fit import Fit, Problem

    from tgi_deploy.values.speed_constants import Constants

LEFT_OUT: Final = "left_out.csv"
_TAIL: Final = 0.09  # on each side of an interval for 80 %; not a tenth, as cells are few and differ
_DRAWN: Final = 3.0  # rows of the wider group that a scale is drawn by
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


def widths(rows: Sequence[Measured], slowness: Mapping[str, float], constants: Constants) -> Widths:
    """Factors on the median time that leave a tenth on each side, by metric and family of cards.

    Errors of a metric on a family have a scale of their own, drawn towards the metric's, as that is towards all
    errors': a few rows cannot make an interval narrow. In units of their scale all errors have the same quantiles.
    """
    core = [item for item in rows if item.core]
    known = [
        _Error(weight=weight, log=slowness[item.row["id"]], kind=KIND_OF_METRIC[item.row["metric"]],
               family=constants.family(item.case.setup.accelerator))
        for weight, item in zip(cell_weights(core), core, strict=True)
    ]  # fmt: skip
    families = {DEFAULT, *(error.family for error in known)}
    overall, scales = _scale(known, 0.0, drawn=0), {}
    for kind in sorted(set(KIND_OF_METRIC.values())):
        own = [error for error in known if error.kind == kind]
        of_kind = _scale(own, overall)
        for family in sorted(families):
            scales[kind, family] = _scale([error for error in own if error.family == family], of_kind)
    units, weights = [error.log / scales[error.kind, error.family] for error in known], [e.weight for e in known]
    ends = [weighted_quantile(units, weights, share) for share in (_TAIL, 1 - _TAIL)]
    found: Widths = {}
    for (kind, family), scale in scales.items():
        found.setdefault(kind, {})[family] = [round(math.exp(scale * end), 3) for end in ends]
    return found


class _Error(NamedTuple):
    """A left-out error: the logarithm of measured over predicted time."""

    weight: float
    log: float
    kind: str
    family: str


def _scale(errors: Sequence[_Error], prior: float, *, drawn: float = _DRAWN) -> float:
    """Return the mean error, shrunk toward the prior as if this many rows had it."""
    size = sum(error.weight * abs(error.log) for error in errors) + drawn * prior
    return size / (sum(error.weight for error in errors) + drawn)


def nested(rows: Sequence[Measured], logs: Mapping[str, float], constants: Constants) -> list[tuple[str, ...]]:
    """Left-out figures with intervals that the rows' own cells had no part in either."""
    slowness = {item.row["id"]: item.slowness(logs[item.row["id"]]) for item in rows}
    found = []
    for cell in sorted({item.cell for item in rows}):
        others = [item for item in rows if item.cell != cell]
        known = constants.with_slowness(widths(others, slowness, constants))
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
    rows = read()
    of = problem(rows, constants)
    full = fit(of)
    document = json.loads(json.dumps(constants.document))
    for key, log in zip(of.keys, full.logs, strict=True):
        document["constants"][key]["value"] = float(f"{math.exp(log):.{_DIGITS}g}")
    logs = left_out_logs(of, full)
    slowness = {item.row["id"]: item.slowness(logs[item.row["id"]]) for item in rows}
    document["slowness"] = widths(rows, slowness, constants)
    with (folder() / LEFT_OUT).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("id", "value", "low", "high"), *nested(rows, logs, constants)]
        )
    document["fitted_to"] = {"rows": digest(ROWS, SOURCES), "left_out": digest(LEFT_OUT)}
    (folder() / "constants.json").write_text(written(document), encoding="utf-8")
    core = [item for item in rows if item.core]
    print(f"{len(of.keys)} constants fitted to {len(rows)} rows")
    print("core rows", *score(core, log_predictions(core, of.at(full.logs))).cells())
    print("each cell left out", *score(core, [logs[item.row["id"]] for item in core]).cells())


if __name__ == "__main__":
    main()
