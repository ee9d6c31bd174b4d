"""`gc`: finds orphans, shows them and removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import asking_cloud_options, yes_option
from tgi_deploy.cli.output import Result, printed, write_stderr
from tgi_deploy.cli.progress import confirm
from tgi_deploy.cli.stopping import left_result, stoppable
from tgi_deploy.errors import LeftBehindError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import Client, GcOutcome, Group
    from tgi_deploy.cli.progress import Progress


@command(
    "gc",
    examples=("tgi-deploy gc --dry-run", "tgi-deploy gc --region all --yes", "tgi-deploy gc --older-than 6h --json"),
)
@asking_cloud_options
@click.option(
    "--older-than",
    default="1m",
    metavar="DURATION",
    show_default=True,
    help="Skip resources that may be younger than this: 30s, 10m, 6h, 2d; 0s skips none.",
)
@click.option(
    "--include-unrecorded",
    is_flag=True,
    help="Also delete running machines without a record on this computer. They may belong to someone else.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, but remove nothing.")
@yes_option
def gc_command(*, client: Client, progress: Progress, dry_run: bool, yes: bool, **given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Find orphaned resources by their tags, show them, ask for confirmation, delete them, and write receipts."""

    def ask(groups: Sequence[Group]) -> bool:
        from tgi_deploy.cli.views.receipt import groups_text  # noqa: PLC0415 -- not needed for --help

        progress.stop()
        write_stderr(f"{groups_text('orphaned', groups)}\n")
        return not dry_run and confirm("Remove all this?", yes=yes, what="removing orphaned resources")

    try:
        with stoppable() as stops:
            found = client.gc(confirm=ask, stops=stops, **given)
    except LeftBehindError as error:
        progress.stop()
        return left_result(error)
    return printed(found, _text(found.outcome, dry_run=dry_run))


def _text(outcome: GcOutcome, *, dry_run: bool) -> str:
    from tgi_deploy.cli.views.receipt import groups_text, receipts_text  # noqa: PLC0415 -- see gc_command

    lines = [groups_text("kept", outcome.kept), receipts_text(outcome.receipts)]
    lines.extend(f"{name} was skipped: {reason}" for name, reason in outcome.skipped)
    if not outcome.orphans:
        lines.append(f"no orphaned resources in {', '.join(outcome.regions)}")
    if outcome.declined:
        lines.append("dry run: nothing was removed" if dry_run else "declined: nothing was removed")
    return "\n".join(filter(None, lines))
