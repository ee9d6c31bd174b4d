"""`catalog`: shows what the tool knows about accelerators, instance types, regions, engines and models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.api import Client
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command, group
from tgi_deploy.cli.options import profiles_dir_option
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.views.catalog import item_text, list_text
from tgi_deploy.cli.views.text import heading, wrapped
from tgi_deploy.text import one_line
from tgi_deploy.values.base import nested

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.values.catalog_results import HardwareEntry

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

    Or list the named accelerators and instance types. Hardware figures are dense and for one accelerator. The price is
    that of the cheapest on-demand machine that has it, and ENGINE is whether the engine runs on it; `catalog show` has
    more.
    """
    client = Client(profiles_dir=profiles_dir)
    found = client.catalog_list(*names, region=region, engine_version=engine_version)
    return printed(found, list_text(found.data.kind, found.data.items))


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
    found = Client(profiles_dir=profiles_dir).catalog_show(name)
    entry = found.outcome
    facts = nested(found.data.item)
    facts.pop("misquoted", None)
    return printed(found, item_text(facts) + ("" if entry is None else _misquoted(entry)))


def _misquoted(entry: HardwareEntry) -> str:
    lines = [
        wrapped(
            f"{entry.accelerator}: {_FIGURES[item.figure]} is {_value(item.right)}, not {_value(item.quoted)}:"
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
