"""The base of values: frozen, by keyword, and read from data that may hold anything."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value. Read from data, an unknown field or a wrong type is an error that names its place."""
