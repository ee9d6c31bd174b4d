"""The supported subset of systemd's unit files: sections, durations, calendars, command lines."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS: Final[Mapping[str, float]] = {
    "": 1,
    "s": 1,
    "sec": 1,
    "second": 1,
    "seconds": 1,
    "ms": 0.001,
    "msec": 0.001,
    "us": 0.000001,
    "m": 60,
    "min": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hr": 3600,
    "hour": 3600,
    "hours": 3600,
    "d": 86400,
    "day": 86400,
    "days": 86400,
    "w": 604800,
    "week": 604800,
    "weeks": 604800,
}
_VARIABLE: Final = re.compile(r"\$\$|\$\{(\w+)\}|\$(\w+)")
_PREFIXES: Final = "-@:+!"


class BadUnitError(ValueError):
    """A unit file, duration, calendar or command line that systemd would reject (or that is unsupported)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    name: str
    settings: tuple[tuple[str, str, str], ...]

    def all(self, section: str, key: str) -> tuple[str, ...]:
        """Return all values of a key, in order; an empty assignment resets the list, as in systemd."""
        found: list[str] = []
        for where, name, value in self.settings:
            if (where, name) == (section, key):
                found = [*found, value] if value else []
        return tuple(found)

    def one(self, section: str, key: str, default: str = "") -> str:
        values = self.all(section, key)
        return values[-1] if values else default

    def flag(self, section: str, key: str) -> bool:
        return self.one(section, key).lower() in {"yes", "true", "on", "1"}

    def numbers(self, section: str, key: str) -> frozenset[int]:
        words = " ".join(self.all(section, key)).split()
        return frozenset(int(word) for word in words if word.isdigit())


def parse_unit(name: str, text: str) -> Unit:
    section = ""
    settings: list[tuple[str, str, str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
            continue
        key, equals, value = stripped.partition("=")
        if not equals or not section:
            raise BadUnitError(f"{name}: not understood: {stripped}")
        settings.append((section, key.strip(), value.strip()))
    return Unit(name=name, settings=tuple(settings))


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


def parse_calendar(text: str) -> float:
    """Parse `@1700000000` or `2026-01-31 12:00:00 UTC` into seconds since the epoch (default zone UTC).

    Raises:
        BadUnitError: a repeating or otherwise unsupported calendar expression.
    """
    words = text.strip().removesuffix(" UTC").removesuffix("Z")
    if words.startswith("@"):
        return float(words[1:])
    try:
        moment = datetime.fromisoformat(words)
    except ValueError as problem:
        raise BadUnitError(f"only absolute calendar times are simulated, not {text!r}") from problem
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    argv: tuple[str, ...]
    ignore_failure: bool


def parse_command(text: str, environment: Mapping[str, str], unit: str) -> CommandLine:
    """Parse an `Exec…=` value: prefixes, specifiers %n and %N, `$NAME` and `${NAME}`, `$$` for a dollar."""
    command = text.strip()
    body = command.lstrip(_PREFIXES)
    prefixes = command[: len(command) - len(body)]
    named = body.replace("%n", unit).replace("%N", unit.rpartition(".")[0]).replace("%%", "%")
    try:
        words = shlex.split(named)
    except ValueError as problem:
        raise BadUnitError(f"{unit}: unbalanced quotes: {body}") from problem
    if not words:
        raise BadUnitError(f"{unit}: empty command")
    argv = tuple(_expanded(word, environment) for word in words)
    return CommandLine(argv=argv, ignore_failure="-" in prefixes)


def _expanded(word: str, environment: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return environment.get(found[1] or found[2], "")

    return _VARIABLE.sub(value, word)


def parse_environment(text: str) -> dict[str, str]:
    """Parse an EnvironmentFile: KEY=VALUE, quotes removed, comments and blank lines skipped."""
    pairs = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#;" and "=" in stripped:
            key, _, value = stripped.partition("=")
            pairs[key.strip()] = " ".join(shlex.split(value)) if value[:1] in {"'", '"'} else value
    return pairs
