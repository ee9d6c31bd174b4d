"""`costs`: shows what deployments have cost so far, and what they cost now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options
from tgi_deploy.cli.output import Result, printed

if TYPE_CHECKING:
    from tgi_deploy.api import Client


@command("costs", examples=("tgi-deploy costs", "tgi-deploy costs --region all --json"))
@cloud_options
def costs_command(*, client: Client) -> Result:
    """Show what deployments have cost so far, and cost per hour and per month, with totals by owner.

    Deployments of other computers are found by their tags and counted from the launch of their machines. Deleted
    deployments of this computer are counted by their receipts. Prices are from the catalog, not from the account's
    bill.
    """
    from tgi_deploy.cli.views.costs import costs_text  # noqa: PLC0415 -- not needed for --help

    found = client.costs()
    return printed(found, costs_text(found.outcome))
