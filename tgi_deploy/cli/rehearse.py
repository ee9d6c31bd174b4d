"""`rehearse`: run the real plan in an isolated sandbox, with faults that occur in the cloud."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command, nearest
from tgi_deploy.cli.options import name_option, plan_options, profiles_dir_option, templates_dir_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import Progress, command_line
from tgi_deploy.cli.views.text import heading, wrapped
from tgi_deploy.errors import InputError, LeftBehindError, Problem
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.text import plural, usd
from tgi_deploy.values.base import as_dict
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.progress import NoteEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.rehearse import Ending, Moment, Rehearsal
    from tgi_deploy.operations.deploying.up import UpRequest
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.wiring import Setup

FAULTS: Final = (
    "capacity", "quota", "throttle", "lost-reply", "spot-reclaim", "slow-boot", "dead-host", "oom", "gated",
    "oom-load", "oom-warmup", "oom-serving", "disk-full", "bad-flag", "port-taken", "network", "wrong-model",
    "driver-too-old", "no-gpu",
)  # fmt: skip
_MINUTE_S: Final = 60
_WIDTH: Final = 8


@command(
    "rehearse",
    examples=(
        "tgi-deploy rehearse llama3-13b --budget 5 --fault capacity",
        "tgi-deploy rehearse llama3-8b --market spot --fault spot-reclaim,throttle --seed 7",
        "tgi-deploy rehearse llama3-13b --fault oom --json",
    ),
)
@plan_options
@name_option
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULTS",
    help=f"Faults to inject, separated by commas or repeated: {', '.join(FAULTS)}.",
    shell_complete=complete.words(*FAULTS),
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The same seed gives the same run."
)
@profiles_dir_option
@templates_dir_option
def rehearse_command(
    *,
    texts: OptionTexts,
    name: str | None,
    faults: tuple[str, ...],
    seed: int,
    profiles_dir: Path | None,
    templates_dir: Path | None,
) -> Result:
    """Rehearse 'up' and 'down' of your plan in an isolated sandbox with injected faults.

    The exit code is 0 if nothing is left in the end, whatever went wrong. The exit code of 'up' is in the
    result.
    """
    from tgi_deploy import wiring  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.deploying.rehearse import check_market, chosen, rehearse  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.plan import plan as make  # noqa: PLC0415 -- help is printed without the planner

    troubles = chosen(_words(faults), wiring.rehearsable(), lambda word: nearest(word, FAULTS))
    catalog = wiring.catalog(profiles_dir)
    plan = make(texts, catalog, os.environ)
    if isinstance(plan, NoFeasiblePlan):
        raise without_plan("rehearse", texts, plan)
    _check_rentable(plan)
    check_market(plan, troubles)
    with Progress() as progress:
        setup = _setup(progress, plan, profiles_dir, templates_dir)
        progress(NoteEvent(text="starting an isolated sandbox; your records are not touched"))
        with wiring.rehearsal(setup) as (context, stage):
            request = _request(texts, plan, catalog, context, name)
            return _result(rehearse(context, stage, request, troubles, seed=seed), plan)


def _words(given: Sequence[str]) -> list[str]:
    return [word.strip() for text in given for word in text.split(",") if word.strip()]


def _check_rentable(plan: Plan) -> None:
    if plan.chosen.offer.market == "owned":
        raise InputError(
            "not_rentable",
            f"{plan.chosen.offer.instance_type.name} is your own machine: there is no cloud to rehearse",
            hint="leave --hardware out",
        )


def _setup(progress: Progress, plan: Plan, profiles_dir: Path | None, templates_dir: Path | None) -> Setup:
    from tgi_deploy.wiring import Setup  # noqa: PLC0415 -- help is printed without what acts

    return Setup(
        progress=progress,
        command=command_line(),
        sandbox=True,
        regions=tuple(dict.fromkeys(one.offer.region for one in (plan.chosen, *plan.fallbacks))),
        profiles_dir=profiles_dir,
        templates_dir=templates_dir,
    )


def _request(texts: OptionTexts, plan: Plan, catalog: Catalog, context: Context, name: str | None) -> UpRequest:
    from tgi_deploy.operations.deploying.up import UpRequest  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.option_texts import wanted_ends  # noqa: PLC0415 -- startup time
    from tgi_deploy.values.ends import WantedEnds  # noqa: PLC0415 -- startup time

    release = catalog.release(plan.chosen.engine.version)
    target = context.targets[0]
    return UpRequest(
        plan=plan,
        target=target.name,
        options=target.options(),
        ends=WantedEnds(ttl_s=wanted_ends(texts, os.environ).lifetime_s(plan.chosen.cost.usd_per_hour)),
        environ={},
        confirm=lambda _proposal: True,
        on_failure=lambda _error: "remove",
        versions=release.reported_as,
        name=name,
    )


def _result(rehearsal: Rehearsal, plan: Plan) -> Result:

    data, text = rehearsal_document(rehearsal, plan), rehearsal_text(rehearsal, plan)
    if rehearsal.safe:
        return Result(data=data, text=text)
    left = ", ".join(f"{item.kind} {item.id}" for item in rehearsal.left)
    error = Problem(
        code="left_behind",
        message=f"after the rehearsal there was still {left}",
        hint="in a cloud this would cost money: please report it with the same --fault and --seed",
    )
    return Result(data=data, text=text, exit_code=LeftBehindError.exit_code, errors=(error,))


def rehearsal_document(rehearsal: Rehearsal, plan: Plan) -> dict[str, Any]:
    offer = plan.chosen.offer
    return {
        "name": rehearsal.name,
        "model": plan.chosen.engine.settings.model_id,
        "machine": {"instance_type": offer.instance_type.name, "region": offer.region, "market": offer.market},
        "seed": rehearsal.seed,
        "faults": [{"name": item.name, "description": item.description} for item in rehearsal.troubles],
        "timeline": [{"at_s": item.at_s, "code": item.code, "text": item.text} for item in rehearsal.timeline],
        "calls": dict(rehearsal.calls),
        "machine_seconds": rehearsal.machine_seconds,
        "usd": rehearsal.usd,
        "endings": [_ending_document(item) for item in rehearsal.endings],
        "left": [as_dict(item) for item in rehearsal.left],
        "safe": rehearsal.safe,
    }


def _ending_document(ending: Ending) -> dict[str, Any]:
    return {
        "command": ending.command,
        "exit_code": ending.exit_code,
        "code": ending.code or None,
        "message": ending.message or None,
        "hint": ending.hint or None,
    }


def rehearsal_text(rehearsal: Rehearsal, plan: Plan) -> str:
    return "\n".join([*_head(rehearsal, plan), *_timeline(rehearsal), *_seen(rehearsal), *_foot(rehearsal)]) + "\n"


def _head(rehearsal: Rehearsal, plan: Plan) -> Iterator[str]:
    offer = plan.chosen.offer
    faults = ", ".join(item.name for item in rehearsal.troubles) or "none"
    machine = f"{offer.instance_type.name} in {offer.region}, {offer.market}"
    yield f"{heading(f'Rehearsal of {rehearsal.name}')}  {machine}; faults: {faults}; seed {rehearsal.seed}"
    yield ""


def _timeline(rehearsal: Rehearsal) -> Iterator[str]:
    yield heading("Timeline", "minutes and seconds, planned, not measured")
    for moment in rehearsal.timeline:
        yield wrapped(f"{_clock(moment)}  {moment.text}", first="  ", rest=" " * (_WIDTH + 4))
    yield ""


def _clock(moment: Moment) -> str:
    minutes, seconds = divmod(round(moment.at_s), _MINUTE_S)
    return f"{minutes}:{seconds:02d}".rjust(_WIDTH)


def _seen(rehearsal: Rehearsal) -> Iterator[str]:
    yield heading("What you would have seen")
    for ending in rehearsal.endings:
        if not ending.code:
            yield f"  {ending.command}: exit 0"
            continue
        yield f"  {ending.command}: exit {ending.exit_code}, error[{ending.code}]"
        yield wrapped(ending.message, first="    ", rest="    ")
        yield wrapped(f"hint: {ending.hint}", first="    ", rest="    ")
    yield ""


def _foot(rehearsal: Rehearsal) -> Iterator[str]:
    calls = sorted(rehearsal.calls.items(), key=lambda item: (-item[1], item[0]))
    total = sum(rehearsal.calls.values())
    yield wrapped(f"Calls  {total}: {', '.join(f'{action} {count}' for action, count in calls)}", first="", rest="  ")
    minutes = plural(round(rehearsal.machine_seconds / _MINUTE_S), "minute")
    yield f"Money  {usd(rehearsal.usd)} for {minutes} of machines, if this had been a real cloud"
    left = plural(len(rehearsal.left), "thing") if rehearsal.left else "nothing"
    yield f"Left   {left}"
    yield from (f"  {item.kind} {item.id}" for item in rehearsal.left)
