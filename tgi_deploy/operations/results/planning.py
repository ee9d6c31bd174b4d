"""Results of planning: plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import warning
from tgi_deploy.operations.launching.target_options import supplied
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import UNSET, Result
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan_document import PlanData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.owned import Owned
    from tgi_deploy.values.plan import Plan


def plan_result(
    target: Target, texts: OptionTexts, catalog: Catalog, environ: Mapping[str, str], *, explain: bool
) -> Result[PlanData, Plan]:
    """Return the plan of a request, with `explain` beside what other clouds list.

    Raises NoPlanError, and InputError for options that make no sense.
    """
    texts, found = supplied(target, texts, catalog, environ)
    made = plan(texts, catalog, environ)
    if isinstance(made, NoFeasiblePlan):
        raise without_plan("plan", texts, made)
    refusal = target.refusal(made)
    if refusal is not None and made.chosen.offer.market != "owned":
        raise refusal
    return result_of_plan(made, catalog, explain=explain, notices=found.notices)


def result_of_plan(
    made: Plan,
    catalog: Catalog,
    *,
    explain: bool,
    notices: tuple[Problem, ...] = (),
    own: Owned | None = None,
) -> Result[PlanData, Plan]:
    hardware = made.chosen.offer.instance_type
    data = PlanData(
        plan=plan_document(made),
        elsewhere=catalog.elsewhere(hardware.accelerator.name, hardware.accelerator_count) if explain else UNSET,
        own=UNSET if own is None else own,
    )
    return Result(data=data, outcome=made, warnings=(*notices, *(warning("notice", text) for text in made.notices)))
