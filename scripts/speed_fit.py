"""Fit the speed model's constants, regularized toward their documented priors, and refit with rows held out.

The objective is the sum over rows of a pseudo-Huber loss of the log error, plus the squared distance of each constant's
logarithm from its prior in units of its spread. Steps are Gauss-Newton. With rows held out the model is linearized
around the full fit: a complete refit gives the same figures within a few tenths of a percent and takes a hundred times
as long.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

from speed_rows import log_predictions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from speed_rows import Measured

    from tgi_deploy.values.speed_constants import Constants

ROUNDING = 0.1  # log error below which the loss is quadratic
_STEP = 1e-3
_ALIKE = 0.05
_LARGEST_STEP = 0.5
_SETTLED = 1e-3

Vector = list[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Constants to fit, as logarithms: `keys`, their guesses and spreads."""

    rows: Sequence[Measured]
    weights: Vector
    constants: Constants
    keys: tuple[str, ...]
    guess: Vector
    spread: Vector

    def at(self, logs: Sequence[float]) -> Constants:
        """Return the constants with these values."""
        moved = {key: math.exp(log) for key, log in zip(self.keys, logs, strict=True)}
        return self.constants.with_values({**self.constants.values, **moved})

    def residuals(self, logs: Sequence[float]) -> Vector:
        predicted = log_predictions(self.rows, self.at(logs))
        return [log - item.log_value for log, item in zip(predicted, self.rows, strict=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The fitted logarithms, with residuals and their derivatives there (a list of one column a constant)."""

    logs: Vector
    residuals: Vector
    slopes: list[Vector]


def problem(rows: Sequence[Measured], constants: Constants) -> Problem:
    """Return the problem: every constant that has a spread is fitted, starting from its guess."""
    entries = constants.document["constants"]
    keys = tuple(key for key, entry in entries.items() if "spread" in entry)
    guesses = constants.with_values({key: float(entry["guess"]) for key, entry in entries.items()})
    return Problem(
        rows=rows,
        weights=cell_weights(rows),
        constants=guesses,
        keys=keys,
        guess=[math.log(entries[key]["guess"]) for key in keys],
        spread=[float(entries[key]["spread"]) for key in keys],
    )


def cell_weights(rows: Sequence[Measured]) -> Vector:
    """Return a row's weight: errors within a cell are correlated, so a hundred rows count little more than ten."""
    sizes = Counter(item.cell for item in rows)
    return [1 / (1 + _ALIKE * (sizes[item.cell] - 1)) for item in rows]


def fit(of: Problem, *, rounds: int = 16) -> Fit:
    logs = list(of.guess)
    for _ in range(rounds):
        residuals = of.residuals(logs)
        slopes = _slopes(of, logs, residuals)
        step = _newton_step(of, logs, residuals, slopes, of.weights)
        logs = [log + max(-_LARGEST_STEP, min(_LARGEST_STEP, part)) for log, part in zip(logs, step, strict=True)]
        if max(map(abs, step)) < _SETTLED:
            break
    residuals = of.residuals(logs)
    return Fit(logs=logs, residuals=residuals, slopes=_slopes(of, logs, residuals))


def distance(of: Problem, logs: Vector) -> float:
    """Return the largest relative change of a constant in the next step: zero at the optimum."""
    residuals = of.residuals(logs)
    return max(map(abs, _newton_step(of, logs, residuals, _slopes(of, logs, residuals), of.weights)))


def refit_without(of: Problem, full: Fit, left_out: Callable[[Measured], bool], *, rounds: int = 8) -> Vector:
    """Return the logarithms fitted to the other rows only."""
    kept = [index for index, item in enumerate(of.rows) if not left_out(item)]
    slopes = [[column[index] for index in kept] for column in full.slopes]
    start, weights = [full.residuals[index] for index in kept], [of.weights[index] for index in kept]
    logs, residuals = list(full.logs), start
    for _ in range(rounds):
        step = _newton_step(of, logs, residuals, slopes, weights)
        logs = [log + part for log, part in zip(logs, step, strict=True)]
        moved = [log - base for log, base in zip(logs, full.logs, strict=True)]
        residuals = _moved(start, slopes, moved)
        if max(map(abs, step)) < _SETTLED:
            break
    return logs


def _moved(residuals: Vector, slopes: list[Vector], step: Vector) -> Vector:
    moved = list(residuals)
    for column, part in zip(slopes, step, strict=True):
        if part:
            moved = [value + slope * part for value, slope in zip(moved, column, strict=True)]
    return moved


def _slopes(of: Problem, logs: Vector, residuals: Vector) -> list[Vector]:
    columns = []
    for index in range(len(logs)):
        nudged = list(logs)
        nudged[index] += _STEP
        columns.append([(new - old) / _STEP for new, old in zip(of.residuals(nudged), residuals, strict=True)])
    return columns


def _newton_step(of: Problem, logs: Vector, residuals: Vector, slopes: list[Vector], rows: Vector) -> Vector:
    weights = [
        row / math.sqrt(1 + (value / ROUNDING) ** 2) / ROUNDING**2 for row, value in zip(rows, residuals, strict=True)
    ]
    pulled = [list(map(mul, weights, column)) for column in slopes]
    size = len(logs)
    matrix = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            matrix[i][j] = matrix[j][i] = sum(map(mul, pulled[i], slopes[j]))
    wanted = []
    for i, (log, guess, spread) in enumerate(zip(logs, of.guess, of.spread, strict=True)):
        matrix[i][i] += 1 / spread**2
        wanted.append(-sum(map(mul, pulled[i], residuals)) - (log - guess) / spread**2)
    return solved(matrix, wanted)


def solved(matrix: list[Vector], wanted: Vector) -> Vector:
    """Return the solution x of A x = b for a positive definite A, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, wanted, strict=True)]
    size = len(rows)
    for pivot in range(size):
        for below in range(pivot + 1, size):
            factor = rows[below][pivot] / rows[pivot][pivot]
            if factor:
                rows[below] = [a - factor * b for a, b in zip(rows[below], rows[pivot], strict=True)]
    found = [0.0] * size
    for index in reversed(range(size)):
        known = sum(rows[index][other] * found[other] for other in range(index + 1, size))
        found[index] = (rows[index][size] - known) / rows[index][index]
    return found
