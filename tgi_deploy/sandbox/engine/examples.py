"""The smallest value a JSON schema lets through: what a grammar or a tool call is answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIMPLE: Final[Mapping[str, Any]] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
}
_DEPTH: Final = 12


def example(schema: object, depth: int = _DEPTH) -> Any:  # noqa: ANN401 -- any JSON value
    """A value of the schema; keywords beyond type, enum, const, properties and items are not looked at."""
    if not isinstance(schema, dict) or depth == 0:
        return {}
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object")
    kind = str(kind[0]) if isinstance(kind, list) and kind else str(kind)
    return _SIMPLE[kind] if kind in _SIMPLE else _nested(kind, schema, depth - 1)


def _nested(kind: str, schema: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401 -- any JSON value
    if kind == "array":
        return [example(schema["items"], depth)] if "items" in schema else []
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: example(part, depth) for name, part in properties.items()}
