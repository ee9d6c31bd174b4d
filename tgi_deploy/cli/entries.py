"""Catalogue entries as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from tgi_deploy.values.base import Value, field_names


def entry_document(entry: Any) -> dict[str, Any]:  # noqa: ANN401 -- any value of the catalogue
    """A catalogue entry with its fields' names as keys, entries inside it likewise."""
    return {name: _field(name, getattr(entry, name)) for name in field_names(entry)}


def _field(name: str, value: object) -> object:
    if "compute_capability" in name and isinstance(value, tuple):
        return ".".join(map(str, value))
    return _plain(value)


def _plain(value: object) -> object:
    if is_dataclass(value) or isinstance(value, Value):
        return entry_document(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
