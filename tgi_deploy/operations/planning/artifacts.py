"""Turns a plan into the input for rendering artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.errors import warning
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.option_texts import wanted_ends
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.planner.time_to_ready import ready_deadline_s, start_s
from tgi_deploy.targets.protocol import Deployable
from tgi_deploy.values.base import Result, as_dict
from tgi_deploy.values.names import default_name
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan_results import ArtifactData, RenderData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Artifact
    from tgi_deploy.values.plan import Plan


def artifact_result(
    form: str,
    texts: OptionTexts,
    catalog: Catalog,
    environ: Mapping[str, str],
    *,
    write: Callable[[Deployable], Artifact],
    name: str | None,
    profiles_dir: Path | None,
) -> Result[RenderData, Artifact]:
    """Return one artifact of the plan, rendered by `write`. Raises NoPlanError."""
    made = plan(texts, catalog, environ)
    if isinstance(made, NoFeasiblePlan):
        raise without_plan(f"render --as {form}", texts, made)
    found = write(deployable(made, texts, environ, name=name, profiles_dir=profiles_dir))
    data = RenderData(artifact=ArtifactData(**as_dict(found)))
    return Result(data=data, outcome=found, warnings=tuple(warning("notice", text) for text in made.notices))


def deployable(
    plan: Plan,
    texts: OptionTexts,
    environ: Mapping[str, str],
    *,
    name: str | None = None,
    profiles_dir: Path | None = None,
) -> Deployable:
    """Return the input for rendering; log patterns for the machine come from the tables in `profiles_dir`, if any."""
    chosen, ends = plan.chosen, wanted_ends(texts, environ)
    return Deployable(
        name=name or default_name(plan.request.model.name),
        candidate=chosen,
        model=plan.request.model,
        log_filter=grammar_from(read_phases(chosen.engine.name, user_dir=profiles_dir)).log_filter,
        ttl_s=ends.lifetime_s(chosen.cost.usd_per_hour),
        idle_s=ends.idle_s,
        lease_s=ends.lease_s,
        region=chosen.offer.region,
        ready_deadline_s=ready_deadline_s(chosen),
        replicas=plan.request.replicas,
        concurrency=plan.request.concurrency,
        starts_s=start_s(chosen),
    )
