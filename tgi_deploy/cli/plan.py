"""`plan`: choose and explain. Needs no account, and the network only for an unknown hub model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.api import Client
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.locking import LOCK_FILE
from tgi_deploy.cli.options import offline_option, plan_options_or, profiles_dir_option, target_option
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.pictures import picture_options
from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.values.base import changed_fields, replaced
from tgi_deploy.values.plan import NoFeasiblePlan, NoPlanError, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.cli.pictures import Pictures
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.base import Result as ApiResult
    from tgi_deploy.values.plan_document import PlanData

_MORE: Final = (
    "More with --explain: bill, memory, command line, intervals, rejections. One machine with --why-not TYPE.\n"
)
# Options that print another page instead of the plan, and the options that each can be combined with.
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
@click.option(
    "--own", type=LOCK_FILE, metavar="FILE", help="Compare hardware that you own or would buy with the rentals."
)
@click.option(
    "--explain", "-v", is_flag=True, help="Show the bill, memory, command line, intervals, rejections and assumptions."
)
@click.option("--lock", type=LOCK_FILE, metavar="FILE", help="Write the plan to FILE, to review and to deploy exactly.")
@click.option("--locked", type=LOCK_FILE, metavar="FILE", help="Print the plan from a lock file.")
@click.option(
    "--why-not",
    metavar="TYPE",
    shell_complete=complete.instance_types,
    help="Explain why an instance type or accelerator was not chosen, with the arithmetic.",
)
@click.option(
    "--sweep",
    metavar="NAME=VALUES",
    help="Plan for several values of one option: a list with commas, 2048..16384*2 to multiply, 1..10+1 to add.",
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
    account, and no network unless MODEL is a hub model that is neither in the catalog nor cached.
    """
    given = {"--locked": locked, "--own": own, "--why-not": why_not, "--sweep": sweep, "--lock": lock, "--csv": csv}
    _check_together([*(name for name, value in given.items() if value), *pictures.options], explain=explain)
    if locked is not None:
        return _reprinted(locked, texts, profiles_dir)
    if own is not None:
        return _owned(own, texts, _catalog(profiles_dir, offline=offline), explain=explain)
    pictures.check()
    if why_not is not None:
        texts = _supplied(texts, target, profiles_dir, offline=offline)
        return _explained(texts, why_not, _catalog(profiles_dir, offline=offline))
    if sweep is not None:
        texts = _supplied(texts, target, profiles_dir, offline=offline)
        return _swept(texts, sweep, csv, _catalog(profiles_dir, offline=offline))
    client = Client(target=target, profiles_dir=profiles_dir, offline=offline)
    made: Plan | NoFeasiblePlan
    try:
        found = client.plan(**changed_fields(texts), explain=explain and lock is None)
    except NoPlanError as error:
        from tgi_deploy.cli.outcome import failure  # noqa: PLC0415 -- only then

        made, result = error.made, failure(error)
    else:
        made, result = found.outcome, _printed(found, explain=explain)
    if lock is None and not pictures.options:
        return result
    texts, catalog = _supplied(texts, target, profiles_dir, offline=offline), _catalog(profiles_dir, offline=offline)
    if lock is not None and isinstance(made, Plan):
        from tgi_deploy.cli.locking import write_lock  # noqa: PLC0415 -- help is printed without the planner

        write_lock(lock, texts, made, found.data.plan, catalog)
    return pictures.added_to(result, made, texts, catalog)


def _check_together(given: Sequence[str], *, explain: bool) -> None:
    """Raise InputError `conflicting_options` for options that can't be combined."""
    given = [*given, "--explain"] if explain else given
    page = next((name for name in _PAGES if name in given), None)
    allowed = _PAGES[page] if page else {name for name in given if name != "--csv"}
    other = next((name for name in given if name not in {page, *allowed}), None)
    if other is not None:
        what = (
            f"{page} and {other} exclude each other"
            if page
            else f"{other} is for the table of --sweep, which is missing"
        )
        raise InputError("conflicting_options", f"planning: {what}", hint=f"leave {other} out")


def _explained(texts: OptionTexts, name: str, catalog: Catalog) -> Result:
    from tgi_deploy.cli.views.why_not import why_not_text  # noqa: PLC0415 -- few plans ask
    from tgi_deploy.operations.planning.why_not import why_not, why_not_data  # noqa: PLC0415 -- few plans ask

    found = why_not(texts, name, catalog, os.environ)
    return Result(data=why_not_data(found), text=why_not_text(found))


def _swept(texts: OptionTexts, sweep_text: str, csv_path: Path | None, catalog: Catalog) -> Result:
    from tgi_deploy.cli.views import sweep as view  # noqa: PLC0415 -- few plans sweep
    from tgi_deploy.operations.planning.sweep import plan_each, read_sweep, sweep_data  # noqa: PLC0415 -- few sweep

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
    return Result(data=sweep_data(sweep, rows), text=text)


def _reprinted(path: Path, texts: OptionTexts, profiles_dir: Path | None) -> Result:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.cli.locking import locked_result  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.lock import refuse_options  # noqa: PLC0415 -- startup time

    refuse_options(texts, "--locked")
    return locked_result(path, wiring.catalog(profiles_dir, offline=True))


def _owned(path: Path, texts: OptionTexts, catalog: Catalog, *, explain: bool) -> Result:
    from tgi_deploy.catalog.owned import owned_machine  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.cli.views.own import own_text  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.operations.planning.no_plan import without_plan  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.operations.planning.own import plan_owned  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.operations.results.planning import result_of_plan  # noqa: PLC0415 -- help is printed without it

    outcome = plan_owned(texts, owned_machine(path), catalog, os.environ)
    if isinstance(outcome, NoFeasiblePlan):
        raise without_plan("plan", texts, outcome)
    made, owned = outcome
    result = _printed(result_of_plan(made, catalog, explain=explain, own=owned), explain=explain)
    return replaced(result, text=f"{result.text}\n{own_text(owned)}")


def _supplied(texts: OptionTexts, target: str, profiles_dir: Path | None, *, offline: bool) -> OptionTexts:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.operations.launching.target_options import supplied  # noqa: PLC0415 -- startup time

    catalog = _catalog(profiles_dir, offline=offline)
    return supplied(wiring.target_named(target), texts, catalog, os.environ)[0]


def _catalog(profiles_dir: Path | None, *, offline: bool) -> Catalog:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner

    return wiring.catalog(profiles_dir, offline=offline)


def decide(texts: OptionTexts, profiles_dir: Path | None, *, offline: bool = False) -> Plan | NoFeasiblePlan:
    """Return the plan for `texts` with the catalog and environment of this process."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.plan import plan  # noqa: PLC0415 -- help is printed without the planner

    return plan(texts, wiring.catalog(profiles_dir, offline=offline), os.environ)


def _details(plan: Plan) -> str:
    from tgi_deploy.cli.views.plan import details_text  # noqa: PLC0415 -- few plans are explained

    return details_text(plan)


def _printed(found: ApiResult[PlanData, Plan], *, explain: bool) -> Result:
    """Return the plan as printed, with list prices of other clouds if requested."""
    from tgi_deploy.cli.views.plan_summary import summary_text  # noqa: PLC0415 -- help is printed without the planner

    text = f"{summary_text(found.data.plan)}\n{_details(found.outcome) if explain else _MORE}"
    if found.data.elsewhere:
        from tgi_deploy.cli.views.plan import elsewhere_text  # noqa: PLC0415 -- few plans are explained

        text += "\n" + elsewhere_text(found.outcome.chosen.offer.instance_type, found.data.elsewhere)
    return printed(found, text, already_shown=(item for item in found.warnings if item.code == "notice"))
