"""Reads simulation/rules.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from tgi_deploy.values.base import converted


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    what: str
    source: str


def read_rules():
    text = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
    return converted(tomllib.loads(text)["rule"], tuple[Rule, ...])
