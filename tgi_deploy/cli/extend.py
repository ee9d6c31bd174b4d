"""`extend`: set, move or lift the limits of a deployment that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed

if TYPE_CHECKING:
    from tgi_deploy.api import Client


@command(
    "extend",
    examples=(
        "tgi-deploy extend llama3-13b",
        "tgi-deploy extend llama3-13b --ttl 4h",
        "tgi-deploy extend llama3-13b --idle-timeout 30m --max-spend none",
    ),
)
@name_argument
@click.option("--ttl", metavar="TIME", help="How long it runs from now, or none.")
@click.option("--max-spend", metavar="USD", help="What all machines of the name may cost, or none.")
@click.option("--idle-timeout", metavar="TIME", help="How long it runs without a request, or none.")
@click.option("--lease", metavar="TIME", help="How long its lease lasts from now and from each renewal, or none.")
@cloud_options
def extend_command(*, client: Client, name: str, **limits: str | None) -> Result:
    """Set, move or lift limits of a machine that runs; renew its lease where none is named."""
    from tgi_deploy.cli.views.ends import extension_text  # noqa: PLC0415 -- help is printed without what acts

    found = client.extend(name, **limits)
    return printed(found, extension_text(found.data))
