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
from tgi_deploy.cli.views.text import heading, wrapped
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare, compare_document
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.compare import Entry
    from tgi_deploy.values.base import Value

_HARDWARE: Final = ("accelerators", "instances")
_FIGURES: Final = {
    "fp16_tflops": "FP16 TFLOPS",
    "fp8_tflops": "FP8 TFLOPS",
    "int8_tops": "INT8 TOPS",
    "bandwidth_gb_s": "bandwidth, GB/s",
    "compute_capability": "compute capability",
    "memory": "memory",
}


@command(
    "list",
    examples=(
        *(f"tgi-deploy catalog list {kind}" for kind in (*_HARDWARE, "regions", "engines", "models")),
        "tgi-deploy catalog list A10G L4 L40S g5.12xlarge --region eu-west-1",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="KIND|TYPE...", shell_complete=complete.kinds_or_hardware)
@click.option("--region", metavar="REGION", help="Prices of this region.  [default: the configured one]")
@click.option(
    "--engine-version", metavar="VERSION", help="Engine version to check against.  [default: the newest known]"
)
@profiles_dir_option
def _list(
    *, names: tuple[str, ...], region: str | None, engine_version: str | None, profiles_dir: Path | None
) -> Result:
    """List every entry of one KIND: accelerators, instances, regions, engines, models.

    Or list the accelerators and instance types named. Hardware figures are for one accelerator, dense, with the
    price of the cheapest machine that has it, on demand, and whether the engine runs on it; `catalog show` has more.
    """
    catalog = wiring.open_catalog(profiles_dir)
    kind = names[0] if len(names) == 1 else ""
    if kind in _LISTS:
        items = _LISTS[kind](catalog)
        return Result(data={"kind": kind, "items": items}, text=list_text(kind, items))
    if kind in _HARDWARE:
        names = tuple(catalog.accelerators() if kind == "accelerators" else catalog.instance_types())
    else:
        kind = "hardware"
    terms = _terms(catalog, region, engine_version)
    found = compare_document(compare(names, catalog, **terms), **terms, date=catalog.date)
    return Result(data={"kind": kind, **found}, text=list_text(kind, found["items"]))


def _terms(catalog: Catalog, region: str | None = None, release: str | None = None) -> dict[str, str]:
    """Return the region of the prices, and the engine release to check against."""
    return {
        "region": region or catalog.default_region(os.environ)[0],
        "release": release or catalog.default_release,
    }


@command(
    "show",
    examples=("tgi-deploy catalog show L40S", "tgi-deploy catalog show g6e.xlarge", "tgi-deploy catalog show 3.3.7"),
)
@click.argument("name", shell_complete=complete.entries)
@profiles_dir_option
def _show(*, name: str, profiles_dir: Path | None) -> Result:
    """Show everything known about NAME: an accelerator, an instance type, an engine version or a model.

    For hardware: also the price, whether the engine runs on it, and which of its figures are commonly misquoted.
    """
    catalog = wiring.open_catalog(profiles_dir)
    kind, item = _find(catalog, name)
    if kind not in {"accelerator", "instance"}:
        return Result(data={"kind": kind, "item": item}, text=item_text(item))
    terms = _terms(catalog)
    entries = compare((item["name"],), catalog, **terms)
    [more] = compare_document(entries, **terms, date=catalog.date)["items"]
    item |= {key: more[key] for key in ("price", "engine")}
    text = item_text(item) + _misquoted(entries[0])
    return Result(data={"kind": kind, "item": {**item, "misquoted": more["misquoted"]}}, text=text)


def _find(catalog: Catalog, name: str) -> tuple[str, dict[str, Any]]:
    """Return the entry called `name`, of whatever kind. Raises InputError if there is none."""
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
    """Return profiles first, then the hub ids that can be planned without one."""
    profiles = [catalog.resolve(name) for name in catalog.profile_names()]
    named = [{"name": item.name, "hub_id": item.model.hub_id, "summary": item.summary} for item in profiles]
    taken = {item["hub_id"] for item in named}
    others = [name for name in catalog.hub_ids() if name not in taken]
    return [*named, *({"name": name, "hub_id": name, "summary": ""} for name in others)]


_LISTS: Final[Mapping[str, Callable[[Catalog], list[dict[str, Any]]]]] = {
    "regions": _regions,
    "engines": _engines,
    "models": _models,
}


def _misquoted(entry: Entry) -> str:
    lines = [
        wrapped(
            f"{item.accelerator}: {_FIGURES[item.figure]} is {_value(item.right)}, not {_value(item.quoted)}:"
            f" {one_line(item.why)} ({one_line(item.source)})",
            rest="      ",
        )
        for item in entry.misquoted
    ]
    return "\n".join(["", heading("Commonly misquoted"), *lines, ""]) if lines else ""


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"


catalog_command = group(
    "catalog",
    help_text="What the tool knows, with the date and source of each figure.",
    commands=(_list, _show),
)
