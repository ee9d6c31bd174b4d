"""Fit the constants of the speed model to the measured rows; write them, their intervals and held-out errors.

It takes about a minute and needs only the project itself:

    python scripts/fit_performance.py
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from speed_fit import cell_weights, fit, problem, refit_without
from speed_rows import ROWS, SOURCES, Measured, current, folder, log_predictions, read, score, unsure_shares

from tgi_deploy.values.speed_constants import KIND_OF_METRIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from speed_fit import Fit, Problem

    from tgi_deploy.values.speed_constants import Constants

LEFT_OUT: Final = "left_out.csv"
_TAIL: Final = 0.09  # on each side of an interval for 80 %; not a tenth, as cells are few and differ
_FASTEST_GROWTH: Final = 5.0
_SETTLED: Final = 1e-5
_DIGITS: Final = 4


class Error(NamedTuple):
    """A figure's prediction without its cell. `off` is the logarithm of measured over predicted time."""

    item: Measured
    weight: float
    log: float
    unsure: float

    @property
    def off(self) -> float:
        return self.item.slowness(self.log)

    @property
    def kind(self) -> str:
        return KIND_OF_METRIC[self.item.row["metric"]]


def left_out(of: Problem, full: Fit) -> list[Error]:
    """Return each row's error, by constants fitted without its cell."""
    found: list[Error] = []
    for cell in sorted({item.cell for item in of.rows}):
        constants = of.at(refit_without(of, full, lambda item, cell=cell: item.cell == cell))  # type: ignore[misc]
        rows = [item for item in of.rows if item.cell == cell]
        logs, shares = log_predictions(rows, constants), unsure_shares(rows, constants)
        found += map(Error, rows, cell_weights(rows), logs, shares)
    return found


def weighted_quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Return the quantile, linearly interpolated between the midpoints of the values' weights."""
    ordered = sorted(zip(values, weights, strict=True))
    wanted, below = share * sum(weights), 0.0
    last_place, last = 0.0, ordered[0][0]
    for value, weight in ordered:
        place = below + weight / 2
        if place >= wanted:
            return last + (value - last) * (wanted - last_place) / (place - last_place) if place > last_place else value
        below, last_place, last = below + weight, place, value
    return last


def slowness(errors: Sequence[Error]) -> dict[str, float]:
    """Return the parameters of intervals, from the clean figures of current engines.

    An error's scale is its metric's times exp(growth * u), where u is the share of the figure's time that is hard to
    predict; `growth` has the maximum likelihood if errors are exponential. In units of their scale all errors have the
    same quantiles.
    """
    core = [error for error in errors if error.item.core]
    growth = _lowest(lambda growth: _unlikelihood(core, growth), 0.0, _FASTEST_GROWTH)
    scales = _scales(core, growth)
    units = [error.off / scales[error.kind] * math.exp(-growth * error.unsure) for error in core]
    weights = [error.weight for error in core]
    fast, slow = (weighted_quantile(units, weights, share) for share in (_TAIL, 1 - _TAIL))
    found = {**scales, "growth": growth, "fast": -fast, "slow": slow}
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in found.items()}


def _scales(errors: Sequence[Error], growth: float) -> dict[str, float]:
    """Return the mean error of each metric where all of the time is easy to predict."""
    found = {}
    for kind in sorted({error.kind for error in errors}):
        own = [error for error in errors if error.kind == kind]
        size = sum(error.weight * abs(error.off) * math.exp(-growth * error.unsure) for error in own)
        found[kind] = size / sum(error.weight for error in own)
    return found


def _unlikelihood(errors: Sequence[Error], growth: float) -> float:
    scales = _scales(errors, growth)
    return sum(error.weight * (math.log(scales[error.kind]) + growth * error.unsure) for error in errors)


def _lowest(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a convex function is lowest."""
    while high - low > _SETTLED:
        third = (high - low) / 3
        if of(low + third) < of(high - third):
            high -= third
        else:
            low += third
    return (low + high) / 2


def nested(errors: Sequence[Error], constants: Constants) -> list[tuple[str, ...]]:
    """Return held-out predictions whose intervals were also fitted without the row's cell."""
    found = []
    for cell in sorted({error.item.cell for error in errors}):
        known = constants.with_slowness(slowness([error for error in errors if error.item.cell != cell]))
        for error in errors:
            if error.item.cell == cell:
                value, row = math.exp(error.log), error.item.row
                low, high = known.interval(row["metric"], error.unsure)
                figures = value, error.unsure, value * low, value * high
                found.append((row["id"], *(f"{figure:.5g}" for figure in figures)))
    return found


def digest(*names: str) -> str:
    """Return a digest of these files' contents."""
    found = hashlib.sha256()
    for name in names:
        found.update((folder() / name).read_bytes())
    return found.hexdigest()[:16]


def written(document: Mapping[str, Any]) -> str:
    """Return the document with a line for every constant."""
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
    errors = left_out(of, full)
    document["slowness"] = slowness(errors)
    with (folder() / LEFT_OUT).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("id", "value", "unsure", "low", "high"), *nested(errors, constants)]
        )
    document["fitted_to"] = {"rows": digest(ROWS, SOURCES), "left_out": digest(LEFT_OUT)}
    (folder() / "constants.json").write_text(written(document), encoding="utf-8")
    core = [item for item in rows if item.core]
    print(f"{len(of.keys)} constants fitted to {len(rows)} rows")
    print("core rows", *score(core, log_predictions(core, of.at(full.logs))).cells())
    foreign = [error for error in errors if error.item.core]
    print("each cell left out", *score([error.item for error in foreign], [error.log for error in foreign]).cells())


if __name__ == "__main__":
    main()
