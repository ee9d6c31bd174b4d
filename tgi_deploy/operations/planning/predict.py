"""The use case `predict`: predicts a given configuration, or each row of a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning import predict_memory, predict_speed
from tgi_deploy.planner.performance import client_view
from tgi_deploy.planner.speed_work import Work
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.plan_results import FiguresData, PredictionData

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.plan import Span

_LARGEST: Final = 1_000_000_000
_MS_PER_S: Final = 1000.0

Estimator = Callable[[Mapping[str, str], "Catalog"], Any]


class CaseKind(Frozen, frozen=True, kw_only=True):
    """A kind of rows: the columns that identify it, and its estimator (`value`, `low`, `high`)."""

    name: str
    columns: frozenset[str]
    estimate: Estimator


CASE_KINDS: Final[list[CaseKind]] = [
    CaseKind(name="speed", columns=predict_speed.COLUMNS, estimate=predict_speed.estimate),
    CaseKind(name="memory", columns=predict_memory.COLUMNS, estimate=predict_memory.estimate),
]


class PredictionRequest(Frozen, frozen=True, kw_only=True):
    """One configuration, with words as in a row of a file. `concurrency` None means as many requests as fit."""

    model: str
    accelerator: str
    engine: str
    num_shard: int = 1
    weights: str = "fp16"
    kv: str = "fp16"
    input_tokens: int = 1024
    output_tokens: int = 256
    concurrency: int | None = None
    engine_version: str = ""
    interconnect: str = ""


def concurrency_of(text: str) -> int | None:
    """Return the number of concurrent requests, None for as many as fit ('saturated'). Raises InputError."""
    if text == predict_speed.SATURATED:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= _LARGEST:
        raise InputError(
            "bad_usage",
            f"--concurrency {text[:40]!r} is neither a positive whole number nor 'saturated'",
            hint="write --concurrency 8, for example, or --concurrency saturated",
        )
    return int(text)


def answer(request: PredictionRequest, catalog: Catalog) -> PredictionData:
    """Return the speed that clients of the configuration see. Raises InputError for unknown names."""
    constants = catalog.predictions.speed
    case = predict_speed.parse(_row(request), catalog, constants)
    work = Work(case.setup, constants)
    capacity = work.kv_capacity_tokens()
    seen = client_view(work, case.traffic, capacity)
    clients = request.concurrency or seen.saturation_concurrency or 1
    if request.concurrency is None:
        seen = client_view(work, replaced(case.traffic, clients=float(clients)), capacity)
    tpot = _figures(seen.tpot_ms, seen.tpot_ms_span)
    return PredictionData(
        model=request.model,
        accelerator=case.setup.accelerator.name,
        num_shard=request.num_shard,
        interconnect=case.setup.interconnect if request.num_shard > 1 else "none",
        weights=request.weights,
        kv=request.kv,
        engine=request.engine,
        engine_profile=constants.engine_profile_name(request.engine, request.engine_version),
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        concurrency=clients,
        fits=int(capacity) > 0,
        kv_capacity_tokens=int(capacity),
        ttft_ms=_figures(seen.ttft_ms, seen.ttft_ms_span),
        tpot_ms=tpot,
        tokens_per_s_per_user=FiguresData(
            median=_MS_PER_S / tpot.median, low=_MS_PER_S / tpot.high, high=_MS_PER_S / tpot.low
        ),
        output_tokens_per_s=_figures(seen.output_tokens_per_s, seen.output_tokens_per_s_span),
        saturation_concurrency=seen.saturation_concurrency,
    )


def _figures(median: float, span: Span | None) -> FiguresData:
    low, high = (span.low, span.high) if span else (median, median)
    return FiguresData(median=median, low=low, high=high)


def _row(request: PredictionRequest) -> dict[str, str]:
    clients = predict_speed.SATURATED if request.concurrency is None else str(request.concurrency)
    return {
        "hub_id": request.model, "weight_dtype": request.weights, "kv_dtype": request.kv,
        "gpu": request.accelerator, "tp": str(request.num_shard), "n_gpu": str(request.num_shard),
        "interconnect": request.interconnect, "engine": request.engine,
        "engine_version": request.engine_version, "input_len": str(request.input_tokens),
        "output_len": str(request.output_tokens), "concurrency_or_batch": clients, "load": "closed_loop",
        "metric": "tpot_ms",
    }  # fmt: skip


def predict_cases(text: str, catalog: Catalog) -> list[dict[str, Any]]:
    """Return one prediction per row, in order: `value`, `low`, `high`, or `error` for an invalid row.

    Raises:
        InputError: `bad_cases` for a file that is not a CSV, or with an unknown header.
    """
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        rows, header = list(reader), frozenset(reader.fieldnames or ())
    except csv.Error as error:
        raise InputError(
            "bad_cases", f"reading the cases failed: {error}", hint="give a CSV file with a header"
        ) from error
    kind = _kind_of(header)
    return [_predicted(row, kind, catalog) for row in rows]


def _kind_of(header: frozenset[str]) -> CaseKind:
    for kind in CASE_KINDS:
        if kind.columns <= header:
            return kind
    nearest = min(CASE_KINDS, key=lambda kind: len(kind.columns - header))
    missing = ", ".join(sorted(nearest.columns - header))
    raise InputError(
        "bad_cases",
        f"the header matches no kind of case; for {nearest.name} cases it lacks {missing}",
        hint=f"speed cases need the columns {', '.join(sorted(predict_speed.COLUMNS))}",
    )


def _predicted(row: Mapping[str, Any], kind: CaseKind, catalog: Catalog) -> dict[str, Any]:
    if None in row or None in row.values():
        return _failed("the row and the header have different numbers of fields")
    try:
        found = kind.estimate(row, catalog)
    except InputError as error:
        return _failed(error.message)
    return {"value": found.value, "low": found.low, "high": found.high}


def _failed(message: str) -> dict[str, Any]:
    return {"value": None, "low": None, "high": None, "error": message}
