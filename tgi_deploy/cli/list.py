"""`list`: lists deployments, recorded ones and those found only in the cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options
from tgi_deploy.cli.output import Result, printed

if TYPE_CHECKING:
    from tgi_deploy.api import Client


@command("list", examples=("tgi-deploy list", "tgi-deploy list --region all --json"))
@cloud_options
def list_command(*, client: Client) -> Result:
    """List deployments: recorded ones, and those known only from tags in the cloud."""
    from tgi_deploy.cli.views.status import none_text, rows_text  # noqa: PLC0415 -- not needed for --help

    found = client.list()
    rows, regions = found.outcome.rows, found.data.regions
    return printed(found, rows_text(rows) if rows else none_text(regions, asked=not found.warnings))
