"""`plan`: makes and explains a plan. Needs no account, and the network only for an unknown hub model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.api import Client
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import SectionOption, command
from tgi_deploy.cli.options import (
    FILE,
    check_model,
    offline_option,
    profiles_dir_option,
    request_options_or_file,
    target_option,
    target_options,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.values.base import plain, replaced
from tgi_deploy.values.options import flag_of
from tgi_deploy.values.plan_options import OPTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from tgi_deploy.values.base import Result as ApiResult
    from tgi_deploy.values.plan import Plan
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
_PLACELESS: Final = frozenset({"--locked", "--own"})


@command(
    "plan",
    examples=(
        "tgi-deploy plan llama3-13b --budget 5",
        "tgi-deploy plan llama3-70b --region all --market any --prefer cost",
        "tgi-deploy plan llama3-8b --hardware 1xRTX-4090 --context 4096",
        "tgi-deploy plan llama3-70b --own dgx-h100.toml",
        "tgi-deploy plan llama3-8b --target docker",
        "tgi-deploy plan ./my-model --hardware 1xRTX-4090 --set max-batch-prefill-tokens=2048 --json",
        "tgi-deploy plan llama3-13b --budget 5 --lock llama3-13b.lock.json",
        "tgi-deploy plan --locked llama3-13b.lock.json",
        "tgi-deploy plan llama3-13b --budget 5 --why-not g5.xlarge",
        "tgi-deploy plan llama3.1-8b --concurrency 256 --why-not 'two g6e.xlarge'",
        "tgi-deploy plan llama3.1-8b --sweep 'context=2048..16384*2' --prefer cost",
        "tgi-deploy plan llama3-8b --sweep region=us-east-1,eu-west-1 --csv - > regions.csv",
    ),
)
@request_options_or_file
@target_option
@target_options("plan")
@profiles_dir_option
@offline_option
@click.option(
    "--report",
    cls=SectionOption,
    section="Output",
    metavar="FILE",
    type=FILE,
    help="Also write a report: an HTML file, or only its chart as .svg or .png.",
)
@click.option("--own", type=FILE, metavar="FILE", help="Compare hardware that you own or would buy with rentals.")
@click.option(
    "--explain", is_flag=True, help="Show the bill, memory, command line, intervals, rejections and assumptions."
)
@click.option(
    "--lock",
    cls=SectionOption,
    section="Output",
    metavar="FILE",
    type=FILE,
    help="Write the plan to FILE, for review and exact deployment.",
)
@click.option("--locked", type=FILE, metavar="FILE", help="Print the plan from a lock file.")
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
@click.option(
    "--csv",
    cls=SectionOption,
    section="Output",
    metavar="FILE|-",
    type=FILE,
    help="Write the table of --sweep as CSV; - is stdout.",
)
def plan_command(  # noqa: PLR0913 -- one argument per option
    *,
    model: str | None,
    request: dict[str, Any],
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
    report: Path | None,
    **where: Any,  # noqa: ANN401 -- the targets' options, each with its own type
) -> Result:
    """Choose the machine, shards, quantization and engine settings that serve MODEL, and explain the choice.

    MODEL is a profile's name, a hub id (org/name, org/name@revision), or a directory with a config.json. Needs no
    account, and no network unless MODEL is a hub model that is neither in the catalog nor cached.
    """
    given = {
        "--locked": locked, "--own": own, "--why-not": why_not, "--sweep": sweep, "--lock": lock, "--csv": csv,
        "--report": report,
    }  # fmt: skip
    places = [flag_of(name) for name, value in where.items() if value]
    _check_together([name for name, value in given.items() if value], explain=explain, places=places)
    client = Client(target=target, profiles_dir=profiles_dir, offline=offline)
    model = check_model(model, locked)
    if locked is not None:
        _check_alone("--locked", model, request)
        return _printed(client.locked(locked))
    if own is not None:
        return _owned(client.own(model, own, explain=explain, **request), explain=explain)
    if why_not is not None:
        from tgi_deploy.cli.views.why_not import why_not_text  # noqa: PLC0415 -- few plans ask

        asked = client.why_not(model, why_not, **request, **where)
        return printed(asked, why_not_text(asked.outcome))
    if sweep is not None:
        return _swept(client, model, sweep, csv, request | where)
    found = client.plan(model, explain=explain and lock is None, lock=lock, report=report, **request, **where)
    return _printed(found, _details(found) if explain else _MORE)


def _check_alone(option: str, model: str, request: Mapping[str, Any]) -> None:
    """Raise InputError `conflicting_options` for a model or options, which the lock already contains."""
    given = "MODEL" if model else next((OPTION[name].flag for name in request), None)
    if given is not None:
        raise InputError(
            "conflicting_options",
            f"{option} and {given} exclude each other: the lock contains the request",
            hint=f"leave {given} out, or plan without {option}",
        )


def _check_together(given: Sequence[str], *, explain: bool, places: Sequence[str]) -> None:
    """Raise InputError `conflicting_options` for options that can't be combined; `places` choose a cluster."""
    given = [*given, "--explain"] if explain else given
    given = [*given, *places] if _PLACELESS & set(given) else given
    page = next((name for name in _PAGES if name in given), None)
    allowed = _PAGES[page] if page else {name for name in given if name != "--csv"}
    other = next((name for name in given if name not in {page, *allowed}), None)
    if other is not None:
        what = f"{page} and {other} exclude each other" if page else f"{other} needs the table of --sweep"
        raise InputError("conflicting_options", f"planning: {what}", hint=f"leave {other} out")


def _swept(client: Client, model: str, sweep: str, csv: Path | None, request: dict[str, Any]) -> Result:
    from tgi_deploy.cli.views.sweep import sweep_csv, sweep_text  # noqa: PLC0415 -- few plans sweep

    to_stdout = csv is not None and str(csv) == "-"
    if to_stdout and click.get_current_context().find_root().obj.as_json:
        raise InputError(
            "conflicting_options", "--csv - and --json exclude each other: both are written to stdout",
            hint="write --csv FILE instead",
        )  # fmt: skip
    found = client.sweep(model, sweep, **request)
    if csv is not None and not to_stdout:
        write_file(csv, sweep_csv(found.data), what="the table", option="--csv")
    return printed(found, (sweep_csv if to_stdout else sweep_text)(found.data))


def _owned(found: ApiResult[PlanData, Plan], *, explain: bool) -> Result:
    from tgi_deploy.cli.views.own import own_text  # noqa: PLC0415 -- few plans are of owned hardware

    result = _printed(found, _details(found) if explain else _MORE)
    return replaced(result, text=f"{result.text}\n{own_text(found.data.own)}" if found.data.own else result.text)


def _details(found: ApiResult[PlanData, Plan]) -> str:
    from tgi_deploy.cli.views.plan import details_text  # noqa: PLC0415 -- few plans are explained

    return details_text(found.outcome, found.data.plan)


def _printed(found: ApiResult[PlanData, Any], more: str | None = None) -> Result:
    """Return the plan as text; if requested, with list prices of other clouds and the names of written files."""
    from tgi_deploy.cli.views.plan_summary import summary_text  # noqa: PLC0415 -- not needed for --help

    text = summary_text(found.data.plan)
    if more is not None:
        text += f"\n{more}"
    if found.data.elsewhere:
        from tgi_deploy.cli.views.plan import elsewhere_text  # noqa: PLC0415 -- few plans are explained

        text += "\n" + elsewhere_text(found.outcome.chosen.offer.instance_type, found.data.elsewhere)
    if found.data.files:
        from tgi_deploy.cli.views.plan import files_text  # noqa: PLC0415 -- few plans are drawn

        text += "\n" + files_text(plain(found.data.files))
    return printed(found, text, already_shown=(item for item in found.warnings if item.code == "notice"))
