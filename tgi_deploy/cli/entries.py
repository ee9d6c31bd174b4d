"""Catalogue entries as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tgi_deploy.values.base import Value, as_dict


def entry_document(entry: Value) -> dict[str, Any]:
    """A catalogue entry with its fields' names as keys, entries inside it likewise."""
    return {name: _field(name, item) for name, item in as_dict(entry).items()}


def _field(name: str, value: object) -> object:
    if "compute_capability" in name and isinstance(value, tuple):
        return ".".join(map(str, value))
    return _plain(value)


def _plain(value: object) -> object:
    if isinstance(value, Value):
        return entry_document(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
