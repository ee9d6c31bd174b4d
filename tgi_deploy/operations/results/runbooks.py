"""Results of runbook: the page of an existing deployment, else of a plan."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tgi_deploy.catalog.alerts import read_alerts
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.planning.artifacts import deployable
from tgi_deploy.operations.planning.no_plan import given_options, without_plan
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.watching.lookup import known
from tgi_deploy.operations.watching.runbook import Subject, known_subject, planned_subject, runbook
from tgi_deploy.values.base import Result
from tgi_deploy.values.names import is_name
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.results import RunbookData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.plan import Plan


def may_be_deployed(texts: OptionTexts) -> bool:
    """Return whether MODEL may name a deployment without a record here: no plan options are given."""
    return is_name(texts.model) and all(flag == "--region" for flag, _ in given_options(texts))


def existing_subject(context: Context, name: str, *, recorded: bool) -> Subject | None:
    """Return the deployment of that name, by its record or tags; None if there is none."""
    try:
        deployment = known(context, name)
    except DeployError:
        if recorded:
            raise
        return None
    return known_subject(context, deployment)


def planned_page(
    texts: OptionTexts,
    catalog: Catalog,
    environ: Mapping[str, str],
    target_for: Callable[[Plan], Target],
    name: str | None,
) -> Subject:
    """Return the deployment that the plan would create. Raises NoPlanError."""
    made = plan(texts, catalog, environ)
    if isinstance(made, NoFeasiblePlan):
        words = ("runbook", "--name", name) if name else ("runbook",)
        raise without_plan(shlex.join(words), texts, made)
    return planned_subject(made, deployable(made, texts, environ, name=name), target_for(made))


def runbook_result(
    subject: Subject, engine: Engine, profiles_dir: Path | None, templates_dir: Path | None, *, sandbox: bool
) -> Result[RunbookData, RunbookData]:
    alerts = read_alerts(engine.name, user_dir=profiles_dir)
    page = runbook(subject, alerts, engine, templates_dir=templates_dir, sandbox=sandbox)
    data = RunbookData(name=subject.name, markdown=page)
    return Result(data=data, outcome=data)
