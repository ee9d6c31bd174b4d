"""Predicted memory of rows like those of `profiles/memory/measured.csv`: weights, KV cache, peaks and totals.

For planned engines this is the planner's arithmetic; for others, `profiles/memory/engines.json` has the differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning import memory_formats
from tgi_deploy.operations.planning.memory_setup import Setup
from tgi_deploy.values import sizes
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.catalog import Catalog

COLUMNS: Final = frozenset({"model", "weight_dtype", "quant", "gpu_memory_utilization", "engine", "metric", "unit"})
_SURE: Final = 1.25  # "it fits" requires this much headroom: a wrong answer means a machine rented for nothing
_SHORTEST_PROMPTS: Final = 2048
_LONGEST_PROMPTS: Final = 8192
# 80% intervals of the measured rows, as shares of the value, by kind of metric.
_SPREAD: Final = {"weights": 0.015, "kv_cache": 0.04, "kv_cache_tokens": 0.04, "nvidia_smi": 0.045}
_LOOSE_SPREAD: Final = 0.25
_GRAPH_SPREAD_GIB: Final = 0.6
_COUNTED: Final = frozenset(
    {"loaded_weight_bytes_16bit", "parameter_count_stored", "parameter_count", "kv_bytes_per_token"}
)
_COUNTED_SPREAD: Final = 0.001
_STORED: Final = "checkpoint_total"
_STORED_SPREAD: Final = 0.002


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A median with its 80% interval, in the requested unit, or an error."""

    value: float | None
    low: float | None
    high: float | None
    error: str | None = None


def predict_memory_row(row: Mapping[str, str], catalog: Catalog) -> Prediction:
    """Return a row's metric in the row's unit; for a row that can't be predicted, `error` has the reason."""
    try:
        return estimate(row, catalog)
    except InputError as problem:
        return Prediction(value=None, low=None, high=None, error=problem.message)


def estimate(row: Mapping[str, str], catalog: Catalog) -> Prediction:
    """Return a row's metric in the row's unit.

    Raises:
        InputError: `bad_cases` for an invalid metric or number, or the catalog's errors for model and accelerator.
    """
    metric = memory_formats.metric_of(row)
    compute = _METRICS.get(metric.name)
    if compute is None:
        raise _bad_case(f"unknown metric {row.get('metric', '')!r}; the metrics are {', '.join(sorted(_METRICS))}")
    value = compute(Setup.of(row, catalog)) / metric.scale
    spread = _graph_spread(metric) if metric.name == "cuda_graph" else abs(value) * _spread(metric.name)
    return Prediction(value=value, low=value - spread, high=value + spread)


def _bad_case(message: str) -> InputError:
    return InputError("bad_cases", message, hint="give a row like those of profiles/memory/measured.csv")


def _graph_spread(metric: memory_formats.Metric) -> float:
    """Return the interval for CUDA graphs: in logs of one version, measurements are off by -0.9 to 0.4 GiB."""
    return _GRAPH_SPREAD_GIB * GIB / metric.scale


def _spread(metric: str) -> float:
    if metric in _COUNTED:
        return _COUNTED_SPREAD
    return _STORED_SPREAD if metric == _STORED else _SPREAD.get(metric, _LOOSE_SPREAD)


def _loaded(setup: Setup) -> float:
    return setup.model.parameters * 2


def _checkpoint(setup: Setup) -> float:
    """Return the size of the repository's files: the known size, or every parameter once in its format."""
    model, packed = setup.model, setup.packed
    own = model.hub_id == setup.row.get("model", "").strip()
    if own and model.stored_bytes and packed == sizes.UNQUANTIZED:
        return model.stored_bytes
    if "32" in setup.row.get("weight_dtype", ""):
        return model.parameters * 4
    return sizes.stored_bytes(setup.linear_bytes, setup.counts)


def _parameters_stored(setup: Setup) -> float:
    model = setup.model
    if model.stored_bytes and model.quantization is None:
        return model.stored_bytes / (4 if model.torch_dtype == "float32" else 2)
    return model.parameters


def _weights(setup: Setup) -> float:
    return setup.weights_bytes


def _activations(setup: Setup) -> float:
    """Return the larger peak: a prefill, or the sampler with its maximum number of rows; both with hidden states."""
    if setup.planned:
        return setup.budget.activation_bytes
    model = setup.model
    tokens = setup.constant("prefill_tokens") or max(setup.context_tokens, _SHORTEST_PROMPTS)
    if not setup.constant("prefill_tokens") and not setup.context_tokens:
        tokens = min(model.max_position_embeddings, _LONGEST_PROMPTS)
    layer = sizes.layer_values(model, setup.num_shard) - 2 * model.hidden_size
    hidden = tokens * model.hidden_size * 2
    sampler = setup.constant("sampler_rows") * model.vocab_size * setup.constant("sampler_bytes")
    return max(tokens * layer * 2, sampler + hidden)


def _context(setup: Setup) -> float:
    if setup.planned:
        return setup.budget.context_bytes + setup.budget.collective_bytes
    constants, ranks = setup.constants, setup.num_shard
    if constants.get("loose"):
        return float(constants["context_gb"]) * 1e9
    gib: float = constants["context_gib"]
    if ranks > 1:
        gib += constants["collective_gib"] + (ranks - 2) * constants["collective_gib_per_further_rank"]
    return gib * GIB


def _graphs(setup: Setup) -> float:
    if setup.planned:
        return setup.budget.graph_bytes
    if "eager" in setup.row.get("notes", "").lower():
        return 0.0
    constants = setup.constants
    a_layer = constants.get("graph_mib_per_layer", 0)
    if setup.small and setup.num_shard > 1:
        a_layer = constants.get("talking_graph_mib_per_layer", a_layer)
    return float(a_layer) * setup.model.layers * 1024**2


def _cache(setup: Setup) -> float:
    """Return the bytes of the KV cache; 0 if the weights and the profiling run leave no memory.

    For an engine that allocates on demand, return the cache of one request.
    """
    if setup.constants.get("loose"):
        return float(_longest(setup) * setup.kv_bytes_per_token)
    if setup.planned:
        return max(0, setup.budget.kv_capacity_tokens * setup.budget.kv_bytes_per_token)
    taken = setup.weights_bytes + _activations(setup) + _context(setup)
    if setup.constants.get("of_free"):
        return max(0.0, (setup.total_bytes - taken) * setup.share)
    return max(0.0, setup.total_bytes * setup.share - taken)


def _cache_tokens(setup: Setup) -> float:
    if setup.planned:
        return setup.budget.kv_capacity_tokens
    block = _block_tokens(setup)
    return _cache(setup) // (setup.kv_bytes_per_token * block) * block


def _block_tokens(setup: Setup) -> int:
    return int(setup.constants.get("block_tokens", 1))


def _longest(setup: Setup) -> int:
    """Return the length of a request; by default the model's maximum."""
    return setup.context_tokens or setup.model.max_position_embeddings


def _driver_total(setup: Setup) -> float:
    """Return the memory that nvidia-smi shows once the engine serves: its whole share, regardless of the model."""
    if setup.constants.get("loose"):
        return _peak(setup)
    if setup.planned:
        return setup.budget.weights_bytes + setup.budget.overhead_bytes + _cache(setup)
    return setup.total_bytes * setup.share + _graphs(setup)


def _peak(setup: Setup) -> float:
    """Return the peak: for engines that allocate on demand, weights, context, and the cache and logits of a request."""
    constants = setup.constants
    if not constants.get("loose"):
        return _driver_total(setup)
    bits = constants.get("bits", {}).get(setup.row.get("quant", ""))
    packed = sizes.uniform(bits) if bits else setup.packed
    linear = sizes.linear_bytes(setup.model, setup.counts, packed)
    weights = sizes.resident_bytes(setup.model, linear, setup.counts, setup.num_shard, tied_once=True)
    length = setup.context_tokens
    logits = length * setup.model.vocab_size * constants.get("logit_bytes", 0)
    return float(
        weights * constants["growth"] + constants["context_gb"] * 1e9 + length * setup.kv_bytes_per_token + logits
    )


def _beside(setup: Setup) -> float:
    """Return everything on the accelerator except weights and cache."""
    return _activations(setup) + _context(setup) + _graphs(setup) + sizes.CONTEXT_BYTES


def _fits(setup: Setup) -> float:
    """Return 1 if the model certainly starts and holds a request of the given length, else 0."""
    if setup.constants.get("loose"):
        return float(_peak(setup) * _SURE <= setup.total_bytes)
    if setup.planned:
        return float(setup.budget.fits)
    return float(_cache_tokens(setup) >= _SURE * _longest(setup))


def _fails(setup: Setup) -> float:
    return 1.0 - _fits(setup)


_METRICS: Final[Mapping[str, Callable[[Setup], float]]] = {
    "checkpoint_total": _checkpoint,
    "loaded_weight_bytes_16bit": _loaded,
    "parameter_count_stored": _parameters_stored,
    "parameter_count": lambda setup: setup.model.parameters,
    "weights": _weights,
    "activation_peak": _activations,
    "non_torch": _context,
    "cuda_graph": _graphs,
    "kv_cache": _cache,
    "kv_cache_tokens": _cache_tokens,
    "kv_bytes_per_token": lambda setup: setup.kv_bytes_per_token,
    "kv_cache_blocks": lambda setup: _cache_tokens(setup) // _block_tokens(setup),
    "max_concurrency": lambda setup: _cache_tokens(setup) / _longest(setup),
    "nvidia_smi": _driver_total,
    "total": _driver_total,
    "used": _driver_total,
    "gpu_memory_used": _driver_total,
    "memory_used": _driver_total,
    "peak_gpu_memory": _peak,
    "workspace": _beside,
    "fits": _fits,
    "oom": _fails,
    "out_of_memory": _fails,
}
