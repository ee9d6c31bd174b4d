"""`up`: plan, show the changes and the price, ask, act, wait until healthy, prove it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.locking import LOCK_FILE, plan_of_lock
from tgi_deploy.cli.options import (
    name_option,
    plan_options_or,
    profiles_dir_option,
    sandbox_option,
    strategy_option,
    target_option,
    target_options,
    templates_dir_option,
    yes_option,
)
from tgi_deploy.cli.output import Result, message_line, tell
from tgi_deploy.cli.plan import no_plan_result
from tgi_deploy.cli.progress import Progress, can_ask, command_line, confirm, need_answer
from tgi_deploy.cli.stopping import stopped_up
from tgi_deploy.errors import DeployError, InputError, Problem, warning
from tgi_deploy.text import rate
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.deploying.acceptance import Judge
    from tgi_deploy.operations.deploying.heal import Cure, Healer
    from tgi_deploy.operations.deploying.service import ReadyLevel
    from tgi_deploy.operations.deploying.up import Decision, Proposal, UpOutcome, UpRequest
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Supplied, Target
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Revision, Strategy
    from tgi_deploy.values.ends import Ends, WantedEnds
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.wiring import Setup


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What `up` takes beside the request. `own`: the options of the target; `owner` is empty for the person here."""

    name: str | None
    target: Target
    sandbox: bool
    profiles_dir: Path | None
    templates_dir: Path | None
    own: Value
    api_key_from_env: str | None
    wait: bool
    ready: ReadyLevel
    on_failure: str
    heal: bool
    dry_run: bool
    yes: bool
    lock: Path | None = None
    force: bool = False
    preflight: bool = True
    replan: bool = False
    strategy: Strategy | None = None
    owner: str = ""


_KEPT: Final = tuple(item.name for item in fields(Options) if item.name not in {"target", "own"})


@command(
    "up",
    examples=(
        "tgi-deploy up llama3-13b --budget 5 --sandbox",
        "tgi-deploy up llama3-13b --budget 5 --ttl 2h --region eu-west-1",
        "tgi-deploy up llama3-8b --market spot --max-spend 3 --yes --no-wait",
        "tgi-deploy up llama3-70b --dry-run --json",
        "tgi-deploy up --lock llama3-13b.lock.json --ttl 2h",
        "tgi-deploy up -f deployment.toml --prune",
    ),
)
@plan_options_or("lock", "file")
@name_option
@target_option
@sandbox_option
@profiles_dir_option
@templates_dir_option
@target_options("up")
@click.option("--wait/--no-wait", default=True, help="Wait until the engine has answered.  [default: wait]")
@click.option(
    "--ready",
    type=click.Choice(("fast", "full")),
    default="full",
    show_default=True,
    help="What to prove: 'fast' that the right engine answers, 'full' that it bears the worst promised request.",
)
@click.option(
    "--on-failure",
    type=click.Choice(("ask", "keep", "remove")),
    default="ask",
    show_default=True,
    help="What to do with a machine whose engine fails; with --yes or without a terminal, 'ask' removes it.",
)
@click.option(
    "--heal", is_flag=True, help="Cure a failure by the change it calls for, inside the budget; twice at most."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--preflight/--no-preflight", default=True, help="Look for what would make it fail.  [default: look]")
@click.option("--lock", type=LOCK_FILE, metavar="FILE", help="Deploy exactly what 'plan --lock' wrote to FILE.")
@click.option("--force", is_flag=True, help="With --lock: even where today's plan differs.")
@click.option(
    "-f", "--file", type=LOCK_FILE, metavar="FILE", help="Bring up what a file describes, one deployment or several."
)
@click.option("--prune", is_flag=True, help="With -f: also delete what its owner has and the file does not name.")
@click.option("--replan", is_flag=True, help="Take today's choice although what runs is good enough: replaces it.")
@strategy_option
@yes_option
def up_command(*, texts: OptionTexts, target: str, file: Path | None, prune: bool, **given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Plan MODEL, show the changes and the price, ask, act, wait until it is healthy, and prove that it answers.

    A deployment that runs something else is updated: the new machine is proved beside the old one, which serves until
    then, or with --strategy recreate after it. If the new one fails, the old one goes on, or is made again. What runs
    and is good enough stays.
    """
    from tgi_deploy.operations.deploying.heal import up_and_heal  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.deploying.up import up  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.launching.target_options import supplied  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.plan import plan as make  # noqa: PLC0415 -- startup time
    from tgi_deploy.values.names import default_name  # noqa: PLC0415 -- startup time

    if file is not None or prune:
        from tgi_deploy.cli.up_file import up_of_file  # noqa: PLC0415 -- few runs go by a file

        return up_of_file(file, {**given, "target": target}, prune=prune)
    options = options_of(target, {"owner": "", **given})
    with Progress() as progress:
        catalog = wiring.catalog(options.profiles_dir)
        texts, found = supplied(options.target, texts, catalog, os.environ, locked=options.lock is not None)
        plan: Plan | NoFeasiblePlan
        if options.lock is None:
            plan = make(texts, catalog, os.environ)
        else:
            texts, plan = plan_of_lock(options.lock, texts, catalog, force=options.force)
        if isinstance(plan, NoFeasiblePlan):
            return no_plan_result(f"up --name {options.name}" if options.name else "up", texts, plan)
        check_startable(options.target, plan)
        check_answerable(options)
        setup = setup_of(options, _places(texts, plan, found), progress)
        request_for = partial(_request, catalog=catalog, options=options, found=found, progress=progress)
        outcome, cures = stopped_up(
            wiring.context(setup),
            (lambda guarded: up_and_heal(guarded, texts, request_for, plan, _healer(catalog, options)))
            if options.heal
            else (lambda guarded: (up(guarded, request_for(texts, plan)), ())),
            name=options.name or default_name(plan.request.model.name),
            quiet=progress.stop,
        )
    notice = wiring.region_notice(setup) if options.target.facts.regions else None
    return up_result(outcome, cures, (*found.notices, *up_warnings(plan, outcome, notice)))


def options_of(target: str, given: Mapping[str, Any]) -> Options:
    """Return what was given, with the target's own options. Raises InputError for what excludes one another."""
    from tgi_deploy.operations.launching.target_options import own_options, refuse  # noqa: PLC0415 -- see up_command
    from tgi_deploy.values.names import check_name  # noqa: PLC0415 -- startup time

    chosen = wiring.target_named(target)
    own = own_options(chosen, wiring.targets(), given)
    refuse(chosen, given, os.environ)
    options = Options(target=chosen, own=own, **{name: given[name] for name in _KEPT})
    _check_force(options)
    if options.name is not None:
        check_name(options.name)
    return options


def setup_of(options: Options, places: tuple[str, ...], progress: Progress) -> Setup:
    return wiring.Setup(
        progress=progress,
        command=command_line(),
        sandbox=options.sandbox,
        regions=places,
        profiles_dir=options.profiles_dir,
        api_key_variable=options.api_key_from_env,
        templates_dir=options.templates_dir,
        owner=options.owner,
    )


def up_result(outcome: UpOutcome, cures: Sequence[Cure], warnings: tuple[Problem, ...]) -> Result:
    from tgi_deploy.cli.views.deployment import up_document, up_text  # noqa: PLC0415 -- help is printed without them

    return Result(
        data=up_document(outcome, cures),
        text=up_text(outcome),
        warnings=(*warnings, *_healed(cures)),
        already_shown=_shown_before(outcome),
    )


def _shown_before(outcome: UpOutcome) -> frozenset[str]:
    """Return the codes of what was printed before the question."""
    asked = {"notice", "no_end"} if outcome.changed or outcome.declined else set()
    return frozenset(asked | {item.code for item in (outcome.proposal.warnings if outcome.proposal else ())})


def _healer(catalog: Catalog, options: Options) -> Healer:
    from tgi_deploy.catalog.phases import read_cures  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.deploying.heal import Healer  # noqa: PLC0415 -- startup time
    from tgi_deploy.operations.planning.plan import plan as make  # noqa: PLC0415 -- startup time

    return Healer(
        engine=catalog.engine,
        edits=read_cures(user_dir=options.profiles_dir),
        plan_again=lambda changed: make(changed, catalog, os.environ),
    )


def _healed(cures: Sequence[Cure]) -> tuple[Problem, ...]:
    """Warn about a deployment that differs from the request."""
    return tuple(warning("healed", f"after {cure.code}: {cure.what}") for cure in cures)


def _places(texts: OptionTexts, plan: Plan, found: Supplied) -> tuple[str, ...]:
    if found.place:
        return (found.place,)
    return plan.request.regions if texts.regions else ()


def _request(
    texts: OptionTexts,
    plan: Plan,
    *,
    catalog: Catalog,
    options: Options,
    found: Supplied,
    progress: Progress,
) -> UpRequest:
    from tgi_deploy.operations.planning.option_texts import wanted_ends  # noqa: PLC0415 -- help is printed without what acts

    asked = up_request(
        plan, wanted_ends(texts, os.environ), catalog=catalog, options=options, found=found, progress=progress
    )
    return replaced(asked, judge=_judge(texts, plan, catalog, options), exact=options.replan)


def up_request(
    plan: Plan, ends: WantedEnds, *, catalog: Catalog, options: Options, found: Supplied, progress: Progress
) -> UpRequest:
    """Return the request to bring up what is planned, whoever planned it."""
    from tgi_deploy.operations.deploying.up import UpRequest  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.planning.recorded import plan_of_revision  # noqa: PLC0415 -- startup time

    def again(revision: Revision) -> tuple[Plan, tuple[str, ...]]:
        former = plan_of_revision(revision, catalog)
        return former, catalog.release(former.chosen.engine.version).reported_as

    return UpRequest(
        plan=plan,
        target=options.target.name,
        options=options.own,
        ends=ends,
        supplied=found,
        environ=wiring.environment(sandbox=options.sandbox),
        confirm=lambda proposal: _confirm(proposal, plan, options, progress),
        on_failure=lambda error: _on_failure(error, options, progress),
        remove_all=options.on_failure == "remove",
        versions=catalog.release(plan.chosen.engine.version).reported_as,
        name=options.name,
        wait=options.wait,
        ready=options.ready,
        dry_run=options.dry_run,
        preflight=options.preflight,
        strategy=options.strategy,
        again=again,
    )


def _judge(texts: OptionTexts, plan: Plan, catalog: Catalog, options: Options) -> Judge:
    """Return what asks the planner about what runs. A lock wants exactly what it holds."""
    from tgi_deploy.operations.deploying.acceptance import no_judge  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.planning.plan import judged  # noqa: PLC0415 -- startup time

    if options.lock is not None:
        return no_judge
    return lambda running: judged(plan.request, running, catalog, release=texts.engine_version)


def _check_force(options: Options) -> None:
    if options.heal and options.lock is not None:
        raise InputError(
            "conflicting_options",
            "--heal changes the plan, --lock holds on to one: they exclude each other",
            hint="leave one of them out",
        )
    if options.force and options.lock is None:
        raise InputError(
            "conflicting_options",
            "--force without --lock has nothing to force",
            hint="add --lock FILE, or leave --force out",
        )


def check_startable(target: Target, plan: Plan) -> None:
    """Raise InputError for a plan that this version cannot bring up on the target."""
    refusal = target.refusal(plan)
    if refusal is not None:
        raise refusal
    most = max(candidate.replicas for candidate in (plan.chosen, *plan.fallbacks))
    if most > 1:
        raise InputError(
            "several_replicas",
            f"starting {plan.request.model.name}: the plan has {most} replicas, and 'up' runs one so far",
            hint="leave --replicas out, or plan with 'tgi-deploy plan' and start each under a --name of its own",
        )


def check_answerable(options: Options) -> None:
    """Fail before any lookup if a confirmation is needed but there is no terminal."""
    if not (options.yes or options.dry_run):
        need_answer(options.target.facts.begins)


def _confirm(proposal: Proposal, plan: Plan, options: Options, progress: Progress) -> bool:
    """Show all that speaks for and against it, then ask."""
    from tgi_deploy.cli.views.deployment import proposal_text  # noqa: PLC0415 -- see up_command

    progress.stop()
    tell(f"{proposal_text(proposal, plan.request)}\n")
    price = proposal.candidate.cost.usd_per_hour if proposal.candidate.offer.usd_per_hour is not None else None
    for item in (*_notices(plan), *_endless(proposal.ends, price)):
        tell(f"{message_line(item)}\n")
    if options.sandbox:
        tell("  sandbox: nothing is billed; its clock runs 60 times as fast, and so do the times and speeds below\n")
    launches = price is not None and any(step.action == "create" for step in proposal.changes.steps)
    question = f"Go on, for {rate(price)}?" if launches else "Go on?"
    return confirm(question, yes=options.yes, what=options.target.facts.begins)


def _on_failure(error: DeployError, options: Options, progress: Progress) -> Decision:
    if options.on_failure == "keep":
        return "keep"
    if options.on_failure == "remove" or options.yes or not can_ask():
        return "remove"
    progress.stop()
    click.echo(f"{error.message}", err=True)
    return "remove" if click.confirm("Remove what this run created?", default=True, err=True) else "keep"


def up_warnings(plan: Plan, outcome: UpOutcome, notice: str | None) -> tuple[Problem, ...]:
    from tgi_deploy.operations.launching.traffic import unencrypted  # noqa: PLC0415 -- help is printed without what acts

    warnings = [*_notices(plan)]
    if notice is not None:
        warnings.append(warning("default_region", notice))
    if outcome.proof is not None:
        warnings.extend(outcome.proof.warnings)
    warnings.extend(outcome.proposal.warnings if outcome.proposal else ())
    warnings.extend(outcome.remarks)
    if outcome.proposal is None and (told := unencrypted(outcome.deployment)):
        warnings.append(warning("unencrypted", told))
    deployment = outcome.deployment
    if outcome.changed:
        warnings.extend(_endless(deployment.ends, deployment.usd_per_hour))
    return tuple(warnings)


def _notices(plan: Plan) -> Iterator[Problem]:
    return (warning("notice", text) for text in plan.notices)


def _endless(ends: Ends, usd_per_hour: Decimal | None) -> Iterator[Problem]:
    """Yield a warning where nothing would stop the billing."""
    from tgi_deploy.planner.cost import usd_per_month  # noqa: PLC0415 -- help is printed without what acts

    if not ends.any and usd_per_hour is not None:
        month = usd_per_month(usd_per_hour)
        yield warning(
            "no_end",
            f"no limit ends this machine: about ${month:,.0f} a month; "
            "--ttl, --max-spend, --idle-timeout or --lease would",
        )
