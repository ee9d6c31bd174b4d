"""`catalog`: what the tool knows about accelerators, instance types, regions, engines and models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command, group
from tgi_deploy.cli.options import profiles_dir_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.catalog import entry_document, item_text, list_text
from tgi_deploy.cli.views.text import WIDTH, heading, wrapped
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import capability, compare, compare_document
from tgi_deploy.text import gib, one_line, usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.compare import Entry
    from tgi_deploy.values.base import Value

_KINDS: Final = ("accelerators", "instances", "regions", "engines", "models")
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


@command("list", examples=tuple(f"tgi-deploy catalog list {kind}" for kind in _KINDS))
@click.argument("kind", type=click.Choice(_KINDS))
@profiles_dir_option
def _list(*, kind: str, profiles_dir: Path | None) -> Result:
    """List every entry of one KIND: accelerators, instances, regions, engines, models."""
    items = _LISTS[kind](wiring.open_catalog(profiles_dir))
    return Result(data={"kind": kind, "items": items}, text=list_text(kind, items))


@command(
    "show",
    examples=("tgi-deploy catalog show L40S", "tgi-deploy catalog show g6e.xlarge", "tgi-deploy catalog show 3.3.7"),
)
@click.argument("name", shell_complete=complete.entries)
@profiles_dir_option
def _show(*, name: str, profiles_dir: Path | None) -> Result:
    """Show everything known about NAME: an accelerator, an instance type, an engine version or a model."""
    kind, item = _find(wiring.open_catalog(profiles_dir), name)
    return Result(data={"kind": kind, "item": item}, text=item_text(item))


@command(
    "compare",
    examples=(
        "tgi-deploy catalog compare A10G L4 L40S",
        "tgi-deploy catalog compare g5.12xlarge g6e.xlarge H100 --region eu-west-1",
        "tgi-deploy catalog compare MI300X Gaudi3 Inferentia2 --json",
        "tgi-deploy catalog compare all",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete.hardware_names)
@click.option("--region", metavar="REGION", help="Prices of this region.  [default: the configured one]")
@click.option("--engine-version", metavar="VERSION", help="Judge by this engine version.  [default: the newest known]")
@profiles_dir_option
def _compare(
    *, names: tuple[str, ...], region: str | None, engine_version: str | None, profiles_dir: Path | None
) -> Result:
    """Compare accelerators and instance types: dense figures, prices, what runs the engine there.

    Figures are of one card. Commonly misquoted ones are flagged; 'all' stands for every accelerator.
    """
    catalog = wiring.open_catalog(profiles_dir)
    said = {
        "region": region or catalog.default_region(os.environ)[0],
        "release": engine_version or catalog.default_release,
    }
    entries = compare(names, catalog, **said)
    return Result(
        data=compare_document(entries, **said, date=catalog.date),
        text=compare_text(entries, engine=catalog.engine.title, **said, date=catalog.date),
    )


def _find(catalog: Catalog, name: str) -> tuple[str, dict[str, Any]]:
    """The entry called `name`, of whichever kind knows it. Raises InputError when none does."""
    finders: tuple[tuple[str, Callable[[str], Value]], ...] = (
        ("accelerator", catalog.accelerator),
        ("instance", catalog.instance_type),
        ("engine", catalog.release),
        ("model", catalog.resolve),
    )
    hints = []
    for kind, find in finders:
        try:
            return kind, entry_document(find(name))
        except InputError as error:
            hints.append(error.hint)
    suggestion = next((hint for hint in hints if hint and "did you mean" in hint.lower()), None)
    raise InputError(
        "unknown_entry",
        f"looking up {name[:200]!r}: no accelerator, instance type, engine version or model has this name",
        hint=suggestion or "'tgi-deploy catalog list accelerators' (or instances, engines, models) shows the names",
    )


def _accelerators(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        {
            "name": item.name,
            "vendor": item.vendor,
            "architecture": item.architecture,
            "compute_capability": ".".join(map(str, item.compute_capability)) if item.compute_capability else None,
            "memory_bytes": item.memory_bytes,
            "bandwidth_gb_s": item.bandwidth_gb_s,
            "fp16_tflops": item.fp16_tflops,
            "confidence": item.confidence,
        }
        for item in catalog.accelerators().values()
    ]


def _instances(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        {
            "name": item.name,
            "status": item.status,
            "accelerator": item.accelerator.name,
            "accelerator_count": item.accelerator_count,
            "memory_bytes_per_accelerator": item.memory_bytes_per_accelerator,
            "vcpus": item.vcpus,
            "ram_bytes": item.ram_bytes,
            "interconnect": item.interconnect,
            "nvme_bytes": item.nvme_bytes,
        }
        for item in catalog.instance_types().values()
    ]


def _regions(catalog: Catalog) -> list[dict[str, Any]]:
    return [{"name": name} for name in catalog.regions()]


def _engines(catalog: Catalog) -> list[dict[str, Any]]:
    releases = [catalog.release(version) for version in catalog.release_versions()]
    return [
        {
            "name": item.name,
            "version": item.version,
            "released": item.released,
            "image": item.image,
            "default": item.version == catalog.default_release,
        }
        for item in releases
    ]


def _models(catalog: Catalog) -> list[dict[str, Any]]:
    """Profiles first, then the hub ids that can be planned for without one."""
    profiles = [catalog.resolve(name) for name in catalog.profile_names()]
    named = [{"name": item.name, "hub_id": item.model.hub_id, "summary": item.summary} for item in profiles]
    taken = {item["hub_id"] for item in named}
    others = [name for name in catalog.hub_ids() if name not in taken]
    return [*named, *({"name": name, "hub_id": name, "summary": ""} for name in others)]


_LISTS: Final[Mapping[str, Callable[[Catalog], list[dict[str, Any]]]]] = {
    "accelerators": _accelerators,
    "instances": _instances,
    "regions": _regions,
    "engines": _engines,
    "models": _models,
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


catalog_command = group(
    "catalog",
    help_text="What the tool knows, with the date and source of each figure.",
    commands=(_list, _show, _compare),
)
