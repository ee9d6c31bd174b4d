"""Speed cases: rows with a model, an accelerator, an engine, a load, and one metric to predict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast, get_args

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.memory_setup import nearest_release
from tgi_deploy.planner import speed_load, speed_numerics
from tgi_deploy.planner.speed_load import LoadKind, Traffic
from tgi_deploy.planner.speed_work import Setup, Work
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.engine import DefaultRun
from tgi_deploy.values.speed_constants import KIND_OF_METRIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.planner.speed_load import Timing
    from tgi_deploy.values.hardware import Accelerator, Interconnect
    from tgi_deploy.values.model import ModelSpec
    from tgi_deploy.values.speed_constants import Constants

COLUMNS: Final = frozenset(
    {
        "hub_id", "weight_dtype", "kv_dtype", "gpu", "tp", "engine", "input_len", "output_len",
        "concurrency_or_batch", "load", "metric",
    }
)  # fmt: skip
PREFILL: Final = "max_batch_prefill_tokens"  # an optional column: the engine's flag, else its own choice
METRICS: Final = (
    "ttft_ms", "tpot_ms", "e2e_ms", "decode_tok_s_per_user", "decode_tok_s_total", "max_throughput_tok_s", "req_s",
)  # fmt: skip
SATURATED: Final = "saturated"
_SIXTEEN_BITS: Final = 16.0
_MOST: Final = 1_000_000_000
_LINKS: Final[Mapping[str, Interconnect]] = {
    "none": "none", "nvlink": "nvlink", "nvswitch": "nvlink", "xgmi": "nvlink", "neuronlink": "neuronlink",
    "ethernet": "ethernet", "pcie": "pcie", "pcie-p2p": "pcie-p2p",
}  # fmt: skip
_GENERATION: Final = re.compile(r"[ _-]*(gen *|v)?\d+(\.\d+)?( *x\d+)?$")


class Case(Frozen, frozen=True, kw_only=True):
    """A parsed row. `engine` is a name and a version; `replicas` are groups of accelerators that share the clients."""

    engine: tuple[str, str]
    setup: Setup
    traffic: Traffic
    replicas: int
    metric: str


class Estimate(Frozen, frozen=True, kw_only=True):
    value: float
    low: float
    high: float


def estimate(row: Mapping[str, str], catalog: Catalog) -> Estimate:
    """Return the median and the 80% interval of the row's metric.

    Raises:
        InputError: like `parse`, and `does_not_fit` if the weights alone exceed the memory.
    """
    constants = catalog.predictions.speed
    case = parse(row, catalog, constants)
    _check_weights(case.setup, constants)
    return interval(case, constants)


def _check_weights(setup: Setup, constants: Constants) -> None:
    weights, memory = Work(setup, constants).weight_bytes, setup.accelerator.memory_bytes * setup.num_shard
    if weights > memory:
        raise InputError(
            "does_not_fit",
            f"the weights take {weights / 1e9:,.1f} GB, but {setup.num_shard} x {setup.accelerator.name} have"
            f" {memory / 1e9:,.1f} GB",
            hint="write more accelerators in the column tp, or a weight_dtype with fewer bits",
        )


def interval(case: Case, constants: Constants) -> Estimate:
    value = median(case, constants)
    low, high = constants.interval(case.metric, unsure(case, constants))
    return Estimate(value=value, low=value * low, high=value * high)


def median(case: Case, constants: Constants) -> float:
    """Return the predicted median in the metric's unit."""
    return _metric(case, _seen(case, Work(case.setup, constants)))


def unsure(case: Case, constants: Constants) -> float:
    """Return the share of the figure's time that is hard to predict."""
    work = Work(case.setup, constants)
    return speed_load.unsure(work, case.traffic, _seen(case, work), KIND_OF_METRIC[case.metric])


def _seen(case: Case, work: Work) -> Timing:
    return speed_load.timing(work, case.traffic, work.kv_capacity_tokens())


def _metric(case: Case, seen: Timing) -> float:
    if case.metric in {"ttft_ms", "tpot_ms", "e2e_ms"}:
        return 1e3 * {"ttft_ms": seen.ttft_s, "tpot_ms": seen.tpot_s, "e2e_ms": seen.e2e_s}[case.metric]
    if case.metric == "decode_tok_s_per_user":
        return 1 / seen.tpot_s
    requests = case.replicas * seen.requests_per_s()
    return requests if case.metric == "req_s" else requests * case.traffic.output_tokens


def parse(row: Mapping[str, str], catalog: Catalog, constants: Constants) -> Case:
    """Parse a row. Raises InputError `bad_cases`, `unknown_model`, `unknown_accelerator`."""
    shards = whole(row, "tp")
    replicas = max(1, whole(row, "n_gpu") // shards) if row.get("n_gpu") else 1
    return Case(
        engine=_engine(row),
        setup=_setup(row, catalog, constants, shards),
        traffic=_traffic(row, replicas),
        replicas=replicas,
        metric=_one_of(row, "metric", METRICS),
    )


def _setup(row: Mapping[str, str], catalog: Catalog, constants: Constants, shards: int) -> Setup:
    accelerator = catalog.accelerator(_text(row, "gpu"))
    weights = _format(row, "weight_dtype", speed_numerics.WEIGHT_WORDS)
    kv = _format(row, "kv_dtype", tuple(speed_numerics.KV_BITS))
    model = catalog.resolve(_text(row, "hub_id")).model
    numerics = speed_numerics.of_words(weights, kv, accelerator)
    if not model.experts:  # without experts, the format for experts applies to all weights
        numerics = replaced(numerics, linear_bits=numerics.expert_bits)
    return Setup(
        model=model,
        numerics=numerics,
        accelerator=accelerator,
        num_shard=shards,
        interconnect=_interconnect(row, accelerator.interconnect, constants),
        engine=constants.engine(*_engine(row)),
        prefill_tokens=_number(row, PREFILL)
        if _optional_text(row, PREFILL)
        else _own_prefill(row, catalog, model, accelerator),
    )


def _own_prefill(row: Mapping[str, str], catalog: Catalog, model: ModelSpec, accelerator: Accelerator) -> float | None:
    """Return the prefill batch that a planned engine's release chooses; None for the value in the engine's profile."""
    name, (words, version) = catalog.engine.name, _engine(row)
    if catalog.predictions.speed.engine_profile_name(words, version) != name:
        return None
    usual = int(catalog.predictions.memory(name)["old_prefill_tokens"])
    run = DefaultRun(
        model=model, bits=_SIXTEEN_BITS, num_shard=whole(row, "tp"), accelerator=accelerator.name,
        total_bytes=accelerator.memory_bytes, share=1.0,
        prefill_tokens=max(usual, int(_number(row, "input_len"))),
    )  # fmt: skip
    return catalog.engine.default_prefill_tokens(run, catalog.release(nearest_release(version, catalog)))


def _engine(row: Mapping[str, str]) -> tuple[str, str]:
    return _text(row, "engine"), _optional_text(row, "engine_version")


def _format(row: Mapping[str, str], column: str, known: tuple[str, ...]) -> str:
    word = speed_numerics.folded_word(_text(row, column), known)
    if word is None:
        raise _bad(column, _text(row, column), f"one of {', '.join(known)}")
    return word


def _traffic(row: Mapping[str, str], replicas: int) -> Traffic:
    """Return the traffic. With the load `open`, the column of clients is the number of arrivals per second."""
    kind = cast("LoadKind", _one_of(row, "load", get_args(LoadKind)))
    saturated = kind != "open" and _text(row, "concurrency_or_batch").lower() == SATURATED
    each = 0.0 if saturated else _number(row, "concurrency_or_batch") / replicas
    return Traffic(
        input_tokens=_number(row, "input_len"),
        output_tokens=_number(row, "output_len"),
        clients=None if saturated or kind == "open" else max(1.0, each),
        kind=kind,
        arrivals_per_s=each if kind == "open" else 0.0,
    )


def _interconnect(row: Mapping[str, str], own: Interconnect, constants: Constants) -> Interconnect:
    """Return the row's link, else the accelerator's; `none` means no link, whatever the number of accelerators.

    PCIe on EC2 instances, and for engines whose authors measure on them, goes through the host's memory.
    """
    message = _optional_text(row, "interconnect").lower()
    link = _LINKS.get(_GENERATION.sub("", message))
    if link is None and message:
        raise _bad("interconnect", message, f"one of {', '.join(_LINKS)}")
    if link is None or link == "none":
        return own
    through_host = bool(_optional_text(row, "instance")) or constants.pcie_through_host(_text(row, "engine"))
    return "pcie-p2p" if link == "pcie" and not through_host else link


def _optional_text(row: Mapping[str, str], column: str) -> str:
    """Return an optional column's text; tables use `nan` for a missing value."""
    value = (row.get(column) or "").strip()
    return "" if value.lower() == "nan" else value


def _text(row: Mapping[str, str], column: str) -> str:
    value = (row.get(column) or "").strip()
    if not value:
        raise _bad(column, value, "a value")
    return value


def _one_of(row: Mapping[str, str], column: str, known: tuple[str, ...]) -> str:
    value = _text(row, column).lower()
    if value not in known:
        raise _bad(column, value, f"one of {', '.join(known)}")
    return value


def whole(row: Mapping[str, str], column: str) -> int:
    """Parse a whole number of at least 1; `8.0` is valid."""
    number = _number(row, column)
    if number != int(number):
        raise _bad(column, _text(row, column), "a whole number, 1 or more")
    return int(number)


def _number(row: Mapping[str, str], column: str) -> float:
    """Parse a number of at least 1, not always whole: some records have mean lengths and batch sizes."""
    value = _text(row, column)
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 1 <= number <= _MOST:
        raise _bad(column, value, "a number, 1 or more")
    return number


def _bad(column: str, value: str, wanted: str) -> InputError:
    found = f"is {value[:80]!r}" if value else "is empty"
    return InputError("bad_cases", f"{column} {found}, not {wanted}", hint=f"give {wanted} in the column {column}")
