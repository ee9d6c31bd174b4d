"""`plan`: choose and explain. No account; the network only for an unknown model of the hub."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.files import write_file
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.locking import LOCK_FILE
from tgi_deploy.cli.options import offline_option, plan_options_or, profiles_dir_option, target_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.pictures import picture_options
from tgi_deploy.errors import InputError, NoFeasiblePlanError, Problem, warning
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.cli.pictures import Pictures
    from tgi_deploy.operations.planning.option_texts import OptionTexts

_MORE: Final = (
    "More with --explain: bill, memory, command line, intervals, rejections. One machine with --why-not TYPE.\n"
)
# Options that print a page of their own in place of the plan, and what may stand beside each.
_PAGES: Final[Mapping[str, AbstractSet[str]]] = {
    "--locked": frozenset(),
    "--own": {"--explain"},
    "--why-not": frozenset(),
    "--sweep": {"--csv"},
}


@command(
    "plan",
    examples=(
        "tgi-deploy plan llama3-13b --budget 5",
        "tgi-deploy plan llama3-70b --region all --market any --prefer cost",
        "tgi-deploy plan llama3-8b --hardware 1xRTX-4090 --context 4096",
        "tgi-deploy plan llama3-70b --own dgx-h100.toml",
        "tgi-deploy plan llama3-8b --target docker",
        "tgi-deploy plan ./my-model --budget 2 --set max-batch-prefill-tokens=2048 --json",
        "tgi-deploy plan llama3-13b --budget 5 --lock llama3-13b.lock.json",
        "tgi-deploy plan --locked llama3-13b.lock.json",
        "tgi-deploy plan llama3-13b --budget 5 --why-not g5.xlarge",
        "tgi-deploy plan llama3.1-8b --concurrency 256 --why-not 'two g6e.xlarge'",
        "tgi-deploy plan llama3.1-8b --sweep 'context=2048..16384*2' --prefer cost",
        "tgi-deploy plan llama3-8b --sweep region=us-east-1,eu-west-1 --csv - > regions.csv",
    ),
)
@plan_options_or("locked")
@target_option
@profiles_dir_option
@offline_option
@picture_options
@click.option("--own", type=LOCK_FILE, metavar="FILE", help="Hardware you own or would buy, and which rental it beats.")
@click.option(
    "--explain", "-v", is_flag=True, help="Show the bill, memory, command line, intervals, rejections and assumptions."
)
@click.option("--lock", type=LOCK_FILE, metavar="FILE", help="Write the plan to FILE, to review and deploy exactly.")
@click.option("--locked", type=LOCK_FILE, metavar="FILE", help="Print the plan of a lock again.")
@click.option(
    "--why-not",
    metavar="TYPE",
    shell_complete=complete.instance_types,
    help="Explain an instance type or an accelerator for this request, with the arithmetic.",
)
@click.option(
    "--sweep",
    metavar="NAME=VALUES",
    help="Plan for many values of one option: with commas, 2048..16384*2 to multiply, 1..10+1 to add.",
)
@click.option("--csv", type=LOCK_FILE, metavar="FILE|-", help="Write the table of --sweep as CSV; - is stdout.")
def plan_command(  # noqa: PLR0913 -- one argument an option
    *,
    texts: OptionTexts,
    target: str,
    profiles_dir: Path | None,
    offline: bool,
    explain: bool,
    lock: Path | None,
    locked: Path | None,
    own: Path | None,
    why_not: str | None,
    sweep: str | None,
    csv: Path | None,
    pictures: Pictures,
) -> Result:
    """Choose the machine, shards, quantization and engine settings that serve MODEL, and explain the choice.

    MODEL is a profile's name, a hub id (org/name, org/name@revision), or a directory with a config.json. Needs no
    account, and no network but for a hub model that is neither in the catalogue nor was read before.
    """
    given = {"--locked": locked, "--own": own, "--why-not": why_not, "--sweep": sweep, "--lock": lock, "--csv": csv}
    _check_together([*(name for name, value in given.items() if value), *pictures.options], explain=explain)
    if locked is not None:
        return _reprinted(locked, texts, profiles_dir)
    if own is not None:
        return _owned(own, texts, _catalog(profiles_dir, offline=offline), explain=explain)
    pictures.check()
    texts, notices = supplied_texts(texts, target, profiles_dir, offline=offline)
    if why_not is not None:
        return _explained(texts, why_not, _catalog(profiles_dir, offline=offline))
    if sweep is not None:
        return _swept(texts, sweep, csv, _catalog(profiles_dir, offline=offline))
    outcome = decide(texts, profiles_dir, offline=offline)
    catalog = partial(_catalog, profiles_dir, offline=offline)
    if isinstance(outcome, NoFeasiblePlan):
        return pictures.added_to(no_plan_result("plan", texts, outcome), outcome, texts, catalog)
    _check_reachable(outcome, target)
    result = _plan_result(outcome, notices, explain=explain)
    if lock is not None:
        from tgi_deploy.cli.locking import write_lock  # noqa: PLC0415 -- help is printed without the planner

        write_lock(lock, texts, outcome, result.data["plan"], catalog())
    elif explain:
        result = _compared(result, outcome, catalog())
    return pictures.added_to(result, outcome, texts, catalog)


def _check_reachable(plan: Plan, target: str) -> None:
    """Raise InputError where a machine would be rented that can't load the model."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner

    refusal = wiring.target_named(target).refusal(plan)
    if refusal is not None and plan.chosen.offer.market != "owned":
        raise refusal


def _compared(result: Result, plan: Plan, catalog: Catalog) -> Result:
    """Add what other clouds list for the same cards; not to what is locked: it is not part of the plan."""
    from tgi_deploy.cli.views.plan import elsewhere_text  # noqa: PLC0415 -- help is printed without the planner

    hardware = plan.chosen.offer.instance_type
    found = catalog.elsewhere(hardware.accelerator.name, hardware.accelerator_count)
    text = f"{result.text}\n{elsewhere_text(hardware, found)}"
    return replaced(result, data={**result.data, "elsewhere": found}, text=text)


def _check_together(given: Sequence[str], *, explain: bool) -> None:
    """Raise InputError `conflicting_options` for an option beside one whose page has no room for it."""
    given = [*given, "--explain"] if explain else given
    page = next((name for name in _PAGES if name in given), None)
    allowed = _PAGES[page] if page else {name for name in given if name != "--csv"}
    other = next((name for name in given if name not in {page, *allowed}), None)
    if other is not None:
        what = (
            f"{page} and {other} exclude each other" if page else f"{other} is the table of --sweep, which is missing"
        )
        raise InputError("conflicting_options", f"planning: {what}", hint=f"leave {other} out")


def _explained(texts: OptionTexts, name: str, catalog: Catalog) -> Result:
    from tgi_deploy.cli.views.why_not import why_not_text  # noqa: PLC0415 -- few plans ask
    from tgi_deploy.operations.planning.why_not import why_not, why_not_document  # noqa: PLC0415 -- few plans ask

    found = why_not(texts, name, catalog, os.environ)
    return Result(data={"why_not": why_not_document(found)}, text=why_not_text(found))


def _swept(texts: OptionTexts, sweep_text: str, csv_path: Path | None, catalog: Catalog) -> Result:
    from tgi_deploy.cli.views import sweep as view  # noqa: PLC0415 -- few plans sweep
    from tgi_deploy.operations.planning.sweep import plan_each, read_sweep, row_document  # noqa: PLC0415 -- few sweep

    to_stdout = csv_path is not None and str(csv_path) == "-"
    if to_stdout and click.get_current_context().find_root().obj.as_json:
        raise InputError(
            "conflicting_options", "--csv - and --json exclude each other: both are written to stdout",
            hint="give --csv a file",
        )  # fmt: skip
    sweep = read_sweep(sweep_text)
    rows = plan_each(texts, sweep, catalog, os.environ)
    if csv_path is not None and not to_stdout:
        write_file(csv_path, view.sweep_csv(rows, sweep.setting), what="the table", option="--csv")
    text = (view.sweep_csv if to_stdout else view.sweep_text)(rows, sweep.setting)
    return Result(data={"setting": sweep.setting, "rows": [row_document(row) for row in rows]}, text=text)


def _reprinted(path: Path, texts: OptionTexts, profiles_dir: Path | None) -> Result:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.cli.locking import locked_result, refuse_options  # noqa: PLC0415 -- startup time

    refuse_options(texts, "--locked")
    return locked_result(path, wiring.catalog(profiles_dir, offline=True))


def _owned(path: Path, texts: OptionTexts, catalog: Catalog, *, explain: bool) -> Result:
    from tgi_deploy.catalog.owned import owned_machine  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.cli.views.own import own_text  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.operations.planning.own import plan_owned  # noqa: PLC0415 -- few plans are of owned hardware

    outcome = plan_owned(texts, owned_machine(path), catalog, os.environ)
    if isinstance(outcome, NoFeasiblePlan):
        return no_plan_result("plan", texts, outcome)
    made, owned = outcome
    result = _plan_result(made, (), explain=explain)
    result = replaced(result, data={**result.data, "own": owned}, text=f"{result.text}\n{own_text(owned)}")
    return _compared(result, made, catalog) if explain else result


def supplied_texts(
    texts: OptionTexts, target: str, profiles_dir: Path | None, *, offline: bool
) -> tuple[OptionTexts, tuple[Problem, ...]]:
    """Return the request with what the target adds, and what to know about that. Raises InputError."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.operations.launching.target_options import supplied  # noqa: PLC0415 -- startup time

    catalog = _catalog(profiles_dir, offline=offline)
    texts, found = supplied(wiring.target_named(target), texts, catalog, os.environ)
    return texts, found.notices


def _catalog(profiles_dir: Path | None, *, offline: bool) -> Catalog:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner

    return wiring.catalog(profiles_dir, offline=offline)


def decide(texts: OptionTexts, profiles_dir: Path | None, *, offline: bool = False) -> Plan | NoFeasiblePlan:
    """The plan for `texts` with the catalogue and environment of this process."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.plan import plan  # noqa: PLC0415 -- help is printed without the planner

    return plan(texts, wiring.catalog(profiles_dir, offline=offline), os.environ)


def no_plan_result(command_name: str, texts: OptionTexts, outcome: NoFeasiblePlan) -> Result:
    """The result of any command that needed a plan and found none: exit 3, with the nearest misses."""
    from tgi_deploy.cli.options import with_option  # noqa: PLC0415 -- startup time
    from tgi_deploy.cli.views.plan import no_plan_text  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.documents import no_plan_document  # noqa: PLC0415 -- startup time

    commands = [with_option(command_name, texts, miss.option) for miss in outcome.near_misses]
    error = Problem(
        code="no_feasible_plan",
        message=_why_not(outcome),
        hint=f"nearest: {outcome.near_misses[0].message}: {commands[0]}" if commands else _nothing_near(outcome),
    )
    return Result(
        data=no_plan_document(outcome),
        text=no_plan_text(outcome, commands),
        exit_code=NoFeasiblePlanError.exit_code,
        errors=(error,),
    )


def _nothing_near(outcome: NoFeasiblePlan) -> str:
    if outcome.request.flags:
        return "no change of the request helps, but less of what --set pins may: look at every rejection with --json"
    against_all = set.intersection(*(set(item.codes) for item in outcome.rejections))
    reason = next((item.message for item in outcome.rejections if item.code in against_all), None)
    if reason is not None:
        return f"no change of the request helps: {reason}"
    return "no change of the request helps: look at every rejection with --json, or choose another model"


def _why_not(outcome: NoFeasiblePlan) -> str:
    codes = sorted({item.code for item in outcome.rejections})
    reasons = f" ({', '.join(codes)})" if codes else ""
    model = outcome.request.model.name
    return f"planning {model}: none of {outcome.considered:,} configurations fits{reasons}"


def _details(plan: Plan) -> str:
    from tgi_deploy.cli.views.plan import details_text  # noqa: PLC0415 -- few plans are explained

    return details_text(plan)


def _plan_result(plan: Plan, notices: tuple[Problem, ...], *, explain: bool) -> Result:
    from tgi_deploy.cli.views.plan_summary import summary_text  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.operations.planning.documents import plan_document  # noqa: PLC0415 -- startup time

    document = plan_document(plan)
    return Result(
        data={"plan": document},
        text=f"{summary_text(document)}\n{_details(plan) if explain else _MORE}",
        warnings=(*notices, *(warning("notice", text) for text in plan.notices)),
        already_shown=frozenset({"notice"}),
    )
