"""`extend`: sets, changes or removes the limits of a running deployment."""

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
@click.option("--ttl", metavar="TIME", help="Time to run from now, or none.")
@click.option("--max-spend", metavar="USD", help="Maximum total cost of all machines under this name, or none.")
@click.option("--idle-timeout", metavar="TIME", help="Time to run without a request, or none.")
@click.option("--lease", metavar="TIME", help="Length of the lease, from now and from each renewal, or none.")
@cloud_options
def extend_command(*, client: Client, name: str, **limits: str | None) -> Result:
    """Set, change or remove the limits of a running deployment; without options, renew its lease."""
    from tgi_deploy.cli.views.ends import extension_text  # noqa: PLC0415 -- not needed for --help

    found = client.extend(name, **limits)
    return printed(found, extension_text(found.data))
