"""`list`: every deployment, recorded ones and those only the cloud knows."""

from __future__ import annotations

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting


@command("list", examples=("tgi-deploy list", "tgi-deploy list --region all --json"))
@region_option
@sandbox_option
def list_command(*, regions: tuple[str, ...], sandbox: bool) -> Result:
    """List deployments: recorded ones, and those that only tags in the cloud tell of."""
    from tgi_deploy.cli.views.status import none_text, row_document, rows_text  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.watching.listing import list_deployments  # noqa: PLC0415 -- likewise

    with acting(sandbox=sandbox, regions=regions) as context:
        listing = list_deployments(context)
    return Result(
        data={"deployments": [row_document(row) for row in listing.rows], "regions": list(context.regions)},
        text=rows_text(listing.rows) if listing.rows else none_text(context.regions, asked=not listing.warnings),
        warnings=listing.warnings,
    )
