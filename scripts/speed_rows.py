"""Parse the measured rows of `profiles/performance/` and score predictions of them."""

from __future__ import annotations

import csv
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy import data_files
from tgi_deploy.catalog.predictions import SPEED_FILE
from tgi_deploy.operations.planning import predict_speed
from tgi_deploy.values.base import replaced
from tgi_deploy.values.speed_constants import TIMES
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.values.speed_constants import Constants

CLOSE = 0.25
ROWS: Final = "measured.csv"
SOURCES: Final = "sources.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One measured figure. `family` is its source; `log_value` its natural logarithm.

    The figures of one source on one GPU are a cell: a user's own machine is always a new cell.
    """

    row: Mapping[str, str]
    family: str
    case: predict_speed.Case
    log_value: float

    @property
    def core(self) -> bool:
        """Whether it is a clean figure of a current engine: quality A (engine) or B (client overhead or assumption)."""
        return self.row["era"] == "current" and self.row["quality"] in {"A", "B"}

    @property
    def gpu(self) -> str:
        return self.row["gpu"]

    def slowness(self, predicted_log: float) -> float:
        """Return the logarithm of measured over predicted time, whether the figure is a time or a rate."""
        off = self.log_value - predicted_log
        return off if self.row["metric"] in TIMES else -off

    @property
    def cell(self) -> str:
        return f"{self.family} x {self.gpu}"


def folder() -> Path:
    return (data_files.profiles_dir() / SPEED_FILE).parent


def current() -> Constants:
    """Return the committed constants."""
    return open_catalog().predictions.speed


def read(path: Path | None = None) -> list[Measured]:
    """Return the committed rows, or those of another file with the same columns."""
    catalog = open_catalog()
    with (folder() / SOURCES).open(encoding="utf-8", newline="") as file:
        families = {item["source"]: item["family"] for item in csv.DictReader(file)}
    with (path or folder() / ROWS).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("kind", "measured") == "measured"]
    return [
        Measured(
            row=row,
            family=families.get(row["source"], row["source"]),
            case=predict_speed.parse(row, catalog, catalog.predictions.speed),
            log_value=math.log(float(row["value"])),
        )
        for row in rows
    ]


def log_predictions(rows: Iterable[Measured], constants: Constants) -> list[float]:
    """Return the natural logarithms of the medians under `constants`."""
    return [math.log(predict_speed.median(_case(item, constants), constants)) for item in rows]


def unsure_shares(rows: Iterable[Measured], constants: Constants) -> list[float]:
    """Return the shares of the rows' times that are hard to predict, under `constants`."""
    return [predict_speed.unsure(_case(item, constants), constants) for item in rows]


def _case(item: Measured, constants: Constants) -> predict_speed.Case:
    setup = replaced(item.case.setup, engine=constants.engine(*item.case.engine))
    return replaced(item.case, setup=setup)


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Absolute relative errors, as shares: mean, median, and the share of rows within 25 %."""

    rows: int
    mean: float
    median: float
    close: float

    def cells(self) -> tuple[str, str, str, str]:
        return str(self.rows), f"{100 * self.mean:.1f} %", f"{100 * self.median:.1f} %", f"{100 * self.close:.0f} %"


def score(rows: Sequence[Measured], logs: Sequence[float]) -> Score:
    errors = [abs(math.exp(log - item.log_value) - 1) for item, log in zip(rows, logs, strict=True)]
    return Score(
        rows=len(errors),
        mean=statistics.fmean(errors),
        median=statistics.median(errors),
        close=sum(error <= CLOSE for error in errors) / len(errors),
    )
