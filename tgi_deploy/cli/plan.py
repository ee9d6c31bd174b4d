"""`plan`: choose and explain. No account; the network only for an unknown model of the hub."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.locking import LOCK_FILE
from tgi_deploy.cli.options import offline_option, plan_options_or, profiles_dir_option, target_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.pictures import picture_options
from tgi_deploy.errors import InputError, NoFeasiblePlanError, Problem, warning
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.cli.pictures import Pictures
    from tgi_deploy.operations.planning.option_texts import OptionTexts


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
    ),
)
@plan_options_or("locked")
@target_option
@profiles_dir_option
@offline_option
@picture_options
@click.option("--own", type=LOCK_FILE, metavar="FILE", help="Hardware you own or would buy, and which rental it beats.")
@click.option("--explain", "-v", is_flag=True, help="Show every refused configuration, and other clouds' list prices.")
@click.option("--lock", type=LOCK_FILE, metavar="FILE", help="Write the plan to FILE, to review and deploy exactly.")
@click.option("--locked", type=LOCK_FILE, metavar="FILE", help="Print the plan of a lock again, to the byte.")
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
    pictures: Pictures,
) -> Result:
    """Choose the machine, shards, quantization and engine settings that serve MODEL, and explain the choice.

    MODEL is a profile's name, a hub id (org/name, org/name@revision), or a directory with a config.json. Needs no
    account, and no network but for a hub model that is neither in the catalogue nor was read before.
    """
    if locked is not None:
        other = "--lock" if lock else "--own" if own else "--explain" if explain else pictures.option
        return _reprinted(locked, texts, profiles_dir, other=other)
    if own is not None:
        _refuse_beside_own("--lock" if lock else pictures.option)
        return _owned(own, texts, _catalog(profiles_dir, offline=offline), explain=explain)
    pictures.check()
    texts, notices = _supplied(texts, target, profiles_dir, offline=offline)
    outcome = decide(texts, profiles_dir, offline=offline)
    catalog = partial(_catalog, profiles_dir, offline=offline)
    if isinstance(outcome, NoFeasiblePlan):
        return pictures.added_to(no_plan_result("plan", texts, outcome, explain=explain), outcome, texts, catalog)
    result = _plan_result(outcome, notices, explain=explain)
    if lock is not None:
        from tgi_deploy.cli.locking import write_lock  # noqa: PLC0415 -- help is printed without the planner

        write_lock(lock, texts, outcome, result, catalog())
    elif explain:
        result = _compared(result, outcome, catalog())
    return pictures.added_to(result, outcome, texts, catalog)


def _compared(result: Result, plan: Plan, catalog: Catalog) -> Result:
    """Add what other clouds list for the same cards; not to what is locked: it is no part of the plan."""
    from tgi_deploy.cli.views.plan import elsewhere_text  # noqa: PLC0415 -- help is printed without the planner

    hardware = plan.chosen.offer.instance_type
    found = catalog.elsewhere(hardware.accelerator.name, hardware.accelerator_count)
    text = f"{result.text}\n{elsewhere_text(hardware, found)}"
    return replaced(result, data={**result.data, "elsewhere": found}, text=text)


def _reprinted(path: Path, texts: OptionTexts, profiles_dir: Path | None, *, other: str | None) -> Result:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.cli.locking import locked_result, refuse_options  # noqa: PLC0415 -- likewise

    refuse_options(texts, "--locked")
    if other is not None:
        raise InputError(
            "conflicting_options", f"--locked and {other} exclude each other: a lock is printed as it is",
            hint=f"leave {other} out",
        )  # fmt: skip
    return locked_result(path, wiring.catalog(profiles_dir, offline=True))


def _refuse_beside_own(other: str | None) -> None:
    if other is not None:
        raise InputError(
            "conflicting_options", f"--own and {other} exclude each other: only what can be deployed is kept or drawn",
            hint=f"leave {other} out, or plan with --hardware",
        )  # fmt: skip


def _owned(path: Path, texts: OptionTexts, catalog: Catalog, *, explain: bool) -> Result:
    from tgi_deploy.catalog.owned import owned_machine  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.cli.views.own import own_text  # noqa: PLC0415 -- few plans are of owned hardware
    from tgi_deploy.operations.planning.own import plan_owned  # noqa: PLC0415 -- few plans are of owned hardware

    outcome = plan_owned(texts, owned_machine(path), catalog, os.environ)
    if isinstance(outcome, NoFeasiblePlan):
        return no_plan_result("plan", texts, outcome, explain=explain)
    made, owned = outcome
    result = _plan_result(made, (), explain=explain)
    result = replaced(result, data={**result.data, "own": owned}, text=f"{result.text}\n{own_text(owned)}")
    return _compared(result, made, catalog) if explain else result


def _supplied(
    texts: OptionTexts, target: str, profiles_dir: Path | None, *, offline: bool
) -> tuple[OptionTexts, tuple[Problem, ...]]:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner
    from tgi_deploy.operations.launching.target_options import supplied  # noqa: PLC0415 -- likewise

    catalog = _catalog(profiles_dir, offline=offline)
    texts, found = supplied(wiring.target_named(target), texts, catalog, os.environ)
    return texts, found.notices


def _catalog(profiles_dir: Path | None, *, offline: bool) -> Catalog:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the planner

    return wiring.catalog(profiles_dir, offline=offline)


def decide(texts: OptionTexts, profiles_dir: Path | None, *, offline: bool = False) -> Plan | NoFeasiblePlan:
    """The plan for `texts` with the catalogue and environment of this process."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.planning.plan import plan  # noqa: PLC0415 -- help is printed without the planner

    return plan(texts, wiring.catalog(profiles_dir, offline=offline), os.environ)


def no_plan_result(command_name: str, texts: OptionTexts, outcome: NoFeasiblePlan, *, explain: bool = False) -> Result:
    """The result of any command that needed a plan and found none: exit 3, with the nearest misses."""
    from tgi_deploy.cli.options import with_option  # noqa: PLC0415 -- likewise
    from tgi_deploy.cli.views.plan import no_plan_text  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.planning.documents import no_plan_document  # noqa: PLC0415 -- likewise

    commands = [with_option(command_name, texts, miss.option) for miss in outcome.near_misses]
    error = Problem(
        code="no_feasible_plan",
        message=_why_not(outcome),
        hint=f"nearest: {outcome.near_misses[0].message}: {commands[0]}" if commands else _nothing_near(outcome),
    )
    return Result(
        data=no_plan_document(outcome),
        text=no_plan_text(outcome, commands, explain=explain),
        exit_code=NoFeasiblePlanError.exit_code,
        errors=(error,),
    )


def _nothing_near(outcome: NoFeasiblePlan) -> str:
    if outcome.request.flags:
        return "no change of the request helps, but less of what --set pins may: look at every refusal with --explain"
    against_all = set.intersection(*(set(item.codes) for item in outcome.rejections))
    reason = next((item.message for item in outcome.rejections if item.code in against_all), None)
    if reason is not None:
        return f"no change of the request helps: {reason}"
    return "no change of the request helps: look at every refusal with --explain, or choose another model"


def _why_not(outcome: NoFeasiblePlan) -> str:
    codes = sorted({item.code for item in outcome.rejections})
    reasons = f" ({', '.join(codes)})" if codes else ""
    model = outcome.request.model.name
    return f"planning {model}: none of {outcome.considered:,} configurations fits{reasons}"


def _plan_result(plan: Plan, notices: tuple[Problem, ...], *, explain: bool) -> Result:
    from tgi_deploy.cli.views.plan import plan_text  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.planning.documents import plan_document  # noqa: PLC0415 -- help is printed without the planner

    return Result(
        data={"plan": plan_document(plan)},
        text=plan_text(plan, explain=explain),
        warnings=(*notices, *(warning("notice", text) for text in plan.notices)),
        already_shown=frozenset({"notice"}),
    )
