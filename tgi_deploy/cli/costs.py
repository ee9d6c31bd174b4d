"""`costs`: what deployments have cost so far, and what they cost now."""

from __future__ import annotations

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting


@command("costs", examples=("tgi-deploy costs", "tgi-deploy costs --region all --json"))
@region_option
@sandbox_option
def costs_command(*, regions: tuple[str, ...], sandbox: bool) -> Result:
    """Show what deployments have cost so far, cost an hour now, and would cost a month, with totals by owner.

    Deployments of other computers are found by their tags and counted from the launch of their machines. What was
    removed from this computer counts by its receipts. Prices are the catalogue's, not the account's bill.
    """
    from tgi_deploy.cli.views.costs import costs_document, costs_text  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.watching.costs import costs  # noqa: PLC0415 -- likewise

    with acting(sandbox=sandbox, regions=regions) as context:
        found = costs(context)
    return Result(
        data={**costs_document(found), "regions": list(context.regions)},
        text=costs_text(found),
        warnings=found.warnings,
    )
