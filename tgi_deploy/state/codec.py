"""Encodes deployments as JSON and back. Older schemas are upgraded; newer ones are rejected."""

from __future__ import annotations

from typing import Any

from tgi_deploy import bounded_json
from tgi_deploy.state.first_schema import MACHINES, upgraded, with_current_keys
from tgi_deploy.values.base import Document, as_json, as_value, part_of
from tgi_deploy.values.deployment import SCHEMA, Deployment, Event


class NewerSchemaError(ValueError):
    """Written by a newer version of this tool."""


class _Numbers(Document, frozen=True, kw_only=True):
    schema: int
    serial: int


def encode(deployment: Deployment) -> str:
    return f"{as_json(deployment)}\n"


def encode_event(event: Event) -> str:
    return f"{as_json(event, indent=0)}\n"


def decode_event(line: str) -> Event | None:
    """Return the event, or None for a line that is not one."""
    try:
        event = bounded_json.parse_object(line)
        data = event.get("data")
        return as_value({**event, "data": _marked(data)} if isinstance(data, dict) else event, Event)
    except ValueError:
        return None


def decode(text: bytes | str) -> Deployment:
    """Decode a record. Raises NewerSchemaError, or ValueError with the reason."""
    document = _with_current_plans(bounded_json.parse_object(text))
    _check_schema(document.get("schema"))
    return upgraded(document) if document["schema"] < SCHEMA else as_value(document, Deployment)


def _with_current_plans(holder: dict[str, Any]) -> dict[str, Any]:
    """Return a record or a revision whose plans have their current keys."""
    found = {**holder, "plan": with_current_keys(holder["plan"])} if "plan" in holder else holder
    revisions = holder.get("revisions")
    if not isinstance(revisions, list):
        return found
    return {**found, "revisions": [_with_current_plans(item) if isinstance(item, dict) else item for item in revisions]}


def serial(text: bytes) -> int | None:
    """Return the serial of a record without decoding the rest, or None for an old or unreadable one."""
    try:
        found = part_of(text, _Numbers)
    except ValueError:
        return None
    return found.serial if found.schema == SCHEMA else None


def _marked(thing: dict[str, Any]) -> dict[str, Any]:
    """Return an event's resource data with `is_machine`, which the first release did not write."""
    return {"is_machine": thing["kind"] in MACHINES, **thing} if "kind" in thing else thing


def _check_schema(schema: object) -> None:
    if not isinstance(schema, int):
        raise ValueError("the key 'schema' is missing or not a number")  # noqa: TRY004 -- a document's value, not a caller's
    if schema > SCHEMA:
        raise NewerSchemaError(f"it has schema {schema}, this version reads up to {SCHEMA}")
    if schema < 1:
        raise ValueError(f"it has schema {schema}, which never existed")
