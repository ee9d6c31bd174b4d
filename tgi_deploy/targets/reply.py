"""Typed access to replies of clouds and hosts: a member that is missing or of the wrong type raises ReplyError.

A network can deliver half a reply, none, or a proxy's login page. Adapters read replies only through `Reply`, so that a
malformed one is a distinct error, never an empty answer or a crash.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_T = TypeVar("_T")
_SHOWN_CHARS: Final = 160
# Nanoseconds since 1970 reach this in 2286; no other number in a reply is as large. Infinity and NaN are not below it.
_MOST: Final = 10**19
_NAMES: Final[Mapping[type, str]] = {
    bool: "a flag",
    int: "a number",
    float: "a number",
    str: "a text",
    datetime: "a moment",
    list: "a list",
    dict: "an object",
}


class ReplyError(Exception):
    """The reply is malformed. The message quotes no content, which may hold secrets."""


@contextmanager
def understood(failures: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn a client library's exceptions, other than its documented `failures`, into ReplyError."""
    known: tuple[type[Exception], ...] = (ReplyError, *failures)
    try:
        yield
    except known:
        raise
    except Exception as error:  # parsers raise anything on malformed bytes: ValueError, KeyError, RuntimeError
        reason = next(iter(str(error).splitlines()), "").partition(". ")[0]
        raise ReplyError(f"{type(error).__name__}: {reason[:_SHOWN_CHARS]}") from error


@dataclass(frozen=True, slots=True)
class Reply:
    """An object in a reply; `path` is its position."""

    content: Mapping[str, Any] = field(repr=False)
    path: str = ""

    @classmethod
    def of(cls, content: object, path: str = "") -> Reply:
        return cls(_as(dict, content, path), path)

    def has(self, member: str) -> bool:
        return self.content.get(member) is not None

    def text(self, member: str, *, prefix: str = "") -> str:
        """Return a non-empty string that starts with `prefix`."""
        found = self._value(member, str)
        if not found:
            raise ReplyError(f"{self._name(member)} is empty")
        if not found.startswith(prefix):
            raise ReplyError(f"{self._name(member)} does not begin with {prefix}")
        return found

    def optional_text(self, member: str) -> str:
        """Return a string, empty if missing."""
        return self._value(member, str) if self.has(member) else ""

    def address(self, member: str) -> str:
        """Return an IP address, empty if missing."""
        found = self.optional_text(member)
        try:
            return str(ip_address(found)) if found else ""
        except ValueError:
            raise ReplyError(f"{self._name(member)} is not an IP address") from None

    def choice(self, member: str, known: Collection[_T]) -> _T:
        found = self._value(member, str)
        chosen = next((item for item in known if item == found), None)
        if chosen is None:
            raise ReplyError(f"{self._name(member)} is not one of {', '.join(map(str, known))}")
        return chosen

    def flag(self, member: str) -> bool:
        """Return a flag, False if missing."""
        return self._value(member, bool) if self.has(member) else False

    def number(self, member: str) -> float:
        found = self._value(member, float if isinstance(self.content.get(member), float) else int)
        if isinstance(found, bool) or not abs(found) < _MOST:
            raise ReplyError(f"{self._name(member)} is not a plausible number")
        return found

    def integer(self, member: str) -> int:
        """Return an integer, 0 if missing."""
        return int(self.number(member)) if self.has(member) else 0

    def moment(self, member: str) -> str:
        """Return a time in ISO 8601, empty if missing."""
        return self._value(member, datetime).isoformat() if self.has(member) else ""

    def time(self, member: str) -> datetime:
        """Return a time parsed from ISO 8601."""
        try:
            return datetime.fromisoformat(self.text(member))
        except ValueError:
            raise ReplyError(f"{self._name(member)} is not a time") from None

    def table(self, member: str) -> dict[str, str]:
        """Return strings by name, empty if missing."""
        named = self.optional_part(member)
        return {name: named.optional_text(name) for name in named.content}

    def part(self, member: str) -> Reply:
        return Reply(self._value(member, dict), self._name(member))

    def optional_part(self, member: str) -> Reply:
        """Return an object, an empty one if missing."""
        return self.part(member) if self.has(member) else Reply({}, self._name(member))

    def parts(self, member: str) -> tuple[Reply, ...]:
        return replies(self._value(member, list), self._name(member))

    def optional_parts(self, member: str) -> tuple[Reply, ...]:
        """Return the objects of a list; none if missing, because services omit empty lists."""
        return self.parts(member) if self.has(member) else ()

    def first(self, member: str) -> Reply:
        """Return the first object of a non-empty list."""
        parts = self.parts(member)
        if not parts:
            raise ReplyError(f"{self._name(member)} is empty")
        return parts[0]

    def texts(self, member: str) -> tuple[str, ...]:
        """Return non-empty strings."""
        listed, name = self._value(member, list), self._name(member)
        found = tuple(_as(str, item, f"{name}[{at}]") for at, item in enumerate(listed))
        if not all(found):
            raise ReplyError(f"{name} has an empty string")
        return found

    def _value(self, member: str, kind: type[_T]) -> _T:
        found = self.content.get(member)
        if isinstance(found, kind):
            return found
        if found is None:
            raise ReplyError(f"it lacks {self._name(member)}")
        return _as(kind, found, self._name(member))

    def _name(self, member: str) -> str:
        return f"{self.path}.{member}" if self.path else member


def replies(content: object, path: str = "") -> tuple[Reply, ...]:
    """Return the objects of a list."""
    return tuple(Reply.of(item, f"{path}[{at}]") for at, item in enumerate(_as(list, content, path)))


def _as(kind: type[_T], content: object, path: str) -> _T:
    if isinstance(content, kind):
        return content
    found = next((name for known, name in _NAMES.items() if isinstance(content, known)), "nothing")
    raise ReplyError(f"{path or 'it'} is {found}, not {_NAMES[kind]}")
