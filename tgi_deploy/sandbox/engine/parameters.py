"""The validator's rules for single parameters (TGI `router/src/validation.rs`)."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.sandbox.engine.failures import ApiError

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.bodies import Grammar, Parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The launcher's limits for single parameters."""

    max_best_of: int
    max_stop_sequences: int
    max_top_n_tokens: int
    max_input_tokens: int
    grammar_enabled: bool


def check_parameters(parameters: Parameters, bounds: Bounds, *, streaming: bool) -> None:
    """Check single values.

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
    if count is None or count <= 1:
        return None
    if count > bounds.max_best_of:
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
    if parameters.max_new_tokens == 0:
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


def forced_text(grammar: Grammar) -> str | None:
    """Return the only text that a grammar allows; None if it allows several.

    Raises:
        ApiError: kind `validation` or `generation`.
    """
    if grammar.type == "regex":
        try:
            re.compile(str(grammar.value))
        except re.error as error:
            raise ApiError("generation", "Request failed during generation: Server error: ") from error
        return None
    try:
        schema = json.loads(grammar.value) if isinstance(grammar.value, str) else grammar.value
    except ValueError as error:
        raise ApiError("validation", f"grammar is not valid: {error}") from error
    if grammar.type == "json_schema" and isinstance(schema, dict):
        schema = schema.get("schema", schema)
    if not isinstance(schema, dict) or "properties" not in schema:
        raise ApiError("validation", "grammar is not valid: Grammar must have a 'properties' field")
    return json.dumps(example(schema))


_SIMPLE = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_DEPTH = 12


def example(schema: object, depth: int = _DEPTH) -> Any:  # noqa: ANN401 -- any JSON value
    """Return the smallest value that a schema allows; only a few keywords are supported."""
    if not isinstance(schema, dict) or depth == 0:
        return {}
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type", "object")
    kind = str(kind[0]) if isinstance(kind, list) and kind else str(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "array":
        return [example(schema["items"], depth - 1)] if "items" in schema else []
    properties = schema.get("properties")
    return {name: example(part, depth - 1) for name, part in properties.items()} if isinstance(properties, dict) else {}
