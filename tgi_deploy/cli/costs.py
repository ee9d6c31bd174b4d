"""`costs`: what deployments have cost so far, and what they cost now."""

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
    """Show what deployments have cost so far, cost an hour now, and would cost a month, with totals by owner.

    Deployments of other computers are found by their tags and counted from the launch of their machines. What was
    removed from this computer counts by its receipts. Prices are the catalogue's, not the account's bill.
    """
    from tgi_deploy.cli.views.costs import costs_text  # noqa: PLC0415 -- help is printed without what acts

    found = client.costs()
    return printed(found, costs_text(found.outcome))
