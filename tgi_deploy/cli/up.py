"""`up`: plans, shows the changes and the price, asks, acts, waits until it is healthy, verifies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from tgi_deploy.api import target_for, target_of
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    FILE,
    check_model,
    name_option,
    profiles_dir_option,
    request_options_or_file,
    sandbox_option,
    strategy_option,
    target_option,
    target_options,
    templates_dir_option,
    yes_option,
)
from tgi_deploy.cli.output import Result, message_line, printed, write_stderr
from tgi_deploy.cli.progress import asked, can_ask, confirm, connected, need_answer
from tgi_deploy.cli.stopping import ask_removal, stoppable
from tgi_deploy.errors import warning
from tgi_deploy.text import rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tgi_deploy.api import Client, Decision, Proposal, UpOutcome
    from tgi_deploy.cli.progress import Progress
    from tgi_deploy.errors import DeployError, Problem, RecordedResource
    from tgi_deploy.values.base import Result as ApiResult
    from tgi_deploy.values.change_results import UpData
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.request import Request


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
@request_options_or_file
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
    help="What to verify: 'fast': the right engine answers; 'full': it handles the largest planned request.",
)
@click.option(
    "--on-failure",
    type=click.Choice(("ask", "keep", "remove")),
    default="ask",
    show_default=True,
    help="Keep or remove the machine if the engine fails; with --yes or without a terminal, 'ask' removes it.",
)
@click.option("--heal", is_flag=True, help="On failure, fix the plan within the budget and retry, at most twice.")
@click.option("--dry-run", is_flag=True, help="Show the changes, but make none.")
@click.option(
    "--preflight/--no-preflight",
    default=True,
    help="Check first for anything that would make the launch fail.  [default: preflight]",
)
@click.option("--lock", type=FILE, metavar="FILE", help="Deploy exactly the plan that 'plan --lock' wrote to FILE.")
@click.option("--force", is_flag=True, help="With --lock: deploy even if today's plan differs.")
@click.option("-f", "--file", type=FILE, metavar="FILE", help="Bring up one or more deployments from a file.")
@click.option("--prune", is_flag=True, help="With -f: also delete its owner's deployments that the file does not name.")
@click.option("--replan", is_flag=True, help="Replace a deployment that meets the request if today's plan is better.")
@strategy_option
@yes_option
def up_command(  # noqa: PLR0913 -- the options of the command line itself
    *,
    model: str | None,
    request: dict[str, Any],
    target: str,
    sandbox: bool,
    profiles_dir: Path | None,
    templates_dir: Path | None,
    on_failure: Literal["ask", "keep", "remove"],
    yes: bool,
    file: Path | None,
    prune: bool,
    **given: Any,  # noqa: ANN401 -- the options, each with its own type
) -> Result:
    """Plan MODEL, show the changes and the price, ask, act, wait until it is healthy, and verify that it answers.

    A deployment that runs something else is updated: the new machine is verified while the old one still serves,
    or with --strategy recreate after the old one is removed. If the new one fails, the old one keeps serving or is
    restored. A deployment that meets the request stays.
    """
    from tgi_deploy.cli.views.deployment import up_text  # noqa: PLC0415 -- not needed for --help

    where = {"target": target, "sandbox": sandbox, "profiles_dir": profiles_dir, "templates_dir": templates_dir}
    if file is not None or prune:
        from tgi_deploy.cli.up_file import up_of_file  # noqa: PLC0415 -- few runs use a file

        return up_of_file(file, where, {**given, "on_failure": on_failure, "yes": yes}, prune=prune)
    with connected(**where) as (client, progress), stoppable() as stops:
        asks = Asking(client, progress, ask=not (yes or given["dry_run"]), yes=yes, sandbox=sandbox)
        found = client.up(
            check_model(model, given["lock"]),
            on_plan=asks.on_plan,
            confirm=asks.confirm,
            on_failure=asks.on_failure if on_failure == "ask" else on_failure,
            on_interrupt=asks.on_interrupt,
            stops=stops,
            **request,
            **given,
        )
    return printed(found, up_text(found.outcome, asks.request), already_shown=shown_before(found))


class Asking:
    """The questions of `up` and `rollback` on the terminal. `ask` is whether there may be any."""

    def __init__(self, client: Client, progress: Progress, *, ask: bool, yes: bool, sandbox: bool) -> None:
        self._client, self._progress = client, progress
        self._ask, self._yes, self._sandbox = ask, yes, sandbox
        self._plan: Plan | None = None

    @property
    def request(self) -> Request | None:
        """Return the planned request; None before planning."""
        return self._plan.request if self._plan else None

    def on_plan(self, plan: Plan) -> None:
        """Fail before any lookup if a question needs a terminal and there is none.

        With a recorded deployment, there may be nothing to do and no question.
        """
        self._plan = plan
        if self._ask and not self._client.names("deployments"):
            need_answer(target_for(plan).facts.begins)

    def confirm(self, proposal: Proposal) -> bool:
        """Show the proposal and its warnings, then ask."""
        from tgi_deploy.cli.views.deployment import proposal_text  # noqa: PLC0415 -- not needed for --help
        from tgi_deploy.values.ends import endless  # noqa: PLC0415 -- startup time
        from tgi_deploy.values.pasted import Pasted  # noqa: PLC0415 -- startup time

        notices = self._plan.notices if self._plan else ()
        pasted = Pasted(sandbox=self._sandbox)
        write_stderr(f"{pasted.text(proposal_text(proposal, self.request))}\n")
        self._progress.stop()
        price = proposal.candidate.cost.usd_per_hour if proposal.candidate.offer.usd_per_hour is not None else None
        for item in (*(warning("notice", text) for text in notices), *endless(proposal.ends, price)):
            write_stderr(f"{message_line(pasted.problem(item))}\n")
        if self._sandbox:
            write_stderr(f"  sandbox: nothing is billed{self._pace()}\n")
        what = target_of(proposal.deployment.region).facts.begins
        if proposal.added_usd_per_hour:
            what = "adding replicas that cost money"
        question = f"Make these changes{'' if self._sandbox else _cost(proposal)}?"
        return confirm(question, yes=self._yes, what=what)

    def _pace(self) -> str:
        running = self._client.sandbox_status().outcome
        if running is None or running.speed == 1:
            return ""
        return f"; its clock runs {running.speed:g} times as fast, and so do the times and speeds below"

    def on_failure(self, error: DeployError) -> Decision:
        if self._yes or not can_ask():
            return "remove"
        self._progress.stop()
        write_stderr(f"{error.message}\n")
        return "remove" if asked("Remove what this run created?", default=True) else "keep"

    def on_interrupt(self, exists: tuple[RecordedResource, ...]) -> bool:
        return ask_removal(exists, self._progress.stop, yes=self._yes)


def _cost(proposal: Proposal) -> str:
    """Return what is paid for the changes, to end the question; empty for nothing or an unknown price."""
    if proposal.resizing is not None and proposal.added_usd_per_hour:
        estimated = proposal.resizing.headroom.estimated
        return f" and pay up to {rate(proposal.added_usd_per_hour, estimated=estimated)} more"
    offer = proposal.candidate.offer
    made = any(step.action == "create" and step.is_machine for step in proposal.changes.steps)
    if offer.usd_per_hour is None or not made:
        return ""
    return f" and pay {rate(proposal.candidate.cost.usd_per_hour, estimated=offer.estimated)}"


def shown_before(found: ApiResult[UpData, UpOutcome]) -> Iterator[Problem]:
    """Return the warnings that were printed before the question."""
    outcome = found.outcome
    asked = outcome.proposal is None or outcome.proposal.asks
    asked_with = {"notice", "no_limit"} if asked and (outcome.changed or outcome.declined) else set()
    codes = asked_with | {item.code for item in (outcome.proposal.warnings if outcome.proposal else ())}
    return (item for item in found.warnings if item.code in codes)
