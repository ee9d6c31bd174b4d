"""Formats entries of the catalog as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.views.text import table
from tgi_deploy.text import gib, one_line, plural, usd
from tgi_deploy.values.catalog_results import HardwarePrice

if TYPE_CHECKING:
    from tgi_deploy.values.base import Value

_FIGURES = (("bandwidth_gb_s", "GB/S"), ("fp16_tflops", "FP16"), ("fp8_tflops", "FP8"), ("int8_tops", "INT8"))
_VERDICT = (("price", "$/H"), ("engine.verdict", "ENGINE"))
_COLUMNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "accelerators": (
        ("name", "NAME"), ("vendor", "VENDOR"), ("compute_capability", "CC"), ("memory_bytes", "MEMORY"),
        *_FIGURES, *_VERDICT,
    ),
    "instances": (
        ("name", "NAME"), ("status", "STATUS"), ("accelerator", "ACCELERATOR"), ("accelerator_count", "COUNT"),
        ("memory_bytes_per_accelerator", "MEMORY"), ("interconnect", "LINK"), *_VERDICT,
    ),
    "hardware": (
        ("name", "NAME"), ("accelerator", "ACCELERATOR"), ("accelerator_count", "COUNT"), ("memory_bytes", "MEMORY"),
        *_FIGURES, *_VERDICT,
    ),
    "regions": (("name", "NAME"),),
    "engines": (("version", "VERSION"), ("released", "RELEASED"), ("image", "IMAGE"), ("default", "DEFAULT")),
    "models": (("name", "NAME"), ("hub_id", "HUB ID"), ("summary", "SUMMARY")),
}  # fmt: skip


def list_text(kind: str, items: Sequence[Value]) -> str:
    columns = _COLUMNS[kind]
    found = [[(key, _at(item, key)) for key, _ in columns] for item in items]
    numeric = frozenset(at for at in range(len(columns)) if any(_is_number(row[at][1]) for row in found))
    rows = [[_cell(key, value) for key, value in row] for row in found]
    return table([title for _, title in columns], rows, right=numeric) + _dates(columns, items)


def _dates(columns: Sequence[tuple[str, str]], items: Sequence[Value]) -> str:
    """Return the dates of the prices, if there are any."""
    if _VERDICT[0] not in columns:
        return ""
    found = sorted({date for item in items if (date := _at(item, "price.date"))})
    return f"Prices: listed {' to '.join(dict.fromkeys((found[0], found[-1])))}.\n" if found else ""


def _at(item: object, path: str) -> Any:  # noqa: ANN401 -- a field of any entry
    """Return the value at a dotted `path`; None if a value along it is None."""
    key, _, rest = path.partition(".")
    value = getattr(item, key)
    return _at(value, rest) if rest and value is not None else value


def item_text(item: Mapping[str, Any]) -> str:
    """Return a line for each fact. A nested table is indented; a list of tables is only counted."""
    return "".join(f"{line}\n" for line in _lines(item))


def _lines(item: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    width = max(len(key) for key in item)
    for key, value in item.items():
        if _is_table(value):
            yield f"{indent}{key}"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{key:<{width}}  {_cell(key, value)}"


def _is_table(value: object) -> bool:
    if not isinstance(value, Mapping) or "name" in value:
        return False
    return any(not isinstance(inner, Mapping) for inner in value.values())


def _cell(key: str, value: Any) -> str:  # noqa: ANN401 -- any value of a catalog entry
    if value is None or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_number(value):
        return _number(key, value)
    if isinstance(value, Mapping):
        return str(value["name"]) if "name" in value else plural(len(value), "entry", "entries")
    if isinstance(value, list | tuple):
        return _list_cell(value)
    return one_line(str(value))


def _number(key: str, value: float | Decimal | HardwarePrice) -> str:
    if isinstance(value, HardwarePrice):
        return f"{'~' if value.estimated else ''}{usd(value.usd_per_hour)}"
    if isinstance(value, Decimal):
        return usd(value)
    return gib(value) if "_bytes" in key else str(value)


def _list_cell(values: Sequence[object]) -> str:
    if any(isinstance(value, Mapping) for value in values):
        return plural(len(values), "entry", "entries")
    return one_line(", ".join(str(value) for value in values)) or "-"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal | HardwarePrice) and not isinstance(value, bool)
