"""`gc`: find orphans, show them, remove them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import region_option, sandbox_option, yes_option
from tgi_deploy.cli.output import Result, tell
from tgi_deploy.cli.progress import Progress, command_line, confirm
from tgi_deploy.cli.stopping import left_result, stopped
from tgi_deploy.errors import InputError, LeftBehindError, warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.removing.gc import GcOutcome, Group

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ADVICE: Final = "what is left is found again by the same 'tgi-deploy gc'"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    regions: tuple[str, ...]
    all_regions: bool
    older_than: str
    include_unrecorded: bool
    sandbox: bool
    dry_run: bool
    yes: bool


@command(
    "gc",
    examples=("tgi-deploy gc --dry-run", "tgi-deploy gc --all-regions --yes", "tgi-deploy gc --older-than 6h --json"),
)
@region_option
@click.option("--all-regions", is_flag=True, help="Look in every region of the catalogue.")
@click.option(
    "--older-than",
    default="1m",
    metavar="DURATION",
    show_default=True,
    help="Skip resources that may be younger than this: 30s, 10m, 6h, 2d; 0s skips none.",
)
@click.option(
    "--include-unrecorded",
    is_flag=True,
    help="Also remove running machines that have no record on this computer. They may be somebody else's.",
)
@sandbox_option
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@yes_option
def gc_command(**given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Find orphaned resources by their tags, show them, ask, remove them, and write receipts."""
    options = Options(**given)
    older_than_s = _age_s(options.older_than)
    with Progress() as progress:
        return _gc(options, older_than_s, progress)


def _age_s(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([smhd])", text.strip().lower(), re.ASCII)
    if match is None:
        problem = f"--older-than {text[:60]!r} is not a duration"
        raise InputError("bad_duration", problem, hint="write 30s, 10m, 6h or 2d")
    return int(match[1]) * _UNITS[match[2]]


def _gc(options: Options, older_than_s: int, progress: Progress) -> Result:
    from tgi_deploy import wiring  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.removing.gc import GcRequest, gc  # noqa: PLC0415 -- help is printed without what acts

    regions = wiring.targets()[0].locations(("all",)) if options.all_regions else options.regions
    context = wiring.context(
        wiring.Setup(progress=progress, command=command_line(), sandbox=options.sandbox, regions=regions)
    )
    request = GcRequest(
        older_than_s=older_than_s,
        include_unrecorded=options.include_unrecorded,
        confirm=lambda groups: _confirm(groups, options, progress),
    )
    try:
        outcome = stopped(context, lambda guarded: gc(guarded, request), doing="gc", advice=_ADVICE)
    except LeftBehindError as error:
        progress.stop()
        return left_result(error)
    progress.stop()
    return Result(
        data=_document(outcome),
        text=_text(outcome, dry_run=options.dry_run),
        warnings=tuple(warning("region_not_looked_at", f"{region}: {why}") for region, why in outcome.unseen),
    )


def _confirm(groups: Sequence[Group], options: Options, progress: Progress) -> bool:
    from tgi_deploy.cli.views.receipt import groups_text  # noqa: PLC0415 -- see gc_command

    progress.stop()
    tell(f"{groups_text('orphaned', groups)}\n")
    return not options.dry_run and confirm("Remove all this?", yes=options.yes, what="removing orphaned resources")


def _document(outcome: GcOutcome) -> dict[str, Any]:
    from tgi_deploy.cli.views.receipt import group_document, receipts_document  # noqa: PLC0415 -- see gc_command

    return {
        "orphans": [group_document(group) for group in outcome.orphans],
        "kept": [group_document(group) for group in outcome.kept],
        "removed": [receipt.name for receipt in outcome.receipts],
        "skipped": [{"deployment": name, "reason": reason} for name, reason in outcome.skipped],
        "declined": outcome.declined,
        "regions": list(outcome.regions),
        **receipts_document(outcome.receipts),
    }


def _text(outcome: GcOutcome, *, dry_run: bool) -> str:
    from tgi_deploy.cli.views.receipt import groups_text, receipts_text  # noqa: PLC0415 -- see gc_command

    lines = [groups_text("left alone", outcome.kept), receipts_text(outcome.receipts)]
    lines.extend(f"{name} was skipped: {reason}" for name, reason in outcome.skipped)
    if not outcome.orphans:
        lines.append(f"no orphaned resources in {', '.join(outcome.regions)}")
    if outcome.declined:
        lines.append("dry run: nothing was done" if dry_run else "nothing was done")
    return "\n".join(filter(None, lines))
