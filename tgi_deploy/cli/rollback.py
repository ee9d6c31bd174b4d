"""`rollback`: goes back to the previous revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    name_argument,
    profiles_dir_option,
    sandbox_option,
    strategy_option,
    templates_dir_option,
    yes_option,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import connected
from tgi_deploy.cli.stopping import stoppable
from tgi_deploy.cli.up import Asking, shown_before

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.values.deployment import Strategy


@command("rollback", examples=("tgi-deploy rollback llama3-13b", "tgi-deploy rollback llama3-13b --dry-run"))
@name_argument
@sandbox_option
@profiles_dir_option
@templates_dir_option
@click.option("--dry-run", is_flag=True, help="Show the changes, but make none.")
@strategy_option
@yes_option
def rollback_command(
    *,
    name: str,
    sandbox: bool,
    profiles_dir: Path | None,
    templates_dir: Path | None,
    dry_run: bool,
    strategy: Strategy | None,
    yes: bool,
) -> Result:
    """Go back to the previous revision, by an update with its options and today's limits.

    If an update is unfinished, that is the revision it started from.
    """
    from tgi_deploy.cli.views.deployment import up_text  # noqa: PLC0415 -- not needed for --help

    where = {"sandbox": sandbox, "profiles_dir": profiles_dir, "templates_dir": templates_dir}
    with connected(**where) as (client, progress), stoppable() as stops:
        asks = Asking(client, progress, ask=not (yes or dry_run), yes=yes, sandbox=sandbox)
        found = client.rollback(
            name,
            dry_run=dry_run,
            strategy=strategy,
            on_plan=asks.on_plan,
            confirm=asks.confirm,
            on_failure=asks.on_failure,
            on_interrupt=asks.on_interrupt,
            stops=stops,
        )
    return printed(found, up_text(found.outcome, asks.request), already_shown=shown_before(found))
