"""A deployment as JSON text and back. Older schemas are upgraded here; newer ones are refused by name."""

from __future__ import annotations

from tgi_deploy import bounded_json
from tgi_deploy.reconcile.model import SCHEMA, Deployment, Event
from tgi_deploy.values.base import as_json, as_value


class NewerSchemaError(ValueError):
    """Written by a newer version of this tool."""


def encode(deployment: Deployment) -> str:
    return f"{as_json(deployment)}\n"


def encode_event(event: Event) -> str:
    return f"{as_json(event, indent=0)}\n"


def decode_event(line: str) -> Event | None:
    """An event, or None for a line that is not one."""
    try:
        return as_value(bounded_json.parse_object(line), Event)
    except ValueError:
        return None


def decode(text: bytes | str) -> Deployment:
    """Read a record. Raises NewerSchemaError, or ValueError saying what is wrong with it."""
    document = bounded_json.parse_object(text)
    _check_schema(document.get("schema"))
    planned = document.get("plan") or None  # before 2026-11-23 no plan was an empty one
    return as_value({**document, "plan": planned}, Deployment)


def _check_schema(schema: object) -> None:
    if not isinstance(schema, int):
        raise ValueError("the key 'schema' is missing or not a number")  # noqa: TRY004 -- a document's value, not a caller's
    if schema > SCHEMA:
        raise NewerSchemaError(f"it has schema {schema}, this version reads up to {SCHEMA}")
    if schema < 1:
        raise ValueError(f"it has schema {schema}, which never existed")
