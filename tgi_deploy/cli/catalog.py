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
from tgi_deploy.cli.views.compare import compare_text
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare, compare_document
from tgi_deploy.operations.planning.region import default_region

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.base import Value

_KINDS: Final = ("accelerators", "instances", "regions", "engines", "models")


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
@click.option("--region", metavar="REGION", help="Prices of this region.  [default: your AWS region]")
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
        "region": region or default_region(os.environ)[0],
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

catalog_command = group(
    "catalog",
    help_text="What the tool knows, with the date and source of each figure.",
    commands=(_list, _show, _compare),
)
