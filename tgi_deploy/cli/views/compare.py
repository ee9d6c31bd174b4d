"""A comparison as text of at most 100 columns: blocks of as many columns as fit, then what needs sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.views.text import WIDTH, heading, wrapped
from tgi_deploy.operations.planning.compare import capability
from tgi_deploy.text import gib, one_line, usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.planning.compare import Entry

_UNKNOWN: Final = "-"
_VERDICTS: Final = {"runs": "runs", "by_hand": "by hand", "override": "--allow-turing", "no": "no"}
_FIGURES: Final = {
    "fp16_tflops": "FP16 TFLOPS",
    "fp8_tflops": "FP8 TFLOPS",
    "int8_tops": "INT8 TOPS",
    "bandwidth_gb_s": "bandwidth, GB/s",
    "compute_capability": "compute capability",
    "memory": "memory",
}


def compare_text(entries: Sequence[Entry], *, engine: str, region: str, release: str, date: str) -> str:
    """`engine`: as messages write its name."""
    blocks = [
        heading("Each card, dense figures", f"{engine} {release}, on-demand in {region}, figures of {date}"),
        *(_block(columns, engine) for columns in _blocks(entries, engine)),
        _engine(entries, engine),
        _misquoted(entries),
        _sources(entries, engine),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rows(entries: Sequence[Entry], engine: str) -> list[list[str]]:
    """The label and one cell an entry, for every figure that any of them has."""
    figures: tuple[tuple[str, Callable[[Entry], str]], ...] = (
        ("accelerator", lambda entry: entry.accelerator.name),
        ("cards", _cards),
        ("architecture", lambda entry: entry.accelerator.architecture),
        ("compute capability", lambda entry: capability(entry.accelerator) or _UNKNOWN),
        ("usable memory", lambda entry: gib(entry.memory_bytes)),
        ("bandwidth, GB/s", lambda entry: _number(entry.accelerator.bandwidth_gb_s)),
        ("FP16 TFLOPS", lambda entry: _number(entry.accelerator.fp16_tflops)),
        ("FP8 TFLOPS", lambda entry: _number(entry.accelerator.fp8_tflops)),
        ("INT8 TOPS", lambda entry: _number(entry.accelerator.int8_tops)),
        ("bfloat16", lambda entry: "yes" if entry.accelerator.bf16 else "no"),
        ("interconnect", lambda entry: entry.interconnect),
        ("cheapest machine", lambda entry: entry.price.instance_type if entry.price else _UNKNOWN),
        ("$ an hour", lambda entry: usd(entry.price.usd_per_hour) if entry.price else _UNKNOWN),
        ("$ per GiB-hour", lambda entry: f"${entry.price.usd_per_gib_hour:.4f}" if entry.price else _UNKNOWN),
        (engine, lambda entry: _VERDICTS[entry.running.verdict]),
        ("image", lambda entry: entry.running.backend or _UNKNOWN),
    )
    named = [["", *(entry.name for entry in entries)]]
    cells = [[label, *(cell(entry) for entry in entries)] for label, cell in figures]
    return named + [row for row in cells if row[0] != "accelerator" or row[1:] != named[0][1:]]


def _blocks(entries: Sequence[Entry], engine: str) -> Iterator[Sequence[Entry]]:
    """As many entries side by side as the terminal is wide."""
    start = 0
    for end in range(1, len(entries) + 1):
        if end - start > 1 and max(map(len, _lines(entries[start:end], engine))) > WIDTH:
            yield entries[start : end - 1]
            start = end - 1
    yield entries[start:]


def _block(entries: Sequence[Entry], engine: str) -> str:
    first, *rest = _lines(entries, engine)
    return "\n".join([click.style(first, bold=True), *rest])


def _lines(entries: Sequence[Entry], engine: str) -> list[str]:
    rows = _rows(entries, engine)
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _cards(entry: Entry) -> str:
    return str(entry.cards) if entry.partition == 1 else f"{entry.partition:g} of one"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.10g}"


def _engine(entries: Sequence[Entry], engine: str) -> str:
    """Why the engine runs or does not: one sentence for all that it is true of."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        running = entry.running
        where = f"{running.backend}, {running.image}" if running.image else running.backend
        reason = " ".join(part for part in (f"{where}." if where else "", running.reason) if part)
        names.setdefault(reason, []).append(entry.name)
    lines = [wrapped(f"{', '.join(found)}: {one_line(reason)}", rest="      ") for reason, found in names.items()]
    return "\n".join([heading(f"What runs {engine} there"), *lines])


def _misquoted(entries: Sequence[Entry]) -> str:
    found = dict.fromkeys(item for entry in entries for item in entry.misquoted)
    if not found:
        return ""
    lines = [
        wrapped(
            f"{item.accelerator}: {_FIGURES[item.figure]} is {_value(item.right)}, not {_value(item.quoted)}:"
            f" {one_line(item.why)} ({one_line(item.source)})",
            rest="      ",
        )
        for item in found
    ]
    return "\n".join([heading("Commonly misquoted"), *lines])


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else _number(value)


def _sources(entries: Sequence[Entry], engine: str) -> str:
    lines = []
    for chip in dict.fromkeys(entry.accelerator for entry in entries):
        note = f" {one_line(chip.note)}." if chip.note else ""
        lines.append(wrapped(f"{chip.name}: {chip.source} ({chip.confidence} confidence).{note}", rest="      "))
    builds = dict.fromkeys(entry.running.source for entry in entries if entry.running.source)
    lines += [wrapped(f"{engine}: {one_line(item)}", rest="      ") for item in builds]
    prices = dict.fromkeys(f"{entry.price.source}, {entry.price.date}" for entry in entries if entry.price)
    lines += [wrapped(f"prices: {one_line(item)}", rest="      ") for item in prices]
    return "\n".join([heading("Sources"), *lines])
