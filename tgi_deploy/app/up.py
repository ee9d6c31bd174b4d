"""The use case `up`: from a plan to an engine that answers, or to the knowledge of what is left.

Killed anywhere and run again it goes on from there: what exists is adopted, never made twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.app.documents import requirements_document
from tgi_deploy.app.down import remove_everything
from tgi_deploy.app.launch import await_visible
from tgi_deploy.app.launchpads import launchpad
from tgi_deploy.app.readiness import prove_served, wait
from tgi_deploy.errors import ConflictError, DeployError, NotHealthyError
from tgi_deploy.reconcile.errors import BadRequestError, NoCapacityError, PermissionDeniedError, QuotaError
from tgi_deploy.reconcile.model import TAG_ID, Deployment, digest
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.render.artifacts import check_name
from tgi_deploy.targets.ec2 import endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.app.attempt import Attempt, Launchpad
    from tgi_deploy.app.context import Context
    from tgi_deploy.app.launchpads import Settings
    from tgi_deploy.planner.types import Candidate, Plan
    from tgi_deploy.reconcile.health import ReadyReport
    from tgi_deploy.reconcile.model import ChangeSet, Found
    from tgi_deploy.reconcile.proof import ProofReport

Decision = Literal["keep", "remove"]
_LONGEST_NAME: Final = 40
_FRESH: Final = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What would be done, before anything is."""

    deployment: Deployment
    candidate: Candidate
    changes: ChangeSet
    cidrs: tuple[str, ...]
    ttl_s: int | None
    zone: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UpRequest:
    """`confirm` is asked before anything is done, `on_failure` when a machine runs and its engine does not.

    `versions` are all that the engine's release may report itself as.
    """

    plan: Plan
    settings: Settings
    confirm: Callable[[Proposal], bool]
    on_failure: Callable[[DeployError], Decision]
    versions: tuple[str, ...] = ()
    name: str | None = None
    wait: bool = True
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class UpOutcome:
    """`changed` is False when everything was there already, or nothing was to be done (`declined`, dry run)."""

    deployment: Deployment
    changed: bool
    proposal: Proposal | None = None
    ready: ReadyReport | None = None
    proof: ProofReport | None = None
    declined: bool = False


def up(context: Context, request: UpRequest) -> UpOutcome:
    """Bring it up.

    Raises:
        ConflictError: `locked`, `name_taken`, `being_removed`.
        NotHealthyError: it runs and is not healthy; what became of it is in the message.
        DeployError: whatever stopped it; nothing is left that the record does not know.
    """
    name = request.name or default_name(request.plan.requirements.model.name)
    check_name(name)
    with context.store.lock(name, command=context.command):
        recorded = context.store.load(name)
        pad = launchpad(context, request.plan, request.settings)
        seen = _observe(context, name, recorded, [pad.place])
        deployment = _starting_point(context, request, pad, name, recorded, seen)
        if _is_done(deployment, seen, wait=request.wait):
            return UpOutcome(deployment=deployment, changed=False)
        return _bring_up(context, request, pad, deployment, seen)


def _observe(context: Context, name: str, recorded: Deployment | None, places: Sequence[str]) -> tuple[Found, ...]:
    """What there is. A machine recorded a moment ago may not show yet: that is waited for, never taken for gone."""
    if recorded is not None and context.clock.now() - recorded.updated < _FRESH:
        await_visible(context, recorded)
    return observe(name, recorded, cloud=context.cloud, places=places)


def default_name(model: str) -> str:
    """A deployment's name made of a model's: lower case, digits and hyphens, 3 to 40 characters."""
    words = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    words = words if words[:1].isalpha() else f"m-{words}"
    return words[:_LONGEST_NAME].strip("-").ljust(3, "x")


def wish_digest(plan: Plan, target: str) -> str:
    """A hash of what was asked for: two runs with the same one want the same deployment."""
    return digest({"target": target, **requirements_document(plan.requirements)})


def _starting_point(
    context: Context,
    request: UpRequest,
    pad: Launchpad,
    name: str,
    recorded: Deployment | None,
    seen: Sequence[Found],
) -> Deployment:
    """The recorded deployment if it is of the same wish, a new one, or one known only from tags."""
    wish = wish_digest(request.plan, pad.target)
    if recorded is None:
        return _new(context, pad, name, wish, seen)
    if recorded.phase == "deleting":
        raise ConflictError(
            "being_removed",
            f"'{name}' is being removed",
            hint=f"run 'tgi-deploy down {name}' to its end, then try again",
        )
    if recorded.wish != wish and seen:
        raise ConflictError(
            "name_taken",
            f"'{name}' exists and was asked for differently",
            hint=f"choose another --name, or run 'tgi-deploy down {name}' first",
        )
    return recorded if recorded.wish == wish else replace(recorded, wish=wish, endpoint=None, target=pad.target)


def _new(context: Context, pad: Launchpad, name: str, wish: str, seen: Sequence[Found]) -> Deployment:
    now = context.clock.now()
    ids = sorted({found.tags[TAG_ID] for found in seen if TAG_ID in found.tags})
    return Deployment(
        name=name,
        id=ids[0] if ids else context.new_id(),
        target=pad.target,
        region=pad.place,
        phase="creating",
        created=now,
        updated=now,
        wish=wish,
    )


def _is_done(deployment: Deployment, seen: Sequence[Found], *, wait: bool) -> bool:
    finished = deployment.phase == "ready" or (deployment.phase == "running" and not wait)
    record = deployment.machine
    alive = any(found.alive and record is not None and found.id == record.attributes.get("id") for found in seen)
    return finished and alive


def _bring_up(
    context: Context, request: UpRequest, pad: Launchpad, deployment: Deployment, seen: Sequence[Found]
) -> UpOutcome:
    attempt = pad.first(deployment, seen)
    _refuse_to_replace(deployment, attempt, seen)
    proposal = _proposal(deployment, attempt)
    if request.dry_run:
        return UpOutcome(deployment=deployment, changed=False, proposal=proposal)
    if attempt.changes.changes and not request.confirm(proposal):
        return UpOutcome(deployment=deployment, changed=False, proposal=proposal, declined=True)
    deployment, candidate = _launch(context, pad, deployment)
    outcome = UpOutcome(deployment=deployment, changed=True, proposal=proposal)
    return _make_ready(context, request, pad, outcome, candidate)


def _refuse_to_replace(deployment: Deployment, attempt: Attempt, seen: Sequence[Found]) -> None:
    """A machine that no record of ours knows is never ended to make room."""
    known = deployment.machine
    running = {found.id for found in seen if found.is_machine and found.alive}
    for step in attempt.changes.steps:
        strange = known is None and deployment.serial == 0
        if step.action == "delete" and step.attributes.get("id") in running and strange:
            raise ConflictError(
                "name_taken",
                f"a machine named '{deployment.name}' runs in {step.place} ({step.attributes['id']}), made differently",
                hint=f"choose another --name, or run 'tgi-deploy down {deployment.name}' first",
            )


def _proposal(deployment: Deployment, attempt: Attempt) -> Proposal:
    return Proposal(
        deployment=deployment,
        candidate=attempt.candidate,
        changes=attempt.changes,
        cidrs=attempt.cidrs,
        ttl_s=attempt.ttl_s,
        zone=attempt.zone,
    )


def _launch(context: Context, pad: Launchpad, deployment: Deployment) -> tuple[Deployment, Candidate]:
    """Launch; when the cloud refuses for good, take away again what was made on the way."""
    name = deployment.name
    try:
        return pad.launch(deployment)
    except (NoCapacityError, QuotaError, PermissionDeniedError, BadRequestError) as error:
        context.reporter.note("taking away what was made on the way")
        try:
            _abandon(context, name)
        except DeployError as second:
            context.reporter.warn(second.code, second.message)
        raise error from None


def _abandon(context: Context, name: str) -> None:
    recorded = context.store.load(name)
    if recorded is not None:
        remove_everything(context, recorded)


def _make_ready(
    context: Context, request: UpRequest, pad: Launchpad, outcome: UpOutcome, candidate: Candidate
) -> UpOutcome:
    executor, deployment = context.executor(), outcome.deployment
    url = endpoint(pad.address(deployment), candidate.engine.port)
    deployment = executor.save(replace(deployment, endpoint=url))
    if not request.wait:
        return replace(outcome, deployment=deployment)
    record = deployment.machine
    if record is None:
        raise ValueError("there is no record of a machine")
    try:
        ready = wait(context, candidate, record)
        proof = prove_served(
            context, candidate, url, versions=request.versions, chat=request.plan.requirements.model.chat
        )
    except DeployError as error:
        raise _failed(context, request, deployment, error) from error
    deployment = executor.save(replace(deployment, phase="ready"))
    executor.event(deployment, "ready", f"{url} serves {request.plan.requirements.model.name}")
    return replace(outcome, deployment=deployment, ready=ready, proof=proof)


def _failed(context: Context, request: UpRequest, deployment: Deployment, error: DeployError) -> DeployError:
    """The same failure, saying what became of the machine."""
    executor = context.executor()
    deployment = executor.save(replace(deployment, phase="failed"))
    executor.event(deployment, error.code, error.message, level="error")
    if request.on_failure(error) == "keep":
        price = f" and costs ${deployment.usd_per_hour:.3f} an hour" if deployment.usd_per_hour else ""
        name = deployment.name
        kept = (
            f"the machine still runs{price}: 'tgi-deploy logs {name}' shows its log, 'tgi-deploy down {name}' ends it"
        )
        return _with_hint(error, kept)
    remove_everything(context, deployment)
    return _with_hint(error, "everything was removed again; --on-failure keep leaves the machine and its log")


def _with_hint(error: DeployError, hint: str) -> DeployError:
    kind = NotHealthyError if isinstance(error, NotHealthyError) else DeployError
    own = "" if error.hint is None or "logs" in error.hint else f"{error.hint}; "
    full = f"{own}{hint}"
    return kind(error.code, error.message, hint=full, data=error.data)
