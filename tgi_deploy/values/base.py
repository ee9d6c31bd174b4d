"""The base of values, and how they are read from data files: an error names the file and the key."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, Final, TypeVar

import msgspec

from tgi_deploy.errors import InputError

_T = TypeVar("_T")
_V = TypeVar("_V", bound="Value")
_LONGEST_MESSAGE: Final = 400
_PLACE: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value. Subclasses repeat `frozen=True, kw_only=True`: msgspec and type checkers ask for it."""


def replaced(value: _V, **changes: object) -> _V:
    """Return the value with some fields changed."""
    return msgspec.structs.replace(value, **changes)


def field_names(value: Any) -> tuple[str, ...]:  # noqa: ANN401 -- a value, or a dataclass
    """Return the names of the fields, in their order. Raises TypeError for what has none."""
    if isinstance(value, Value):
        return value.__struct_fields__
    return tuple(item.name for item in fields(value))


class Where(msgspec.Struct, frozen=True):
    """A place in a file, for messages."""

    file: str
    path: str = ""

    def child(self, key: object) -> Where:
        return Where(self.file, f"{self.path}/{key}" if self.path else str(key))

    def error(self, problem: str) -> InputError:
        place = f"{self.file}: {self.path}" if self.path else self.file
        return InputError("bad_profile", _shown(f"{place}: {problem}"), hint=_shown(f"Mend {self.file} and try again."))


def _shown(message: str) -> str:
    """Keys and paths come from files: nothing of them may steer a terminal or fill it."""
    printable = message if message.isprintable() else ascii(message)[1:-1]
    return printable if len(printable) <= _LONGEST_MESSAGE else f"{printable[:_LONGEST_MESSAGE]}…"


def decode(raw: object, kind: type[_T], where: Where) -> _T:
    """Return data that came from `where` as a value. Raises InputError `bad_profile`."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problem = str(error)
        place = _PLACE.search(problem)
        if place is None:
            raise where.error(problem) from None
        below = where
        for key in re.findall(r"[^.\[\]]+", place["path"]):
            below = below.child(key)
        raise below.error(problem[: place.start()]) from None
