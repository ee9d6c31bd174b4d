"""Base class of values, and their decoding and encoding with errors that name key and file."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import msgspec

from tgi_deploy.errors import InputError
from tgi_deploy.text import encodable, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.errors import Problem

_T = TypeVar("_T")
DataT = TypeVar("DataT")
OutcomeT = TypeVar("OutcomeT")
_S = TypeVar("_S", bound=msgspec.Struct)
_LONGEST_MESSAGE: Final = 400
_PLACE: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
# Bounds for arithmetic: beyond them, times overflow.
_YEARS: Final = range(2000, 3000)
_LONGEST_S: Final = 100 * 366 * 24 * 3600
_LARGEST_USD: Final = Decimal(10**12)
_MONEY_DIGITS: Final = 6
# The types that `converted` has prepared, and the lock under which it prepares one.
_PREPARED: Final[set[object]] = set()
_PREPARING: Final = threading.Lock()

# The default of a field that is omitted if empty.
UNSET: Final = msgspec.UNSET
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_S)]


# A value in the `data` of a problem; each code has its own keys.
Scalar = bool | int | float | str | None
Row = Mapping[str, Scalar]
Fact = Scalar | Sequence[Scalar | Row] | Row


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value. Subclasses repeat `frozen=True, kw_only=True` because msgspec and type checkers require it."""


class Document(Value, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A value that other versions of this tool also write: unknown keys are ignored."""


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """Like a value, but never decoded, so its annotations may use imports for type checkers only.

    Not a dataclass, because `plan` creates fifty such classes: 0.8 ms each as a dataclass with slots, 0.01 ms this way.
    """


class Result(Frozen, Generic[DataT, OutcomeT], frozen=True, kw_only=True):
    """The result of a use case. `--json` prints `data`, `warnings` and `errors` under these names.

    `errors` are those of a result that still has data, such as the status of a deployment that does not serve.
    `outcome` is the use case's own value, which the command line formats as text; it is not published.
    """

    data: DataT
    outcome: OutcomeT
    warnings: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()
    exit_code: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return `data` exactly as `--json` prints it."""
        found: dict[str, Any] = plain(self.data)
        return found


def replaced(value: _S, **changes: object) -> _S:
    """Return a copy with some fields changed."""
    return msgspec.structs.replace(value, **changes)


def as_dict(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields by name, not converted recursively."""
    return msgspec.structs.asdict(value)


def nested(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields by name, converted recursively, with money as it is."""
    found: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(Decimal,))
    return found


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def changed_fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that differ from their defaults, by name."""
    fields = _fields(type(value))
    return {item.name: here for item in fields if (here := getattr(value, item.name)) != item.default}


class Where(msgspec.Struct, frozen=True):
    """A place in a file, for messages."""

    file: str
    path: str = ""

    def child(self, key: object) -> Where:
        return Where(self.file, f"{self.path}/{key}" if self.path else str(key))

    def error(self, problem: str) -> InputError:
        place = f"{self.file}: {self.path}" if self.path else self.file
        return InputError(
            "bad_profile",
            printable(f"{place}: {problem}", _LONGEST_MESSAGE),
            hint=printable(f"fix {self.file} and try again", _LONGEST_MESSAGE),
        )


def _prepare(kind: type[object]) -> None:
    """Make a type ready for conversions in any thread.

    The first conversion to a type has to be alone: msgspec 0.22.0 lets other threads use its description of a struct
    before it is complete, and the process ends with a segmentation fault.
    """
    if kind not in _PREPARED:
        with _PREPARING:
            msgspec.json.Decoder(kind)
        _PREPARED.add(kind)


def converted(raw: object, kind: type[_T], *, hook: Callable[[type, object], object] | None = None) -> _T:
    """Convert parsed data into a value, in any thread. Raises msgspec.ValidationError."""
    _prepare(kind)
    return msgspec.convert(raw, kind, dec_hook=hook)  # noqa: TID251 -- the only place


def decode(raw: object, kind: type[_T], where: Where) -> _T:
    """Decode data from `where` into a value. Raises InputError `bad_profile`."""
    try:
        return converted(raw, kind)
    except msgspec.ValidationError as error:
        problem = str(error)
        place = _PLACE.search(problem)
        if place is None:
            raise where.error(problem) from None
        below = where
        for key in re.findall(r"[^.\[\]]+", place["path"]):
            below = below.child(key)
        raise below.error(problem[: place.start()]) from None


def as_json(value: object, *, indent: int = 2) -> str:
    """Return the value as JSON, on one line without indent. Raises TypeError if JSON can't represent it."""
    return msgspec.json.format(json.dumps(msgspec.to_builtins(value)), indent=indent)


def part_of(text: bytes, kind: type[_S]) -> _S:
    """Read only the fields of `kind` from a JSON object, skipping the rest. Raises ValueError."""
    _prepare(kind)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def as_value(document: object, kind: type[_T], name: str = "") -> _T:
    """Convert parsed JSON, part `name` of a file, into a value. Raises ValueError with reason and position."""
    try:
        value = converted(document, kind)
    except msgspec.ValidationError as error:
        problem = str(error)
        place = _PLACE.search(problem)
        path = f"{name}{place['path']}".removeprefix(".") if place else name
        reason = problem[: place.start()] if place else problem
        raise ValueError(printable(f"`{path}`: {reason}" if path else reason, _LONGEST_MESSAGE)) from None
    _check_bounds(value)
    return value


def _check_bounds(value: object) -> None:
    """Raise ValueError for amounts and times outside the bounds, at any depth."""
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value) > _LARGEST_USD:
            raise ValueError(f"{str(value)[:40]} is not an amount")
    elif isinstance(value, datetime):
        if value.year not in _YEARS:
            raise ValueError(f"the time {value} is out of range")
    elif isinstance(value, tuple):
        for item in value:
            _check_bounds(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if type(item) not in {str, int, bool, float}:  # a call for each of them takes as long as reading the file
                _check_bounds(item)


def plain(value: Any) -> Any:  # noqa: ANN401, PLR0911 -- takes and gives whatever JSON can hold
    """Return what `--json` prints: money as a number with at most 6 decimals, non-finite numbers as null."""
    if isinstance(value, msgspec.Struct):
        value = {name: item for name, item in as_dict(value).items() if item is not msgspec.UNSET}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, AbstractSet):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, Decimal | float):
        return json_number(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int) else encodable(str(value))


def json_number(value: Decimal | float) -> float | None:
    """Return a number as `plain` does."""
    if not math.isfinite(value):
        return None
    return round(float(value), _MONEY_DIGITS) if isinstance(value, Decimal) else value
