"""`status`: compares the record with the existing resources, and checks the endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options
from tgi_deploy.cli.output import Result, printed

if TYPE_CHECKING:
    from tgi_deploy.api import Client


@command("status", examples=("tgi-deploy status", "tgi-deploy status llama3-13b --json"))
@click.argument("name", required=False, shell_complete=complete.deployments)
@cloud_options
def status_command(*, client: Client, name: str | None) -> Result:
    """Compare the record with the existing resources, and check the endpoint; without NAME, for every deployment.

    The exit code is 5 if NAME does not serve. A deployment without a record here is found by its tags.
    """
    from tgi_deploy.cli.views.status import none_text, status_text  # noqa: PLC0415 -- not needed for --help

    if name:
        found = client.status(name)
        return printed(found, status_text(found.outcome, alone=True), already_shown=found.warnings)
    every = client.statuses()
    text = "\n\n".join(map(status_text, every.outcome)) or none_text(client.places)
    return printed(every, text, already_shown=every.warnings)
