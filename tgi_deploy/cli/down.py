"""`down`: deletes a deployment, or all of them, and verifies that nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import asking_cloud_options, yes_option
from tgi_deploy.cli.output import Result, printed, write_stderr
from tgi_deploy.cli.progress import confirm
from tgi_deploy.cli.stopping import left_result, stoppable
from tgi_deploy.errors import LeftBehindError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.api import Client, DownOutcome, Removal
    from tgi_deploy.cli.progress import Progress


@command(
    "down",
    examples=(
        "tgi-deploy down llama3-13b",
        "tgi-deploy down chat code",
        "tgi-deploy down --all --yes",
        "tgi-deploy down llama3-13b --region all",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete.deployments)
@click.option("--all", "everything", is_flag=True, help="Delete every deployment, recorded or known only from tags.")
@asking_cloud_options
@click.option(
    "--volumes",
    is_flag=True,
    help="Also delete resources that outlive deployments, such as weights downloaded to a host.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, but remove nothing.")
@yes_option
def down_command(
    *,
    client: Client,
    progress: Progress,
    names: tuple[str, ...],
    everything: bool,
    volumes: bool,
    dry_run: bool,
    yes: bool,
) -> Result:
    """Delete all resources of deployments, verify that none is left, then delete their records."""
    ask = question(progress, dry_run=dry_run, yes=yes)
    try:
        with stoppable() as stops:
            found = client.down(*names, everything=everything, volumes=volumes, confirm=ask, stops=stops)
    except LeftBehindError as error:
        progress.stop()
        return left_result(error)
    return printed(found, down_text(found.outcome, names, found.data.regions, dry_run=dry_run))


def question(progress: Progress, *, dry_run: bool, yes: bool) -> Callable[[Sequence[Removal]], bool]:
    """Return a function that shows what would be removed and asks for confirmation."""

    def ask(removals: Sequence[Removal]) -> bool:
        from tgi_deploy.cli.views.deployment import removals_text  # noqa: PLC0415 -- not needed for --help

        progress.stop()
        write_stderr(f"{removals_text(removals)}\n")
        return not dry_run and confirm("Remove all this?", yes=yes, what="removing a deployment")

    return ask


def down_text(outcome: DownOutcome, names: Sequence[str], places: Sequence[str], *, dry_run: bool) -> str:
    from tgi_deploy.cli.views.receipt import receipts_text  # noqa: PLC0415 -- not needed for --help

    lines = [f"{name} is deleted: a final search found nothing left of it" for name in outcome.removed]
    lines.extend(filter(None, [receipts_text(outcome.receipts)]))
    regions = ", ".join(places)
    lines.extend(f"no resources of {name} in {regions}" for name in outcome.absent)
    if outcome.declined:
        lines.append("dry run: nothing was removed" if dry_run else "declined: nothing was removed")
    if not lines and not names:
        lines.append(f"nothing to remove in {regions}")
    return "\n".join(lines)
