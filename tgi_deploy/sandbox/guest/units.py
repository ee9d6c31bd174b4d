"""The supported subset of systemd's unit files: sections of single settings, durations, command lines."""

from __future__ import annotations

import configparser
import re
import shlex
from collections import defaultdict
from string import Template
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    Unit = configparser.ConfigParser

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIXES: Final = "-@:+!"


class BadUnitError(ValueError):
    """A unit file, duration or command line that systemd would reject (or that is unsupported)."""


def parse_unit(name: str, text: str) -> Unit:
    """Return the unit's sections. Of a repeated setting the last one counts, which differs from systemd."""
    unit = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    setattr(unit, "optionxform", str)  # noqa: B010 -- names of settings have capitals; a method is no variable to mypy
    unit.read_dict({"Unit": {}, "Service": {}, "Timer": {}, "Install": {}})
    try:
        unit.read_string(text)
    except configparser.Error as problem:
        raise BadUnitError(f"{name}: not understood: {problem}") from problem
    return unit


def parse_span(text: str) -> float:
    """Parse `5min 20s` into seconds; `infinity` is infinite.

    Raises:
        BadUnitError: not a time span.
    """
    if text.strip() == "infinity":
        return float("inf")
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip() or any(unit not in _SECONDS for _, unit in parts):
        raise BadUnitError(f"not a time span: {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_command(text: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Parse an `Exec…=` value: a prefix, `$NAME` and `${NAME}`, `$$` for a dollar."""
    try:
        words = shlex.split(text.strip().lstrip(_PREFIXES))
    except ValueError as problem:
        raise BadUnitError(f"unbalanced quotes: {text}") from problem
    if not words:
        raise BadUnitError("empty command")
    known = defaultdict(str, environment)
    return tuple(Template(word).safe_substitute(known) for word in words)
