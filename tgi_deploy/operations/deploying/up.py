"""The use case `up`: brings a plan up until its engine serves, or reports what a failure left.

If killed at any point and run again, it resumes: existing resources are adopted, never created twice.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from tgi_deploy.errors import ConflictError, DeployError, LeftBehindError, Problem
from tgi_deploy.operations.context import Context, address_of
from tgi_deploy.operations.deploying.acceptance import (
    accept_equal_only,
    better_choice,
    differences,
    is_same_request,
    lacks_tls,
    plan_with_running,
    with_request,
)
from tgi_deploy.operations.deploying.claim import settle_claim, yield_to_older
from tgi_deploy.operations.deploying.current_state import (
    findings_of,
    is_done,
    lacks_shared,
    look,
    new_deployment,
    regions_of,
    reject_replacement,
    still_answers,
    unless_removed,
)
from tgi_deploy.operations.deploying.failure_report import (
    report_kept,
    report_left,
    report_not_restored,
    report_removed,
    report_restored,
    report_still_serving,
    with_diagnosis,
)
from tgi_deploy.operations.deploying.in_place import network_steps, networks_of, with_limits, with_networks
from tgi_deploy.operations.deploying.pausing import SwitchRequest, started, step_of, stopped_machine
from tgi_deploy.operations.deploying.proposal import Proposal
from tgi_deploy.operations.deploying.readiness import keep_certificate, wait
from tgi_deploy.operations.deploying.rolling import (
    begin,
    finish,
    front_of,
    promote,
    replaces_old,
    restore_limits,
    resume_or_withdraw,
    share_ceiling,
    spent_at_end,
    suggesting_recreate,
    total_spent,
    withdraw,
)
from tgi_deploy.operations.deploying.rollout import (
    SteppedFront,
    beside,
    next_revision,
    not_planned_again,
    relaunched,
    update_of,
)
from tgi_deploy.operations.deploying.scaling import in_its_pool, keeping_size, resized, resizing_of
from tgi_deploy.operations.deploying.service import ProofRequest, prove_service
from tgi_deploy.operations.deploying.stepping import unfinished_steps
from tgi_deploy.operations.deploying.surplus import removal_of_surplus, surplus_of, surplus_warning
from tgi_deploy.operations.launching.launch import first_attempt, launch_replica
from tgi_deploy.operations.launching.traffic import accepts_plaintext, check_key, url_to
from tgi_deploy.operations.removing.created_by_run import Existing, remove_created, remove_new
from tgi_deploy.operations.watching.broken_off import naming_what_exists
from tgi_deploy.operations.watching.limits import LeaseKeeper, Running
from tgi_deploy.operations.watching.status import added_rules
from tgi_deploy.planner.time_to_ready import estimate, moved_machines
from tgi_deploy.reconcile.errors import ClaimedError
from tgi_deploy.rollout.stages import (
    as_recreate,
    at_status,
    begin_update,
    claiming_steps,
    end_steps,
    is_ending,
    is_promoted,
    machines_to_end,
    mark_draining,
    mark_old_removed,
    mark_withdrawn,
    only_launched,
    serving_resources,
)
from tgi_deploy.targets.protocol import LaunchRequest, NetworkChange
from tgi_deploy.values.base import as_value, replaced
from tgi_deploy.values.names import check_name, default_name
from tgi_deploy.values.resource import ChangeSet, revision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.deploying.acceptance import Judge
    from tgi_deploy.operations.deploying.rollout import Origin, RevisionPlanner
    from tgi_deploy.operations.deploying.service import Proof, ReadyLevel
    from tgi_deploy.operations.launching.launch import Launched
    from tgi_deploy.readiness.waiting import ReadyReport
    from tgi_deploy.targets.protocol import Attempt, Launch
    from tgi_deploy.values.deployment import Deployment, Revision, Strategy
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import Found, Step

# `retry`: remove the machine and try again with another plan, without rolling back in between.
Decision = Literal["keep", "remove", "retry"]


class UpRequest(LaunchRequest, frozen=True, kw_only=True):
    """`confirm` is called before any change, `on_failure` if a machine runs but its engine does not.

    Both decide about resources that this run creates. Existing ones stay, unless the user has already agreed to remove
    everything (`remove_all`). `versions` are all that the engine's release may report. `judge` evaluates the running
    configuration, `plan_revision` plans a recorded revision. `exact` accepts only the plan's choice. `strategy` None is
    `rolling` where possible. With `goes_back`, a failed update by `recreate` restores the old revision.
    """

    target: str
    confirm: Callable[[Proposal], bool]
    on_failure: Callable[[DeployError], Decision]
    remove_all: bool = False
    versions: tuple[str, ...] = ()
    name: str | None = None
    ready: ReadyLevel = "full"
    dry_run: bool = False
    preflight: bool = True
    judge: Judge = accept_equal_only
    plan_revision: RevisionPlanner = not_planned_again
    exact: bool = False
    strategy: Strategy | None = None
    origin: Origin = "up"
    goes_back: bool = True

    @property
    def deployment_name(self) -> str:
        return self.name or default_name(self.plan.request.model.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpOutcome:
    """The outcome. `changed` is False if everything already existed, if the user declined, or in a dry run.

    `refused_s` is how long new requests were refused; `remarks` are warnings about what stays.
    """

    deployment: Deployment
    changed: bool
    proposal: Proposal | None = None
    ready: ReadyReport | None = None
    proof: Proof | None = None
    declined: bool = False
    refused_s: float | None = None
    remarks: tuple[Problem, ...] = ()


def up(context: Context, request: UpRequest) -> UpOutcome:
    """Bring the deployment up.

    Raises:
        InputError: `plaintext_key`.
        ConflictError: `locked`, `name_taken`; in a dry run also `being_removed`.
        LeftBehindError: an earlier removal could not be finished.
        NotHealthyError: the machine runs, but its engine is not healthy.
        DeployError: any other failure; the record has every resource that is left.
    """
    name = request.deployment_name
    check_name(name)
    with context.store.lock(name, command=context.command):
        recorded = context.store.load(name)
        facts = context.target(request.target).facts
        request = replaced(request, plan=keeping_size(request.plan, recorded, facts, back=request.origin == "rollback"))
        launch = _launch_of(context, request)
        plaintext = accepts_plaintext(launch, recorded)
        launch.traffic.check(plaintext=plaintext)
        recorded = unless_removed(context, recorded, dry_run=request.dry_run)
        first = None if recorded is None else _unfinished(context, request, launch, recorded)
        if first is not None and (unchanged := _without_action(request, first)) is not None:
            return unchanged
        outcome = _next_action(context, request, launch, recorded, plaintext=plaintext)()
        # Steps that went on have changed something, whatever followed.
        return replace(outcome, changed=outcome.changed or first is not None)


def _next_action(
    context: Context, request: UpRequest, launch: Launch, recorded: Deployment | None, *, plaintext: bool
) -> Callable[[], UpOutcome]:
    """Finish what an earlier run began, and return what creates, updates or changes the deployment, or does nothing."""
    name = request.deployment_name
    recorded = recorded and finish(context, recorded, origin=request.origin, dry_run=request.dry_run).deployment
    places = tuple(dict.fromkeys((*regions_of(request.plan, launch), *context.where(recorded))))
    everything = look(context, name, recorded, places, side=launch.rare_kinds)
    seen = settle_claim(context, name, recorded, everything)
    for rule in added_rules(context, seen):
        context.reporter.warn(rule)
    deployment, plan = _starting_point(context, request, launch, name, recorded, seen)
    deployment = replaced(deployment, plaintext=plaintext)
    stopped = stopped_machine(deployment, seen)
    if stopped is not None:
        return partial(_start_again, context, request, deployment, stopped)
    surplus = surplus_of(deployment, seen)
    for machine in surplus:
        context.reporter.warn(surplus_warning(deployment, machine))
    done = is_done(deployment, seen, wait=request.wait) and not lacks_shared(context, deployment, seen)
    if not (done and still_answers(context, deployment, wait=request.wait)):
        if plan is not request.plan:
            request = replaced(request, plan=plan)
            launch = _launch_of(context, request)
        return partial(_bring_up, context, request, launch, deployment, seen, surplus)
    if going := removal_of_surplus(surplus, deployment, seen):
        return partial(_end_surplus, context, request, recorded, deployment, surplus, going, seen)
    return partial(_change_in_place, context, request, launch, recorded, deployment, seen)


def _unfinished(context: Context, request: UpRequest, launch: Launch, recorded: Deployment) -> Proposal | None:
    """Return the question whether the steps of an unfinished update go on: before another one, and in a dry run."""
    if not is_promoted(recorded) or request.origin == "rollback" or recorded.target != request.target:
        return None
    done, plan = replaced(recorded, rollout=None), request.plan
    alone = is_same_request(done, plan=plan, launch=launch, exact=request.exact) or (
        not request.exact and plan_with_running(done, plan, launch.marks, request.judge) is not None
    )
    if (alone and not request.dry_run) or not isinstance(front_of(context, recorded), SteppedFront):
        return None
    steps = unfinished_steps(context, recorded, alone=alone)
    return None if steps is None else replace(_in_place_proposal(request, recorded, ()), unfinished=steps)


def _change_in_place(
    context: Context,
    request: UpRequest,
    launch: Launch,
    recorded: Deployment | None,
    deployment: Deployment,
    seen: Sequence[Found],
) -> UpOutcome:
    """Record the request, and change limits and networks of the existing machine."""
    change, resizing = networks_of(launch, seen), resizing_of(context, request, deployment)
    proposal = _in_place_proposal(request, deployment, network_steps(change, deployment.region))
    if resizing is not None:
        proposal = replace(proposal, resizing=resizing, findings=resizing.warnings)
        for item in resizing.warnings:
            context.reporter.warn(item)
    proposed = bool(change.removed) or resizing is not None
    if proposed and not request.dry_run and (unchanged := _without_action(request, proposal)) is not None:
        return unchanged
    if deployment != recorded and not request.dry_run:
        deployment = restore_limits(context, recorded, deployment, seen)
    better = tuple(better_choice(deployment, request.plan))
    deployment, moved = with_limits(context, request.ends, deployment, seen, dry_run=request.dry_run)
    if resizing is not None and not request.dry_run:
        deployment = resized(context, deployment, resizing, request.options, wait=request.wait).deployment
    sized = (resizing.remark(dry_run=request.dry_run),) if resizing is not None else ()
    remarks = (*moved, *sized, *with_networks(launch, seen, change, dry_run=request.dry_run), *better)
    changed, shown = proposed and not request.dry_run, proposal if proposed else None
    return UpOutcome(deployment=deployment, changed=changed, proposal=shown, remarks=remarks)


def _in_place_proposal(request: UpRequest, deployment: Deployment, steps: tuple[Step, ...]) -> Proposal:
    """Return a proposal whose steps create no machine."""
    return Proposal(
        deployment=deployment,
        candidate=request.plan.chosen,
        changes=ChangeSet(steps=steps),
        zone=deployment.region,
        ends=deployment.ends,
    )


def _launch_of(
    context: Context, request: UpRequest, serving: Deployment | None = None, *, spent: Spent | None = None
) -> Launch:
    """Return the launch. The machine of `serving` keeps running. `spent` is the name's cost, if already computed."""
    current = partial(total_spent, context, serving, request.plan)
    return context.target(request.target).launch(context, request, spent=lambda of: spent or current(of))


def _starting_point(
    context: Context, request: UpRequest, launch: Launch, name: str, recorded: Deployment | None, seen: Sequence[Found]
) -> tuple[Deployment, Plan]:
    """Return the recorded deployment, a new one, or one known only from tags, and the plan to use."""
    plan = request.plan
    if recorded is None:
        return new_deployment(context, request, launch.place, seen), plan
    if not seen and recorded.rollout is None and recorded.target != request.target:
        return replaced(recorded, endpoint=None, target=request.target), plan
    if recorded.target != request.target:
        raise ConflictError(
            "name_taken",
            f"'{name}' exists on another target: {recorded.target}, now {request.target}",
            hint=f"choose another --name, or run 'tgi-deploy down {name}' first: a deployment keeps its target",
        )
    same = partial(is_same_request, plan=plan, launch=launch, exact=request.exact)
    recorded = resume_or_withdraw(context, recorded, seen, same=same, wait=request.wait)
    now = context.clock.now()
    if same(recorded):
        return (with_request(recorded, plan) if request.exact else recorded), plan
    if not seen and recorded.rollout is None:
        return relaunched(recorded, plan, launch, at=now, update=context.new_id()), plan
    exact = request.exact or recorded.rollout is not None or lacks_tls(recorded, launch)
    stays = None if exact else plan_with_running(recorded, plan, launch.marks, request.judge)
    if stays is not None:
        return with_request(recorded, stays), stays
    context.reporter.note(f"'{name}' has different settings{differences(recorded, plan, launch)}")
    revision = next_revision(recorded, plan, launch, origin=request.origin, at=now, update=context.new_id())
    return begin(context, recorded, revision, seen, asked=request.strategy, wait=request.wait), plan


def _start_again(context: Context, request: UpRequest, deployment: Deployment, stopped: Running) -> UpOutcome:
    """Start the existing stopped machine from its disk."""
    proposal = _in_place_proposal(request, deployment, (step_of(stopped.machine, "start"),))
    if (unchanged := _without_action(request, proposal)) is not None:
        return unchanged
    with naming_what_exists(context, deployment.name, next_step="the same 'up' resumes it"):
        deployment, moved = with_limits(context, request.ends, deployment, stopped.seen, dry_run=False)
        asked = SwitchRequest(
            name=deployment.name, level=request.ready, reported_as=lambda _release: request.versions, wait=request.wait
        )
        came = started(context, asked, replace(stopped, recorded=deployment))
    deployment = came.deployment or deployment
    outcome = UpOutcome(deployment=deployment, changed=True, proposal=proposal, remarks=moved)
    return replace(outcome, ready=came.ready, proof=came.proof)


def _end_surplus(
    context: Context,
    request: UpRequest,
    recorded: Deployment | None,
    deployment: Deployment,
    surplus: tuple[Found, ...],
    going: tuple[Step, ...],
    seen: Sequence[Found],
) -> UpOutcome:
    """Remove the surplus machines and nothing else: the plan may have changed since the serving one was launched."""
    proposal = replace(_in_place_proposal(request, deployment, going), surplus=surplus)
    if (unchanged := _without_action(request, proposal)) is not None:
        return unchanged
    with naming_what_exists(context, deployment.name, next_step="the same 'up' resumes it"):
        deployment = restore_limits(context, recorded, context.executor().execute(deployment, proposal.changes), seen)
    return UpOutcome(deployment=deployment, changed=True, proposal=proposal)


def _without_action(request: UpRequest, proposal: Proposal) -> UpOutcome | None:
    """Return the outcome of a dry run or a declined confirmation; None to proceed."""
    declined = not request.dry_run and proposal.asks and not request.confirm(proposal)
    if not (request.dry_run or declined):
        return None
    return UpOutcome(deployment=proposal.deployment, changed=False, proposal=proposal, declined=declined)


def _bring_up(
    context: Context, request: UpRequest, launch: Launch, deployment: Deployment, seen: Sequence[Found],
    surplus: tuple[Found, ...],
) -> UpOutcome:  # fmt: skip
    old = tuple(found for found in machines_to_end(deployment, seen) if found not in surplus)
    ending = (*removal_of_surplus(surplus, deployment, seen), *end_steps(deployment, old))
    going = {step.attributes.get("id") for step in ending}
    stays = serving_resources(deployment, seen)
    rest = [found for found in seen if found.id not in going and found not in stays]
    asked = request, launch
    if deployment.rolling:
        request = beside(request, deployment, front_of(context, deployment))
        launch = _launch_of(context, request, deployment)
    with suggesting_recreate(deployment):
        attempt = first_attempt(launch, deployment, rest)
        if deployment.rolling and replaces_old(deployment, attempt, request.strategy):
            return _bring_up(context, *asked, as_recreate(deployment), seen, surplus)
        changes = replaced(attempt, changes=ChangeSet(steps=(*ending, *attempt.changes.steps)))
        reject_replacement(deployment, changes.changes.steps, (found for found in seen if found not in surplus))
        findings = findings_of(context, request, launch, deployment, changes)
    closing = replaced(networks_of(launch, rest), added=()) if request.origin == "up" else NetworkChange()
    networks = network_steps(closing, attempt.place)
    proposal = replace(_proposal(context, request, deployment, changes, networks), findings=findings, surplus=surplus)
    if (unchanged := _without_action(request, proposal)) is not None:
        return unchanged
    existing = Existing.of(
        deployment, [found for found in rest if not deployment.rolling or revision_of(found.key) is None]
    )
    back = f", 'tgi-deploy rollback {deployment.name}' goes back" if deployment.rollout else ""
    with naming_what_exists(context, deployment.name, next_step=f"the same 'up' resumes it{back}"):
        if is_ending(deployment) and request.ends.max_spend_usd is not None:
            # Computed once, since the claim depends on the rest of --max-spend: replacing it would free the name.
            launch = _launch_of(context, request, spent=spent_at_end(context, deployment))
            attempt = first_attempt(launch, deployment, rest)
        deployment = _end_old(context, deployment, ChangeSet(steps=ending), attempt.changes)
        deployment = share_ceiling(context, deployment, request.plan, attempt, seen)
        with _removing_if_refused(context, request, deployment, existing):
            launched = launch_replica(context, launch, request.plan, deployment)
            yield_to_older(context, launched.deployment, regions_of(request.plan, launch))
        with_networks(launch, rest, closing, dry_run=False)
        outcome = UpOutcome(deployment=launched.deployment, changed=True, proposal=proposal)
        if existing.has_machine_of(launched.deployment):
            limited, moved = with_limits(context, request.ends, launched.deployment, seen, dry_run=False)
            outcome = replace(outcome, deployment=limited, remarks=moved)
        kept = Existing() if request.remove_all and deployment.rollout is None else existing
        return _make_ready(context, request, launched, outcome, kept)


def _proposal(
    context: Context, request: UpRequest, deployment: Deployment, attempt: Attempt, networks: tuple[Step, ...]
) -> Proposal:
    front = front_of(context, deployment) if attempt.place == deployment.region else None
    return Proposal(
        deployment=deployment,
        candidate=attempt.candidate,
        changes=ChangeSet(steps=(*attempt.changes.steps, *networks)),
        cidrs=attempt.cidrs,
        ends=attempt.ends,
        zone=attempt.zone,
        update=update_of(
            deployment, request.plan, attempt.candidate, front, attempt.others, first_replicas=request.first_replicas
        ),
        reached=context.target(request.target).facts.reached,
    )


def _end_old(context: Context, deployment: Deployment, ending: ChangeSet, making: ChangeSet) -> Deployment:
    """Remove the old machine. An update is recorded before its first step, and again once the machine is gone.

    The revision's claim is created first: while no machine runs, it shows other users that an update is in progress.
    """
    executor = context.executor()
    if not is_ending(deployment):
        return executor.execute(deployment, ending)
    deployment = executor.save(deployment)
    try:
        deployment = executor.execute(deployment, ChangeSet(steps=claiming_steps(making)))
    except ClaimedError:
        executor.save(mark_withdrawn(context.store.load(deployment.name) or deployment))
        raise
    refusing = executor.save(mark_draining(deployment, context.clock.now()))
    return executor.save(mark_old_removed(executor.execute(refusing, ending)))


@contextmanager
def _removing_if_refused(
    context: Context, request: UpRequest, deployment: Deployment, existing: Existing
) -> Iterator[None]:
    """Remove what a launch created if the cloud rejects it, or if someone else owns the name."""
    try:
        yield
    except DeployError as error:
        if not error.refused:
            raise
        context.reporter.note("removing temporary resources")
        try:
            _abandon(context, deployment, existing)
        except LeftBehindError:
            context.reporter.warn(error.problem)
            raise
        except DeployError as second:
            context.reporter.warn(second.problem)
        else:
            error = _roll_back(context, request, error, existing)
        raise error from None


def _abandon(context: Context, deployment: Deployment, existing: Existing) -> None:
    """Remove what this run created. An update that was never recorded created nothing."""
    recorded = context.store.load(deployment.name)
    if recorded is None or (recorded.rollout is None and deployment.rollout is not None):
        return
    if recorded.rolling:
        withdraw(context, recorded)
    elif recorded.rollout is not None:
        remove_new(context, recorded, existing)
    else:
        remove_created(context, recorded, existing)


def _make_ready(
    context: Context, request: UpRequest, launched: Launched, outcome: UpOutcome, existing: Existing
) -> UpOutcome:
    executor, deployment, candidate = context.executor(), outcome.deployment, launched.candidate
    url = url_to(deployment.machine_at(deployment.wanted.number), launched.address, candidate.engine.port)
    lease = LeaseKeeper.of(context, only_launched(deployment))
    lease.beat()
    shown = deployment if deployment.rolling else replaced(deployment, endpoint=url)
    deployment = executor.save(shown.leased_until(lease.until))
    if not request.wait:
        return replace(outcome, deployment=deployment)
    check_key(made := replaced(only_launched(deployment), endpoint=url))
    try:
        phases = estimate(candidate, moved=moved_machines(request.plan, rolling=deployment.rolling))
        ready = wait(lease.kept_by(context), made, phases)
        deployment = keep_certificate(context, deployment.leased_until(lease.until))
        proof = prove_service(context, _proof_request(request, only_launched(deployment), url, ready))
    except DeployError as error:
        raise _failed(context, request, deployment.leased_until(lease.until), error, existing) from error
    since = deployment.rollout and deployment.rollout.refuses_since
    deployment = promote(context, deployment.leased_until(lease.until), url)
    refused_s = (context.clock.now() - since).total_seconds() if since else None
    what = f"{deployment.endpoint} serves {request.plan.request.model.name}"
    executor.event(deployment, "ready", what, data=proof.measured)
    done = finish(context, in_its_pool(context, deployment))
    refused_s = done.refused_s if refused_s is None else refused_s
    return replace(outcome, ready=ready, proof=proof, refused_s=refused_s, deployment=done.deployment)


def _proof_request(request: UpRequest, deployment: Deployment, url: str, ready: ReadyReport) -> ProofRequest:
    service = deployment.service
    if service is None or service.promise is None:
        raise ValueError("the record has no plan")
    return ProofRequest(
        address=address_of(url, deployment.machine), engine=service.engine, promise=service.promise,
        plan=deployment.plan, level=request.ready, versions=request.versions,
        chat=request.plan.request.model.chat, kv_capacity_tokens=ready.kv_capacity_tokens,
    )  # fmt: skip


def _failed(
    context: Context, request: UpRequest, deployment: Deployment, error: DeployError, existing: Existing
) -> DeployError:
    """Return the failure with its cause and the machine's state."""
    executor = context.executor()
    deployment = executor.save(at_status(deployment, "failed").in_state("failed"))
    executor.event(deployment, error.code, error.message, level="error")
    error = with_diagnosis(context, only_launched(deployment), error)
    there = existing.left_of(deployment)
    decision = "keep" if existing.has_machine_of(only_launched(deployment)) else request.on_failure(error)
    if decision == "keep":
        return report_kept(only_launched(deployment), error, before=there)
    updates, rolls = deployment.rollout is not None, deployment.rolling
    receipt = None
    try:
        if rolls:
            deployment = withdraw(context, deployment)
        else:
            receipt = (remove_new if updates else remove_created)(context, deployment, existing)
    except LeftBehindError:
        context.reporter.warn(error.problem)
        raise
    except DeployError as second:
        context.reporter.warn(second.problem)
        return report_left(deployment, error, second)
    if rolls:
        return report_still_serving(deployment, error)
    if updates and decision == "remove":
        return _roll_back(context, request, error, existing)
    return report_removed(context, deployment, error, receipt, before=() if updates else there)


def _roll_back(context: Context, request: UpRequest, error: DeployError, existing: Existing) -> DeployError:
    """Restore the previous revision after the new one failed and was removed; return the combined error.

    Return the error itself if there was no update, nothing served before it, or this was a rollback.
    """
    deployment = context.store.load(request.deployment_name)
    if deployment is not None and deployment.rollout is None and deployment.active is not None:
        return report_still_serving(deployment, error)
    source = deployment.numbered(deployment.rollout.source) if deployment and deployment.rollout else None
    if deployment is None or source is None or not request.goes_back:
        return error
    context.reporter.note(f"going back to revision {source.number}: {error.message}")
    try:
        back = _request_of(request, source)
        launch = _launch_of(context, back)
        now, update = context.clock.now(), context.new_id()
        revision = next_revision(deployment, back.plan, launch, origin="rollback", at=now, update=update)
        deployment = begin_update(deployment, revision, "recreate")
        deployment = context.executor().save(mark_old_removed(deployment))
        with _removing_if_refused(context, back, deployment, existing):
            launched = launch_replica(context, launch, back.plan, deployment)
        outcome = UpOutcome(deployment=launched.deployment, changed=True)
        return report_restored(error, source, _make_ready(context, back, launched, outcome, existing).deployment)
    except LeftBehindError:
        context.reporter.warn(error.problem)
        raise
    except DeployError as second:
        return report_not_restored(deployment, error, second)


def _request_of(request: UpRequest, revision: Revision) -> UpRequest:
    """Return the request for a recorded revision, with the limits of the current request."""
    plan, versions = request.plan_revision(revision)
    options = as_value(revision.options, type(request.options), "options")
    return replaced(
        request, plan=plan, versions=versions, options=options, origin="rollback", goes_back=False,
        on_failure=lambda _error: "remove", name=request.deployment_name,
    )  # fmt: skip
