"""The validator's rules for single parameters (TGI `router/src/validation.rs`)."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from tgi_deploy.sandbox.engine.messages import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.sandbox.engine.bodies import Grammar, Parameters
    from tgi_deploy.sandbox.engine.situation import Situation


def check_parameters(parameters: Parameters, situation: Situation, *, streaming: bool) -> None:
    """Check single values.

    Raises:
        ApiError: kind `validation`.
    """
    problems = (
        *_of_candidates(parameters, situation.arguments.get("max-best-of", 2), streaming=streaming),
        *_of_sampling(parameters),
        *_of_output(parameters, situation, streaming=streaming),
    )
    if problems:
        raise ApiError("validation", problems[0])


def _of_candidates(parameters: Parameters, most: int, *, streaming: bool) -> Iterator[str]:
    count = parameters.best_of or 1
    if count == 1:
        return
    if count > most:
        yield f"`best_of` must be > 0 and <= {most}. Given: {count}"
    if streaming:
        yield "`best_of` != 1 is not supported when streaming tokens"
    if not parameters.samples:
        yield "you must use sampling when `best_of` is > 1"
    if parameters.seed is not None:
        yield "`seed` must not be set when `best_of` > 1"


def _of_sampling(parameters: Parameters) -> Iterator[str]:
    for name in ("temperature", "repetition_penalty"):
        value = getattr(parameters, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield f"`{name}` must be strictly positive"
    penalty = parameters.frequency_penalty
    if penalty is not None and not -2 <= penalty <= 2:  # noqa: PLR2004 -- the API's own range
        yield "`frequency_penalty` must be >= -2.0 and <= 2.0"
    for name in ("top_p", "typical_p"):
        value = getattr(parameters, name)
        if value is not None and not 0 < value < 1:
            yield f"`{name}` must be > 0.0 and < 1.0"
    for name in ("top_k", "max_new_tokens"):
        value = getattr(parameters, name)
        if value is not None and value <= 0:
            yield f"`{name}` must be strictly positive"


def _of_output(parameters: Parameters, situation: Situation, *, streaming: bool) -> Iterator[str]:
    arguments, cut, longest = situation.arguments, parameters.truncate, situation.limits.max_input_tokens
    if cut is not None and not 0 < cut <= longest:
        yield f"`truncate` must be strictly positive and less than {longest}. Given: {cut}"
    stops, most = len(parameters.stop), arguments.get("max-stop-sequences", 4)
    if stops > most:
        yield f"`stop` supports up to {most} stop sequences. Given: {stops}"
    alternatives, most = parameters.top_n_tokens or 0, arguments.get("max-top-n-tokens", 5)
    if alternatives > most:
        yield f"`top_n_tokens` must be >= 0 and <= {most}. Given: {alternatives}"
    if streaming and parameters.decoder_input_details:
        yield "`decoder_input_details` == true is not supported when streaming tokens"
    if parameters.grammar is not None and arguments.get("disable-grammar-support"):
        yield "grammar is not supported"


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
