"""Recreates the plan of a recorded revision: exactly what ran, regardless of today's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.planning.locked import engine_as_planned
from tgi_deploy.operations.planning.plan import narrowed, supply_for, without_limits
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.values.base import as_dict, replaced
from tgi_deploy.values.container import is_folder
from tgi_deploy.values.plan import NoFeasiblePlan, Plan
from tgi_deploy.values.request import Request

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.deployment import Revision
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.plan_document import PlanDocument


def plan_of_revision(revision: Revision, catalog: Catalog) -> Plan:
    """Return the plan that runs exactly what a revision ran, without fallbacks.

    Raises ConflictError `revision_unavailable` if that can no longer be planned, InputError for a name that is no
    longer in the catalog.
    """
    planned = revision.plan
    if planned is None:
        raise _gone(revision, "the record has no plan for it")
    request = _request_of(planned, catalog)
    wanted = narrowed(without_limits(request), planned)
    made = make_plan(wanted, supply_for(wanted, catalog), catalog.engine)
    if isinstance(made, NoFeasiblePlan):
        raise _gone(revision, f"{planned.chosen.instance_type} is no longer available, or no longer serves this model")
    return replaced(made, request=request, chosen=_as_it_ran(made.chosen, revision, planned), fallbacks=())


def _request_of(planned: PlanDocument, catalog: Catalog) -> Request:
    terms = as_dict(planned.requirements)
    named = {name: tuple(terms[name].items()) for name in ("flags", "env")}
    served = planned.model.served_id
    model = catalog.resolve(served if is_folder(served) else planned.requirements.model)
    return Request(**(terms | named | {"model": model}))


def _as_it_ran(candidate: Candidate, revision: Revision, planned: PlanDocument) -> Candidate:
    engine = engine_as_planned(candidate.engine, planned)
    if revision.spec is not None:
        engine = replaced(engine, container=revision.spec.container)
    return replaced(candidate, engine=engine, storage=planned.storage, replicas=planned.chosen.replicas)


def _gone(revision: Revision, why: str) -> ConflictError:
    return ConflictError(
        "revision_unavailable",
        f"planning revision {revision.number} again: {why}",
        hint="find a replacement with 'tgi-deploy plan', and bring it up with 'tgi-deploy up'",
    )
