"""A deployment as JSON text and back. Older schemas are upgraded here; newer ones are refused by name."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from tgi_deploy import bounded_json
from tgi_deploy.reconcile.model import (
    SCHEMA,
    Deployment,
    DeploymentPhase,
    Event,
    RecordPhase,
    ResourceRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
# Bounds for what is calculated with: beyond them, moments overflow.
_YEARS: Final = range(2000, 3000)
_LONGEST_S: Final = 100 * 366 * 24 * 3600
_LARGEST_USD: Final = Decimal(10**12)


class NewerSchemaError(ValueError):
    """Written by a newer version of this tool."""


def encode(deployment: Deployment) -> str:
    """The plan is the largest part and is written often: one line, neither copied nor indented."""
    document = asdict(replace(deployment, plan={}))
    del document["plan"]
    rest = json.dumps(document, indent=2, sort_keys=True, default=_plain).removesuffix("\n}")
    plan = json.dumps(deployment.plan, sort_keys=True, default=_plain)
    return f'{rest},\n  "plan": {plan}\n}}\n'


def encode_event(event: Event) -> str:
    return json.dumps(asdict(event), sort_keys=True, default=_plain) + "\n"


def decode_event(line: str) -> Event | None:
    """An event, or None for a line that is not one."""
    try:
        document = bounded_json.parse_object(line)
        return Event(**{**document, "at": _moment(document["at"]), "data": {**document.get("data", {})}})
    except (ValueError, TypeError, KeyError, ArithmeticError):
        return None


def decode(text: bytes | str) -> Deployment:
    """Read a record. Raises NewerSchemaError, or ValueError saying what is wrong with it."""
    document = bounded_json.parse_object(text)
    _check_schema(document.get("schema"))
    try:
        return _deployment(document)
    except KeyError as error:
        raise ValueError(f"the key {error} is missing") from error
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"a value has the wrong type: {error}") from error


def _check_schema(schema: object) -> None:
    if not isinstance(schema, int):
        raise ValueError("the key 'schema' is missing or no number")  # noqa: TRY004 -- a document's value, not a caller's
    if schema > SCHEMA:
        raise NewerSchemaError(f"it has schema {schema}, this version reads up to {SCHEMA}")
    if schema < 1:
        raise ValueError(f"it has schema {schema}, which never existed")


def _deployment(document: Mapping[str, Any]) -> Deployment:
    return Deployment(
        name=_text(document, "name"),
        id=_text(document, "id"),
        target=_text(document, "target"),
        region=_text(document, "region"),
        phase=_one_of(document["phase"], get_args(DeploymentPhase)),
        created=_moment(document["created"]),
        updated=_moment(document["updated"]),
        wish=_text(document, "wish"),
        plan=dict(document["plan"]),
        resources=tuple(_record(item) for item in document["resources"]),
        endpoint=None if document["endpoint"] is None else _text(document, "endpoint"),
        usd_per_hour=_optional(document["usd_per_hour"], _money),
        ttl_s=_optional(document["ttl_s"], _seconds),
        expires=_optional(document["expires"], _moment),
        idle_s=_optional(document.get("idle_s"), _seconds),  # as lease_*, not in records before 2026-11-21
        lease_s=_optional(document.get("lease_s"), _seconds),
        lease_until=_optional(document.get("lease_until"), _moment),
        attempt=int(document["attempt"]),
        serial=int(document["serial"]),
        owner=str(document.get("owner", "")),  # records before 2026-11-21 have none
    )


def _record(document: Mapping[str, Any]) -> ResourceRecord:
    return ResourceRecord(
        key=_text(document, "key"),
        kind=_text(document, "kind"),
        place=_text(document, "place"),
        phase=_one_of(document["phase"], get_args(RecordPhase)),
        spec=_text(document, "spec"),
        attempt=int(document["attempt"]),
        attributes={str(name): str(value) for name, value in document["attributes"].items()},
        notes={str(name): str(value) for name, value in document["notes"].items()},
    )


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise TypeError(f"'{key}' should be text")
    return value


def _optional(value: Any, read: Callable[[Any], _T]) -> _T | None:  # noqa: ANN401 -- JSON's
    return None if value is None else read(value)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"the moment {text!r} has no zone")
    if found.year not in _YEARS:
        raise ValueError(f"the moment {text!r} is in no year that anything ran in")
    return found


def _seconds(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number of seconds")
    if not 0 <= value <= _LONGEST_S:
        raise ValueError(f"{value} seconds are longer than anything lasts")
    return value


def _money(text: str) -> Decimal:
    found = Decimal(text)
    if not found.is_finite() or abs(found) > _LARGEST_USD:
        raise ValueError(f"{text!r} is not an amount")
    return found


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:  # noqa: ANN401 -- one word of a Literal type
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {', '.join(allowed)}")
    return value


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a record")
