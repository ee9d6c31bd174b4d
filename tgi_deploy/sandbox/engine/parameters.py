"""The validator's rules for single parameters (TGI `router/src/validation.rs`)."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.messages import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.sandbox.engine.bodies import Grammar, Parameters
    from tgi_deploy.sandbox.engine.situation import Situation


def check_parameters(parameters: Parameters, situation: Situation, *, streaming: bool) -> None:
    """Check single values, in the validator's order. Raises ApiError `validation`."""
    get, longest, given = situation.arguments.get, situation.limits.max_input_tokens, parameters
    best_of, most_best_of = given.best_of or 1, get("max-best-of", 2)
    stops, most_stops = len(given.stop), get("max-stop-sequences", 4)
    top, most_top, cut = given.top_n_tokens or 0, get("max-top-n-tokens", 5), given.truncate
    several = best_of > 1
    rules = (
        (best_of > most_best_of, f"`best_of` must be > 0 and <= {most_best_of}. Given: {best_of}"),
        (several and streaming, "`best_of` != 1 is not supported when streaming tokens"),
        (several and not given.samples, "you must use sampling when `best_of` is > 1"),
        (several and given.seed is not None, "`seed` must not be set when `best_of` > 1"),
        (not _positive(given.temperature), "`temperature` must be strictly positive"),
        (not _positive(given.repetition_penalty), "`repetition_penalty` must be strictly positive"),
        (abs(given.frequency_penalty or 0) > 2, "`frequency_penalty` must be >= -2.0 and <= 2.0"),  # noqa: PLR2004
        (not _positive(given.top_p, 1), "`top_p` must be > 0.0 and < 1.0"),
        (not _positive(given.typical_p, 1), "`typical_p` must be > 0.0 and < 1.0"),
        (not _positive(given.top_k), "`top_k` must be strictly positive"),
        (not _positive(given.max_new_tokens), "`max_new_tokens` must be strictly positive"),
        (
            not _positive(cut, longest + 1),
            f"`truncate` must be strictly positive and less than {longest}. Given: {cut}",
        ),
        (stops > most_stops, f"`stop` supports up to {most_stops} stop sequences. Given: {stops}"),
        (top > most_top, f"`top_n_tokens` must be >= 0 and <= {most_top}. Given: {top}"),
        (
            streaming and given.decoder_input_details,
            "`decoder_input_details` == true is not supported when streaming tokens",
        ),
        (given.grammar is not None and get("disable-grammar-support"), "grammar is not supported"),
    )
    problem = next((words for broken, words in rules if broken), None)
    if problem is not None:
        raise ApiError("validation", problem)


def _positive(value: float | None, below: float = math.inf) -> bool:
    return value is None or 0 < value < below


def forced_text(grammar: Grammar) -> str | None:
    """Return the only text that a grammar allows; None if it allows several. Raises ApiError."""
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
    unknown = next((kind for kind in _types(schema) if kind not in (*_SIMPLE, "array", "object")), None)
    if unknown is not None:
        why = f"{json.dumps(unknown)} is not valid under any of the schemas listed in the 'anyOf' keyword"
        raise ApiError("validation", f"grammar is not valid: {why}")
    return json.dumps(example(schema))


_SIMPLE: Final = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_DEPTH: Final = 12


def _types(schema: object, depth: int = _DEPTH) -> Iterator[object]:
    """Yield the types that a schema names."""
    if isinstance(schema, dict) and depth:
        kind, parts = schema.get("type", "object"), schema.get("properties")
        yield from kind if isinstance(kind, list) else (kind,)
        for part in (*(parts.values() if isinstance(parts, dict) else ()), schema.get("items")):
            yield from _types(part, depth - 1)


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
