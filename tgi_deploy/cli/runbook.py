"""`runbook`: write a page for on-call engineers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tgi_deploy import wiring
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.in_sandbox import said
from tgi_deploy.cli.options import (
    name_option,
    plan_options,
    profiles_dir_option,
    sandbox_option,
    templates_dir_option,
)
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.plan import decide
from tgi_deploy.cli.progress import acting
from tgi_deploy.errors import DeployError
from tgi_deploy.files import write_file
from tgi_deploy.operations.planning.no_plan import given_options, without_plan
from tgi_deploy.values.names import is_name
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.watching.runbook import Subject
    from tgi_deploy.values.plan import Plan


@command(
    "runbook",
    examples=(
        "tgi-deploy runbook my-deployment > RUNBOOK.md",
        "tgi-deploy runbook llama3-13b --budget 5 --out RUNBOOK.md",
    ),
)
@plan_options
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE instead of stdout.")
@name_option
@sandbox_option
@profiles_dir_option
@templates_dir_option
def runbook_command(
    *,
    texts: OptionTexts,
    out: Path | None,
    name: str | None,
    sandbox: bool,
    profiles_dir: Path | None,
    templates_dir: Path | None,
) -> Result:
    """Write the runbook of a deployment, or of MODEL as it would be deployed."""
    from tgi_deploy.catalog.alerts import read_alerts  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.watching.runbook import runbook  # noqa: PLC0415 -- help is printed without templates

    subject = _subject(texts, name, profiles_dir, sandbox=sandbox)
    if isinstance(subject, NoFeasiblePlan):
        raise without_plan("runbook", texts, subject)
    engine = wiring.engine_named(subject.service.engine)
    alerts = read_alerts(engine.name, user_dir=profiles_dir)
    text = runbook(subject, alerts, engine, templates_dir=templates_dir)
    if sandbox:
        text = said(text)
    if out is not None:
        write_file(out, text, what="the runbook")
    return Result(data={"name": subject.name, "markdown": text, "out": out}, text="" if out else text)


def _subject(
    texts: OptionTexts, name: str | None, profiles_dir: Path | None, *, sandbox: bool
) -> Subject | NoFeasiblePlan:
    """Return the deployment of that name, by its record or tags, else the plan for that model."""
    there = _there(texts, sandbox=sandbox)
    if there is not None:
        return there
    plan = decide(texts, profiles_dir)
    return plan if isinstance(plan, NoFeasiblePlan) else _planned(plan, texts, name)


def _there(texts: OptionTexts, *, sandbox: bool) -> Subject | None:
    """Return a deployment found by its tags, if no option of a plan is given."""
    from tgi_deploy.operations.watching.known import known  # noqa: PLC0415 -- see above
    from tgi_deploy.operations.watching.runbook import known_subject  # noqa: PLC0415 -- startup time

    recorded = texts.model in wiring.recorded_names(sandbox=sandbox)
    alone = not any(flag != "--region" for flag, _ in given_options(texts)) and is_name(texts.model)
    if not (recorded or (alone and not (sandbox and wiring.sandbox_status() is None))):
        return None
    regions = () if recorded else wiring.targets()[0].locations(texts.regions)
    with acting(sandbox=sandbox, regions=regions) as context:
        try:
            deployment = known(context, texts.model)
        except DeployError:
            if recorded:
                raise
            return None
        return known_subject(context, deployment)


def _planned(plan: Plan, texts: OptionTexts, name: str | None) -> Subject:
    from tgi_deploy.operations.planning.artifacts import deployable  # noqa: PLC0415 -- see above
    from tgi_deploy.operations.watching.runbook import planned_subject  # noqa: PLC0415 -- startup time

    return planned_subject(plan, deployable(plan, texts, os.environ, name=name), wiring.target_for(plan))
