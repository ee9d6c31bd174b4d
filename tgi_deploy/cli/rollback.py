"""`rollback`: go back to the revision that served before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tgi_deploy import wiring
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    name_argument,
    profiles_dir_option,
    sandbox_option,
    strategy_option,
    templates_dir_option,
    yes_option,
)
from tgi_deploy.cli.progress import Progress, command_line
from tgi_deploy.cli.stopping import stopped_up
from tgi_deploy.cli.up import Options, check_answerable, setup_of, up_request, up_result, up_warnings

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.cli.output import Result
    from tgi_deploy.operations.deploying.up import UpRequest
    from tgi_deploy.values.deployment import Deployment, Revision, Strategy


@command("rollback", examples=("tgi-deploy rollback llama3-13b", "tgi-deploy rollback llama3-13b --dry-run"))
@name_argument
@sandbox_option
@profiles_dir_option
@templates_dir_option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
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
    """Go back to the revision that served before, as `up` would update to it: with its options and today's limits.

    Where an update is not finished, that is the revision that it began at.
    """
    from tgi_deploy.operations.deploying.rollout import former  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.deploying.up import up  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.watching.known import unrecorded_deployment  # noqa: PLC0415 -- startup time

    with Progress() as progress:
        setup = wiring.Setup(
            progress=progress,
            command=command_line(),
            sandbox=sandbox,
            profiles_dir=profiles_dir,
            templates_dir=templates_dir,
        )
        context = wiring.context(setup)
        recorded = context.store.load(name)
        if recorded is None:
            raise unrecorded_deployment(context, name)
        revision = former(recorded)
        options = replace(_options(setup, recorded, revision, dry_run=dry_run, yes=yes), strategy=strategy)
        check_answerable(options)
        request = _request(options, progress, recorded, revision)
        outcome = stopped_up(
            wiring.context(setup_of(options, (), progress)),
            lambda guarded: up(guarded, request),
            name=name,
            quiet=progress.stop,
        )
    return up_result(outcome, (), up_warnings(request.plan, outcome, None))


def _options(setup: wiring.Setup, recorded: Deployment, revision: Revision, *, dry_run: bool, yes: bool) -> Options:
    """Return what `up` was given for that revision."""
    from tgi_deploy.values.base import as_value  # noqa: PLC0415 -- help is printed without what acts

    target = wiring.target_named(recorded.target)
    return Options(
        name=recorded.name,
        target=target,
        sandbox=setup.sandbox,
        profiles_dir=setup.profiles_dir,
        templates_dir=setup.templates_dir,
        own=as_value(revision.options, target.options, "options"),
        api_key_from_env=revision.options.get("api_key_from_env"),
        wait=True,
        ready="full",
        on_failure="ask",
        heal=False,
        dry_run=dry_run,
        yes=yes,
    )


def _request(options: Options, progress: Progress, recorded: Deployment, revision: Revision) -> UpRequest:
    from tgi_deploy.operations.planning.recorded import plan_of_revision  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.values.base import replaced  # noqa: PLC0415 -- startup time
    from tgi_deploy.values.ends import WantedEnds  # noqa: PLC0415 -- startup time

    catalog = wiring.catalog(options.profiles_dir)
    plan, ends = plan_of_revision(revision, catalog), recorded.ends
    wanted = WantedEnds(ttl_s=ends.ttl_s, max_spend_usd=ends.max_spend_usd, idle_s=ends.idle_s, lease_s=ends.lease_s)
    named = plan.request.hardware is not None
    found = options.target.supply(catalog, release=plan.chosen.engine.version, hardware=named)
    asked = up_request(plan, wanted, catalog=catalog, options=options, found=found, progress=progress)
    return replaced(asked, exact=True, origin="rollback")
