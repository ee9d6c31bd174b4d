"""Fits the constants of the speed model to the measured rows and writes them, their intervals and left-out figures.

Takes about a minute. Needs nothing but the project itself:

    python scripts/fit_performance.py
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from speed_fit import fit, problem, refit_without
from speed_rows import Measured, current, folder, log_predictions, read, score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from speed_fit import Fit, Problem

LEFT_OUT: Final[Mapping[str, Callable[[Measured], str]]] = {
    "accelerator": lambda item: item.gpu,
    "source": lambda item: item.family,
    "group": lambda item: item.group,
}
FEWEST_FOR_A_CLASS: Final = 25
_LOW, _HIGH = 0.1, 0.9
_DIGITS: Final = 4


def left_out_logs(of: Problem, full: Fit, key_of: Callable[[Measured], str]) -> dict[str, float]:
    """Each row's predicted logarithm, by constants fitted without the rows that share its key."""
    found: dict[str, float] = {}
    for key in sorted({key_of(item) for item in of.rows}):
        logs = refit_without(of, full, lambda item, key=key: key_of(item) == key)  # type: ignore[misc]
        rows = [item for item in of.rows if key_of(item) == key]
        found.update(zip((item.row["id"] for item in rows), log_predictions(rows, of.at(logs)), strict=True))
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between the order statistics."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def intervals(rows: Sequence[Measured], *logs: Mapping[str, float]) -> dict[str, list[float]]:
    """Factors on the median, by metric and load where enough rows are known, from left-out errors of all kinds."""
    errors: dict[str, list[float]] = defaultdict(list)
    for item in rows:
        if item.core:
            metric, load = item.row["metric"], item.row["load"]
            for name in ("default", metric, f"{metric}/{load}"):
                errors[name].extend(item.log_value - predicted[item.row["id"]] for predicted in logs)
    enough = {name: values for name, values in errors.items() if len(values) >= FEWEST_FOR_A_CLASS * len(logs)}
    return {
        name: [round(math.exp(quantile(values, share)), 3) for share in (_LOW, _HIGH)]
        for name, values in sorted(enough.items())
    }


def written(document: Mapping[str, Any]) -> str:
    """The document with a line for every constant."""
    head = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items() if key != "constants"]
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in document["constants"].items()]
    return "{\n" + ",\n".join(head) + ',\n "constants": {\n' + ",\n".join(lines) + "\n }\n}\n"


def main() -> None:
    rows, constants = read(), current()
    of = problem(rows, constants)
    full = fit(of)
    document = json.loads(json.dumps(constants.document))
    for key, value in of.at(full.logs).values.items():
        document["constants"][key]["value"] = float(f"{value:.{_DIGITS}g}")
    left_out = {name: left_out_logs(of, full, key_of) for name, key_of in LEFT_OUT.items()}
    document["intervals"] = intervals(rows, left_out["accelerator"], left_out["source"])
    (folder() / "constants.json").write_text(written(document), encoding="utf-8")
    with (folder() / "left_out.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", *left_out])
        for item in rows:
            writer.writerow([item.row["id"], *(f"{math.exp(logs[item.row['id']]):.5g}" for logs in left_out.values())])
    core = [item for item in rows if item.core]
    print(f"{len(of.keys)} constants fitted to {len(rows)} rows")
    print("core rows", *score(core, log_predictions(core, of.at(full.logs))).cells())
    for name, logs in left_out.items():
        print(f"each {name} left out", *score(core, [logs[item.row["id"]] for item in core]).cells())


if __name__ == "__main__":
    main()
