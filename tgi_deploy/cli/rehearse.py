"""`rehearse`: run the real plan in an isolated sandbox, with faults that occur in the cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_option, profiles_dir_option, request_options, templates_dir_option
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import connected
from tgi_deploy.cli.stopping import stoppable
from tgi_deploy.cli.views.text import heading, wrapped
from tgi_deploy.text import plural, usd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tgi_deploy.values.change_results import MomentData, RehearsalData

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
@request_options
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
    model: str,
    request: dict[str, Any],
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
    words = tuple(word.strip() for text in faults for word in text.split(",") if word.strip())
    with connected(profiles_dir=profiles_dir, templates_dir=templates_dir) as (client, _), stoppable() as stops:
        found = client.rehearse(model, faults=words, seed=seed, name=name, stops=stops, **request)
    return printed(found, rehearsal_text(found.data))


def rehearsal_text(rehearsal: RehearsalData) -> str:
    return "\n".join([*_head(rehearsal), *_timeline(rehearsal), *_seen(rehearsal), *_foot(rehearsal)]) + "\n"


def _head(rehearsal: RehearsalData) -> Iterator[str]:
    faults = ", ".join(item.name for item in rehearsal.faults) or "none"
    machine = f"{rehearsal.machine.instance_type} in {rehearsal.machine.region}, {rehearsal.machine.market}"
    yield f"{heading(f'Rehearsal of {rehearsal.name}')}  {machine}; faults: {faults}; seed {rehearsal.seed}"
    yield ""


def _timeline(rehearsal: RehearsalData) -> Iterator[str]:
    yield heading("Timeline", "minutes and seconds, planned, not measured")
    for moment in rehearsal.timeline:
        yield wrapped(f"{_clock(moment)}  {moment.text}", first="  ", rest=" " * (_WIDTH + 4))
    yield ""


def _clock(moment: MomentData) -> str:
    minutes, seconds = divmod(round(moment.at_s), _MINUTE_S)
    return f"{minutes}:{seconds:02d}".rjust(_WIDTH)


def _seen(rehearsal: RehearsalData) -> Iterator[str]:
    yield heading("What you would have seen")
    for ending in rehearsal.endings:
        if ending.code is None:
            yield f"  {ending.command}: exit 0"
            continue
        yield f"  {ending.command}: exit {ending.exit_code}, error[{ending.code}]"
        yield wrapped(ending.message or "", first="    ", rest="    ")
        yield wrapped(f"hint: {ending.hint}", first="    ", rest="    ")
    yield ""


def _foot(rehearsal: RehearsalData) -> Iterator[str]:
    calls = sorted(rehearsal.calls.items(), key=lambda item: (-item[1], item[0]))
    total = sum(rehearsal.calls.values())
    yield wrapped(f"Calls  {total}: {', '.join(f'{action} {count}' for action, count in calls)}", first="", rest="  ")
    minutes = plural(round(rehearsal.machine_seconds / _MINUTE_S), "minute")
    yield f"Money  {usd(rehearsal.usd)} for {minutes} of machines, if this had been a real cloud"
    left = plural(len(rehearsal.left), "resource") if rehearsal.left else "nothing"
    yield f"Left   {left}"
    yield from (f"  {item.kind} {item.id}" for item in rehearsal.left)
