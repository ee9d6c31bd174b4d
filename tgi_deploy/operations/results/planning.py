"""Results of planning: plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import warning
from tgi_deploy.operations.launching.target_options import supplied
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import UNSET, Result, plain, replaced
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan_document import PlanData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.planning.plan_files import PlanFiles
    from tgi_deploy.targets.protocol import Supplied, Target
    from tgi_deploy.values.owned import Owned
    from tgi_deploy.values.plan import NoPlanError, Plan
    from tgi_deploy.values.plan_document import FilesData, PlanDocument


def plan_result(
    target: Target,
    texts: OptionTexts,
    catalog: Catalog,
    environ: Mapping[str, str],
    *,
    explain: bool,
    into: PlanFiles | None = None,
) -> Result[PlanData, Plan]:
    """Return the plan of a request; with `explain`, also other clouds' list prices. `into` names files to write.

    Raises NoPlanError, and InputError for invalid options.
    """
    asked = texts
    texts, found = supplied(target, texts, catalog, environ)
    catalog = catalog.with_added(found.added)
    made = plan(texts, catalog, environ)
    if isinstance(made, NoFeasiblePlan):
        raise _without(made, asked if found.added else texts, catalog, into, target)
    rejection = target.rejection(made)
    if rejection is not None and made.chosen.offer.market != "owned":
        raise rejection
    files: FilesData | None = None
    printed = plan_document(made)
    if into is not None:
        into.lock_plan(made, _locked(texts, found, made), printed, catalog)
        files = into.draw(made, texts, catalog)
    return result_of_plan(made, printed, catalog, explain=explain, notices=_notices(found, made), files=files)


def _locked(texts: OptionTexts, found: Supplied, made: Plan) -> OptionTexts:
    """Return the request for a lock. Machines added by the target have no prices in it, so it names the chosen type."""
    return replaced(texts, hardware=made.chosen.offer.instance_type.name) if found.added else texts


def _notices(found: Supplied, made: Plan) -> tuple[Problem, ...]:
    """Return the target's notices; if it has to add machines first, also one with their price."""
    new = found.added.get(made.chosen.offer.instance_type.name)
    return found.notices if new is None or not new.needed else (*found.notices, new.notice(made.chosen.machines))


def _without(
    made: NoFeasiblePlan, texts: OptionTexts, catalog: Catalog, into: PlanFiles | None, target: Target
) -> NoPlanError:
    """Return the error, with the files whose charts show why there is no plan."""
    error = without_plan("plan", texts, made, target=target)
    files = into.draw(made, texts, catalog, error.commands) if into else None
    return error if files is None else error.copy(data={**error.problem.data, "files": plain(files)})


def result_of_plan(
    made: Plan,
    printed: PlanDocument,
    catalog: Catalog,
    *,
    explain: bool,
    notices: tuple[Problem, ...] = (),
    own: Owned | None = None,
    files: FilesData | None = None,
) -> Result[PlanData, Plan]:
    hardware = made.chosen.offer.instance_type
    data = PlanData(
        plan=printed,
        elsewhere=catalog.elsewhere(hardware.accelerator.name, hardware.accelerator_count) if explain else UNSET,
        own=own or UNSET,
        files=files or UNSET,
    )
    return Result(data=data, outcome=made, warnings=(*notices, *(warning("notice", text) for text in made.notices)))
