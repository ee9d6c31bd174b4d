"""`parameters` of a generate request: types as the framework checks them, values as the validator does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.replies import ApiError, undeserializable

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNSIGNED: Final = ("best_of", "top_k", "max_new_tokens", "truncate", "seed", "top_n_tokens")
_REAL: Final = ("temperature", "repetition_penalty", "frequency_penalty", "top_p", "typical_p")
_BOOLEAN: Final = ("do_sample", "return_full_text", "watermark", "details", "decoder_input_details")
_FREE: Final[Mapping[str, type]] = {"grammar": dict, "adapter_id": str, "stop": list}
_SIGNED: Final = ("top_k", "max_new_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """`forced_text` is what a grammar or a tool call leaves no choice about."""

    best_of: int | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    typical_p: float | None = None
    do_sample: bool = False
    max_new_tokens: int | None = None
    return_full_text: bool = False
    stop: tuple[str, ...] = ()
    truncate: int | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: int | None = None
    top_n_tokens: int | None = None
    grammar: Mapping[str, Any] | None = None
    adapter_id: str | None = None
    forced_text: str | None = None

    @property
    def samples(self) -> bool:
        chosen = (self.temperature, self.top_k, self.top_p, self.typical_p)
        return self.do_sample or any(value is not None for value in chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The launcher's limits on single parameters."""

    max_best_of: int
    max_stop_sequences: int
    max_top_n_tokens: int
    max_input_tokens: int
    grammar_enabled: bool


def parse_parameters(raw: Mapping[str, Any] | None, *, path: str = "parameters.") -> Parameters:
    """Parameters of the right types. `path` is what the framework puts before a field's name.

    Raises:
        RejectionError: 422 plain text, as the framework words it.
    """
    values: dict[str, Any] = {}
    for name, value in (raw or {}).items():
        if value is None or name not in (*_UNSIGNED, *_REAL, *_BOOLEAN, *_FREE):
            continue
        problem = _type_problem(name, value)
        if problem is not None:
            raise undeserializable(f"{path}{name}: invalid type: {problem}")
        values[name] = tuple(value) if name == "stop" else value
    return Parameters(**values)


def _type_problem(name: str, value: object) -> str | None:
    if name in _BOOLEAN:
        return None if isinstance(value, bool) else f"{_shown(value)}, expected a boolean"
    if name in _UNSIGNED:
        least = -(2**31) if name in _SIGNED else 0
        right = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return None if right else f"{_shown(value)}, expected {'i32' if least else 'u64'}"
    if name in _REAL:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        return None if right else f"{_shown(value)}, expected f32"
    if name == "stop":
        right = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return None if right else f"{_shown(value)}, expected a sequence of strings"
    return None if isinstance(value, _FREE[name]) else f"{_shown(value)}, expected {name}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, str):
        return f'string "{value}"'
    if isinstance(value, int):
        return f"integer `{value}`"
    return f"floating point `{value}`" if isinstance(value, float) else type(value).__name__


def check_parameters(parameters: Parameters, bounds: Bounds, *, streaming: bool) -> None:
    """The validator's rules about single values.

    Raises:
        ApiError: kind `validation`.
    """
    for problem in (
        _best_of_problem(parameters, bounds, streaming=streaming),
        _sampling_problem(parameters),
        _length_problem(parameters, bounds),
        _output_problem(parameters, bounds, streaming=streaming),
    ):
        if problem is not None:
            raise ApiError("validation", problem)


def _best_of_problem(parameters: Parameters, bounds: Bounds, *, streaming: bool) -> str | None:
    count = parameters.best_of
    if count is None or count == 1:
        return None
    if count < 1 or count > bounds.max_best_of:
        return f"`best_of` must be > 0 and <= {bounds.max_best_of}. Given: {count}"
    if streaming:
        return "`best_of` != 1 is not supported when streaming tokens"
    if not parameters.samples:
        return "you must use sampling when `best_of` is > 1"
    return "`seed` must not be set when `best_of` > 1" if parameters.seed is not None else None


def _sampling_problem(parameters: Parameters) -> str | None:
    for name in ("temperature", "repetition_penalty"):
        value = getattr(parameters, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            return f"`{name}` must be strictly positive"
    penalty = parameters.frequency_penalty
    if penalty is not None and not -2 <= penalty <= 2:  # noqa: PLR2004 -- the API's own range
        return "`frequency_penalty` must be >= -2.0 and <= 2.0"
    for name in ("top_p", "typical_p"):
        value = getattr(parameters, name)
        if value is not None and not 0 < value < 1:
            return f"`{name}` must be > 0.0 and < 1.0"
    if parameters.top_k is not None and parameters.top_k <= 0:
        return "`top_k` must be strictly positive"
    return None


def _length_problem(parameters: Parameters, bounds: Bounds) -> str | None:
    if parameters.max_new_tokens is not None and parameters.max_new_tokens <= 0:
        return "`max_new_tokens` must be strictly positive"
    cut = parameters.truncate
    if cut is not None and not 0 < cut <= bounds.max_input_tokens:
        return f"`truncate` must be strictly positive and less than {bounds.max_input_tokens}. Given: {cut}"
    return None


def _output_problem(parameters: Parameters, bounds: Bounds, *, streaming: bool) -> str | None:
    stops, alternatives = len(parameters.stop), parameters.top_n_tokens
    if stops > bounds.max_stop_sequences:
        return f"`stop` supports up to {bounds.max_stop_sequences} stop sequences. Given: {stops}"
    if alternatives is not None and alternatives > bounds.max_top_n_tokens:
        return f"`top_n_tokens` must be >= 0 and <= {bounds.max_top_n_tokens}. Given: {alternatives}"
    if streaming and parameters.decoder_input_details:
        return "`decoder_input_details` == true is not supported when streaming tokens"
    if parameters.grammar is not None and not bounds.grammar_enabled:
        return "grammar is not supported"
    return None
