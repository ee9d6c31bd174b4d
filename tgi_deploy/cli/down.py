"""`down`: remove a deployment, or all, and prove that nothing is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import region_option, sandbox_option, yes_option
from tgi_deploy.cli.output import Result, tell
from tgi_deploy.cli.progress import Progress, command_line, confirm
from tgi_deploy.cli.stopping import left_result, stopped, unsearched_notices
from tgi_deploy.errors import InputError, LeftBehindError, Problem, warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.down import DownOutcome, Removal


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    everything: bool
    regions: tuple[str, ...]
    sandbox: bool
    volumes: bool
    dry_run: bool
    yes: bool


@command(
    "down",
    examples=("tgi-deploy down llama3-13b", "tgi-deploy down --all --yes", "tgi-deploy down llama3-13b --region all"),
)
@click.argument("name", required=False, shell_complete=complete.deployments)
@click.option("--all", "everything", is_flag=True, help="Every deployment, recorded or only tagged.")
@region_option
@sandbox_option
@click.option("--volumes", is_flag=True, help="Also what outlives deployments, as downloaded weights on a host.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@yes_option
def down_command(*, name: str | None, **given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Remove everything of a deployment, look that it is gone, then forget it. Works from tags without a record."""
    options = Options(**given)
    if bool(name) == options.everything:
        raise InputError(
            "bad_usage", "name one deployment, or give --all", hint="'tgi-deploy list' shows what there is"
        )
    with Progress() as progress:
        names = [name] if name else []
        return remove(names, options, progress, again=" ".join(["tgi-deploy down", *(names or ("--all",))]))


def remove(names: Sequence[str], options: Options, progress: Progress, *, again: str) -> Result:
    """Remove the deployments of these names, or all; `again` is the command that resumes an interrupted run."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.removing.down import down  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.removing.down_all import down_all  # noqa: PLC0415 -- startup time

    setup = wiring.Setup(progress=progress, command=command_line(), sandbox=options.sandbox, regions=options.regions)
    context = wiring.context(setup)

    def act(guarded: Context, ask: Callable[[Sequence[Removal]], bool]) -> DownOutcome:
        if not names:
            return down_all(guarded, ask, volumes=options.volumes)
        return down(guarded, names, ask, volumes=options.volumes)

    try:
        outcome = stopped(
            context,
            lambda guarded: act(guarded, lambda removals: _confirm(removals, options, progress)),
            doing=again,
            advice=f"what is left keeps its record: '{again}' resumes where it stopped, 'tgi-deploy list' shows it",
        )
    except LeftBehindError as error:
        progress.stop()
        return left_result(error)
    progress.stop()
    return Result(
        data=_document(outcome, context),
        text=_text(outcome, names, context, dry_run=options.dry_run),
        warnings=(*unsearched_notices(outcome.receipts), *_misspelt(outcome, context)),
    )


def _misspelt(outcome: DownOutcome, context: Context) -> Iterator[Problem]:
    """Warn about a name without resources: it may be a typo, and the intended deployment would keep running."""
    from tgi_deploy.operations.watching.known import recorded_like  # noqa: PLC0415 -- see down_command

    for name in outcome.absent:
        near = recorded_like(context, name)
        if near:
            told = f"there was nothing of '{name}' to remove; on record there is {' and '.join(near)}"
            yield warning("unknown_deployment", told)


def _confirm(removals: Sequence[Removal], options: Options, progress: Progress) -> bool:
    from tgi_deploy.cli.views.deployment import removals_text  # noqa: PLC0415 -- see down_command

    progress.stop()
    tell(f"{removals_text(removals)}\n")
    return not options.dry_run and confirm("Remove all this?", yes=options.yes, what="removing a deployment")


def _document(outcome: DownOutcome, context: Context) -> dict[str, Any]:
    from tgi_deploy.cli.views.deployment import changes_document  # noqa: PLC0415 -- see down_command
    from tgi_deploy.cli.views.receipt import receipts_document  # noqa: PLC0415 -- startup time

    return {
        "removed": list(outcome.removed),
        "absent": list(outcome.absent),
        "declined": outcome.declined,
        "regions": list(context.regions),
        "changes": {item.name: changes_document(item.changes) for item in outcome.removals if not item.nothing},
        **receipts_document(outcome.receipts),
    }


def _text(outcome: DownOutcome, names: Sequence[str], context: Context, *, dry_run: bool) -> str:
    from tgi_deploy.cli.views.receipt import receipts_text  # noqa: PLC0415 -- see down_command

    lines = [f"{name} is gone: nothing of it is left" for name in outcome.removed]
    lines.extend(filter(None, [receipts_text(outcome.receipts)]))
    regions = ", ".join(context.regions)
    lines.extend(f"there is nothing of {name} in {regions}" for name in outcome.absent)
    if outcome.declined:
        lines.append("dry run: nothing was done" if dry_run else "nothing was done")
    if not lines and not names:
        lines.append(f"there is nothing to remove in {regions}")
    return "\n".join(lines)
