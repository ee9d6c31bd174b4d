"""Write docs/schemas.json, the JSON Schemas of `data`, from values/published.py. `--check`: exit 1 if out of date.

A schema of one command is `{"$ref": "schemas.json#/commands/status"}`.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from generated import write_or_check

from tgi_deploy.values.error_results import ErrorData
from tgi_deploy.values.published import DATA

TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "schemas.json"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# msgspec writes decimals as text; `--json` prints numbers, and null for what is not finite.
_DECIMAL: Final = {"type": "string", "format": "decimal"}


def document() -> dict[str, Any]:
    """Return one schema for each command and one for errors, with what they share under `$defs`."""
    kinds = tuple(dict.fromkeys(kind for kinds in DATA.values() for kind in kinds))
    schemas, shared = msgspec.json.schema_components((*kinds, ErrorData), ref_template="#/$defs/{name}")
    of = dict(zip(kinds, schemas[:-1], strict=True))
    commands = {name: {"anyOf": [of[kind] for kind in kinds]} for name, kinds in sorted(DATA.items())}
    published = {"$schema": _DIALECT, "commands": commands, "error": schemas[-1], "$defs": shared}
    found: dict[str, Any] = _as_printed(published)
    return found


def _as_printed(schema: Any) -> Any:  # noqa: ANN401 -- any part of a schema
    if schema == _DECIMAL:
        return {"type": "number"}
    if isinstance(schema, dict):
        return {key: _as_printed(item) for key, item in schema.items()}
    if isinstance(schema, str):  # a docstring, whose indentation Python 3.13 removes and 3.11 keeps
        return inspect.cleandoc(schema)
    return [_as_printed(item) for item in schema] if isinstance(schema, list) else schema


def main() -> int:
    return write_or_check(__doc__, lambda: {TARGET: json.dumps(document(), indent=1) + "\n"})


if __name__ == "__main__":
    sys.exit(main())
