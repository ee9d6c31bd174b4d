"""Results of questions about plans: owned hardware, locks, --why-not, --sweep, diff, predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.catalog.owned import owned_machine
from tgi_deploy.errors import DeployError, NoFeasiblePlanError, Problem, warning
from tgi_deploy.files import read_file
from tgi_deploy.operations.planning.compare_plans import compare
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.lock import open_lock, read_plan
from tgi_deploy.operations.planning.locked import changes, current
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.own import plan_owned
from tgi_deploy.operations.planning.predict import answer, predict_cases
from tgi_deploy.operations.planning.sweep import plan_each, read_sweep
from tgi_deploy.operations.planning.why_not import why_not, why_not_data
from tgi_deploy.operations.results.planning import result_of_plan
from tgi_deploy.text import words_of
from tgi_deploy.values.base import Result
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.plan_document import PlanData
from tgi_deploy.values.plan_results import CasesData, Comparison, DiffData, PredictionData, SweepData, WhyNotData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.compare_plans import Limits
    from tgi_deploy.operations.planning.lock import Lock
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.planning.predict import PredictionRequest
    from tgi_deploy.operations.planning.why_not import WhyNot
    from tgi_deploy.values.plan import Plan


def owned_result(
    file: Path, texts: OptionTexts, catalog: Catalog, environ: Mapping[str, str], *, explain: bool
) -> Result[PlanData, Plan]:
    """Return the plan on the hardware in a file, with its costs. Raises NoPlanError, InputError."""
    outcome = plan_owned(texts, owned_machine(file), catalog, environ)
    if isinstance(outcome, NoFeasiblePlan):
        raise without_plan("plan", texts, outcome)
    made, owned = outcome
    return result_of_plan(made, plan_document(made), catalog, explain=explain, own=owned)


def locked_result(path: Path, catalog_of: Callable[[str], Catalog]) -> Result[PlanData, None]:
    """Return the plan as printed when it was locked, and a warning if today's plan for the same request differs.

    `catalog_of` returns the catalog that has an instance type.
    """
    lock = open_lock(path)
    catalog = catalog_of(lock.plan.chosen.instance_type)
    data = PlanData(plan=lock.plan, lock=lock.made_with)
    notices = (warning("notice", text) for text in lock.plan.notices)
    return Result(data=data, outcome=None, warnings=(*notices, *_staleness(lock, catalog)))


def _staleness(lock: Lock, catalog: Catalog) -> Iterator[Problem]:
    try:
        found = changes(lock, current(lock, catalog))
    except DeployError as error:
        yield warning("stale_plan", f"the locked request can't be planned again: {error.message}")
        return
    if found:
        text = "; ".join(map(str, found))
        yield warning("stale_plan", f"today's plan for the same request differs: {text}")


def why_not_result(
    texts: OptionTexts, name: str, catalog: Catalog, environ: Mapping[str, str]
) -> Result[WhyNotData, WhyNot]:
    found = why_not(texts, name, catalog, environ)
    return Result(data=why_not_data(found), outcome=found)


def sweep_result(
    texts: OptionTexts, sweep: str, catalog: Catalog, environ: Mapping[str, str]
) -> Result[SweepData, SweepData]:
    asked = read_sweep(sweep)
    data = SweepData(setting=asked.setting, rows=plan_each(texts, asked, catalog, environ))
    return Result(data=data, outcome=data)


def diff_result(old: Path, new: Path, limits: Limits) -> Result[DiffData, Comparison]:
    """Compare two plans. Limits that the new one exceeds are errors of the result, with exit code 3."""
    before, after = (read_plan(read_file(path, what="the plan"), str(path)) for path in (old, new))
    found = compare(before, after, limits)
    hint = "change the plan, or raise the limit if the increase is intended"
    errors = tuple(
        Problem(code="cost_gate", message=f"{check.name}: {check.message}", hint=hint) for check in found.failed
    )
    return Result(
        data=DiffData(diff=found),
        outcome=found,
        warnings=tuple(_promises_changed(found)),
        errors=errors,
        exit_code=NoFeasiblePlanError.exit_code if errors else 0,
    )


def _promises_changed(found: Comparison) -> Iterator[Problem]:
    """Yield a warning if the plans compared were made for different requests."""
    if found.promises and found.checks:
        named = "; ".join(f"{item.field}: {_joined(item.old)} → {_joined(item.new)}" for item in found.promises)
        yield warning(
            "request_changed", f"the plans are for different requests, so the limits compare different things: {named}"
        )


def _joined(value: object) -> str:
    return " ".join(words_of(value)) or "nothing"


def prediction_result(request: PredictionRequest, catalog: Catalog) -> Result[PredictionData, PredictionData]:
    data = answer(request, catalog)
    text = "the weights leave no room for a KV cache: the figures assume an accelerator with enough memory"
    unfit = () if data.fits else (warning("does_not_fit", text),)
    return Result(data=data, outcome=data, warnings=unfit)


def cases_result(path: Path, catalog: Catalog) -> Result[CasesData, CasesData]:
    """Return a prediction for each row of a CSV file. Raises InputError `unreadable_path`, `bad_cases`."""
    text = read_file(path, what="the cases").removeprefix("\ufeff")
    data = CasesData(predictions=tuple(predict_cases(text, catalog)))
    failed = sum("error" in item for item in data.predictions)
    warnings = (warning("bad_cases", f"{failed} of {len(data.predictions)} rows have no valid prediction"),)
    return Result(data=data, outcome=data, warnings=warnings if failed else ())
