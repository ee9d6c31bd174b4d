"""`plan --sweep`: one request planned for many values of one of its options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.documents import choice, speed
from tgi_deploy.operations.planning.option_texts import resolve
from tgi_deploy.operations.planning.plan import supply_for
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.text import plural, quoted
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan_options import PLAN_OPTIONS
from tgi_deploy.values.plan_results import SweepRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts

MAX_VALUES: Final = 200

# Options that can be swept → the field of `OptionTexts`.
SWEPT: Final = {row.flag.removeprefix("--"): row.field for row in sorted(PLAN_OPTIONS) if row.sweeps}
_NUMBER: Final = r"\d{1,9}(?:\.\d{1,6})?"
_RANGE: Final = re.compile(rf"({_NUMBER})\.\.({_NUMBER})([*+])({_NUMBER})", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """An option and the values to plan for, as text."""

    setting: str
    values: tuple[str, ...]


def read_sweep(text: str) -> Sweep:
    """Parse `concurrency=1,2,4`, `context=2048..16384*2` (doubling) or `budget=1..10+1` (adding).

    Raises InputError `bad_option_value`.
    """
    setting, equals, values = text.partition("=")
    name = setting.strip().removeprefix("--").replace("_", "-")
    if name not in SWEPT or not equals:
        raise InputError(
            "bad_option_value", f"--sweep {quoted(text)}: {quoted(name)} is not an option that can be swept",
            hint=f"write --sweep concurrency=1,2,4; options are {', '.join(SWEPT)}",
        )  # fmt: skip
    found = tuple(dict.fromkeys(value for part in values.split(",") for value in _values(part.strip(), text)))
    if len(found) > MAX_VALUES:
        raise _too_many(text)
    return Sweep(setting=name, values=found)


def _values(part: str, text: str) -> Iterator[str]:
    if not part:
        raise InputError(
            "bad_option_value", f"--sweep {quoted(text)}: a value is missing", hint="write --sweep concurrency=1,2,4"
        )  # fmt: skip
    match = _RANGE.fullmatch(part)
    if match is None and ".." in part:
        raise InputError(
            "bad_option_value", f"--sweep {quoted(text)}: {quoted(part)} is not a range",
            hint="write 2048..16384*2 to multiply, or 1..10+1 to add",
        )  # fmt: skip
    if match is None:
        yield part
        return
    first, last, step = (Decimal(match.group(group)) for group in (1, 2, 4))
    yield from _range(first, last, match.group(3), step, text)


def _range(first: Decimal, last: Decimal, sign: str, step: Decimal, text: str) -> Iterator[str]:
    grows = step > 1 and first > 0 if sign == "*" else step > 0
    if not grows or last < first:
        raise InputError(
            "bad_option_value", f"--sweep {quoted(text)}: the range does not increase from {first} to {last}",
            hint="write 2048..16384*2 to multiply, or 1..10+1 to add",
        )  # fmt: skip
    value, number = first, 0
    while value <= last:
        number += 1
        if number > MAX_VALUES:
            raise _too_many(text)
        yield f"{value.normalize():f}"
        value = value * step if sign == "*" else value + step


def _too_many(text: str) -> InputError:
    return InputError(
        "bad_option_value", f"--sweep {quoted(text)}: more than {MAX_VALUES} values", hint="use larger steps"
    )  # fmt: skip


def plan_each(texts: OptionTexts, sweep: Sweep, catalog: Catalog, environ: Mapping[str, str]) -> tuple[SweepRow, ...]:
    """Return one row per value, in order. A row for an invalid value has its error.

    Raises:
        InputError: for the model, and for a request that is invalid with every value.
    """
    catalog.resolve(texts.model)
    rows = tuple(_row(texts, SWEPT[sweep.setting], value, catalog, environ) for value in sweep.values)
    errors = [row for row in rows if isinstance(row, InputError)]
    if len(errors) == len(rows):
        raise errors[0]
    return tuple(
        row if isinstance(row, SweepRow) else SweepRow(value=value, code=row.code, reason=row.message)
        for value, row in zip(sweep.values, rows, strict=True)
    )


def _row(
    texts: OptionTexts, field: str, value: str, catalog: Catalog, environ: Mapping[str, str]
) -> SweepRow | InputError:
    changes: dict[str, Any] = {field: (value,) if field == "regions" else value}
    try:
        request = resolve(replaced(texts, **changes), environ, catalog)
        made = make_plan(request, supply_for(request, catalog), catalog.engine)
    except InputError as error:
        return error
    if not isinstance(made, NoFeasiblePlan):
        return SweepRow(
            value=value,
            chosen=choice(made.chosen),
            usd_per_hour=made.chosen.rent_usd_per_hour,
            performance=speed(made.chosen.performance),
            kv_capacity_tokens=made.chosen.memory.kv_capacity_tokens,
        )
    nearest = min(made.rejections, key=attrgetter("distance"), default=None)
    if nearest is None:
        return SweepRow(value=value, code="not_offered", reason="no machine is offered for this request")
    shards = plural(nearest.num_shard, "shard")
    reason = f"{nearest.instance_type}, {shards}, {nearest.quantize}: {nearest.message}"
    return SweepRow(value=value, code=nearest.code, reason=reason)
