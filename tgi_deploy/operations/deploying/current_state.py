"""Reads the state that commands check before they act: the record, the existing resources, what is left to do."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING

from tgi_deploy.errors import ConflictError, DeployError, Problem, warning
from tgi_deploy.operations.checking.preflight import preflight
from tgi_deploy.operations.deploying.claim import reject_newer, with_its_record
from tgi_deploy.operations.deploying.rolling import check_restorable, finish, front_of, keeps_serving
from tgi_deploy.operations.deploying.rollout import SteppedFront
from tgi_deploy.operations.removing.down import remove_own
from tgi_deploy.operations.removing.leftovers import removing
from tgi_deploy.operations.settling import observe_settled
from tgi_deploy.operations.watching.limits import Running
from tgi_deploy.operations.watching.lookup import given_ends, is_stopped, look_at, other_machines
from tgi_deploy.reconcile.claim import claimed_error, foreign
from tgi_deploy.reconcile.ends import ends_of, stamp
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.rollout.stages import is_promoted, next_commands
from tgi_deploy.text import option_duration
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Deployment, Pool, Revision
from tgi_deploy.values.resource import TAG_ID, TAG_UPDATE, revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.up import UpRequest
    from tgi_deploy.targets.protocol import Attempt, Launch
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import Found, Step


def unless_removed(context: Context, recorded: Deployment | None, *, dry_run: bool) -> Deployment | None:
    """Return the record; None after finishing a removal that an earlier run began."""
    if recorded is None or recorded.status != "deleting":
        return recorded
    if dry_run:
        raise _being_removed(recorded.name, "; so does 'up' without --dry-run")
    context.reporter.note(f"finishing an earlier removal of '{recorded.name}'")
    with removing(context, recorded.name):
        remove_own(context, recorded)
    return None


def current_machine(context: Context, name: str, *, in_steps: bool = False) -> Running:
    """Return a running or stopped machine that no other command is changing.

    An update that is already promoted is finished first, unless it replaces its replicas in steps. With `in_steps`, the
    serving machine of such an update is returned, too.

    Raises:
        InputError: `unknown_deployment`.
        ConflictError: `being_removed`, `update_unfinished`, also for two machines without a record, `name_taken`.
        DeployError: `machine_missing`, or the error for an old machine that is still running.
    """
    recorded = context.store.load(name)
    stepped = recorded is not None and is_promoted(recorded) and isinstance(front_of(context, recorded), SteppedFront)
    if recorded is not None and recorded.status != "deleting" and not stepped:
        finish(context, recorded)
    sight = look_at(context, name)
    recorded, machine = sight.recorded, sight.machine
    if recorded is not None:
        reject_newer(context, recorded, sight.seen)
    elif machine is not None and (others := other_machines(None, sight.seen)):
        raise _two_machines(name, (machine, *others))
    if recorded is not None and recorded.status == "deleting":
        raise _being_removed(name)
    if machine is not None and recorded is not None and foreign((machine,), recorded.id):
        raise claimed_error(name, machine, owner=context.owner)
    if recorded is not None and recorded.rollout is not None and not (stepped and in_steps):
        how = f"the same 'up' resumes it, 'tgi-deploy rollback {name}' goes back"
        raise ConflictError(
            "update_unfinished",
            f"an update of '{name}' is not finished",
            hint=f"{next_commands(recorded) if stepped else how}; then try again",
        )
    if machine is None or not (machine.alive or is_stopped(recorded, machine)):
        raise DeployError(
            "machine_missing",
            f"'{name}' has no running or stopped machine",
            hint=f"'tgi-deploy status {name}' shows what exists, 'tgi-deploy up' launches a new one",
        )
    return Running(name=name, recorded=recorded, machine=machine, seen=sight.seen)


def _two_machines(name: str, machines: Sequence[Found]) -> ConflictError:
    """Return the error for several machines and no record: an update is not finished, or one is surplus."""
    ids = " and ".join(sorted(machine.id for machine in machines))
    return ConflictError(
        "update_unfinished",
        f"{ids} run under '{name}', and no record shows which one serves",
        hint=f"{with_its_record(name)}; 'tgi-deploy down {name}' removes what is running",
    )


def _being_removed(name: str, also: str = "") -> ConflictError:
    return ConflictError(
        "being_removed",
        f"the removal of '{name}' is not finished",
        hint=f"'tgi-deploy down {name}' finishes it{also}",
    )


def look(
    context: Context, name: str, recorded: Deployment | None, places: Sequence[str], *, side: bool
) -> tuple[Found, ...]:
    """Return the deployment's existing resources. During an update, wait until recently requested ones are visible."""
    found = partial(observe, name, recorded, cloud=context.cloud, places=places, side=side)
    return found() if recorded is None or not recorded.rolling else observe_settled(context, recorded, found)


def regions_of(plan: Plan, launch: Launch) -> tuple[str, ...]:
    """Return all regions of the plan, because another launch of the same name may have run there."""
    regions = [candidate.offer.region for candidate in (plan.chosen, *plan.fallbacks)]
    return tuple(dict.fromkeys(regions)) if launch.place in regions else (launch.place,)


def new_deployment(context: Context, request: UpRequest, place: str, seen: Sequence[Found]) -> Deployment:
    """Return a new record. Revision numbers of a lost record are read from tags, so that none is reused."""
    now = context.clock.now()
    known = next((found.tags[TAG_ID] for found in seen if TAG_ID in found.tags), None)
    number = max((revision_of(found.key) or 1 for found in seen), default=1)
    updates = (found.tags.get(TAG_UPDATE, "") for found in seen if revision_of(found.key) == number)
    return Deployment(
        name=request.deployment_name,
        id=known or context.new_id(),
        target=request.target,
        status="creating",
        created_at=now,
        updated_at=now,
        owner=context.owner,
        revisions=(
            Revision(
                number=number,
                origin=request.origin,
                state="pending",
                created_at=now,
                pools=(Pool(place=place),),
                update=next(filter(None, updates), ""),
            ),
        ),
    )


def still_answers(context: Context, deployment: Deployment, *, wait: bool) -> bool:
    """Return whether the engine is still ready; with --no-wait, do not check."""
    probe = context.probe_of(deployment) if wait else None
    if probe is None or probe.ok:
        return True
    context.reporter.note(f"{deployment.name} stopped responding; waiting for it to recover")
    return False


def is_done(deployment: Deployment, seen: Sequence[Found], *, wait: bool) -> bool:
    finished = deployment.status == "ready" or (deployment.status == "running" and not wait)
    alive = not deployment.rolling and keeps_serving(deployment, seen)
    return finished and alive


def lacks_shared(context: Context, deployment: Deployment, seen: Sequence[Found]) -> bool:
    """Return whether someone has deleted what all revisions share, such as the way to the machine.

    Not where resources may be invisible for a while, and not of kinds that may be forbidden to search for.
    """
    there = {found.id for found in seen}
    return any(
        revision_of(record.key) is None
        and record.attributes.get("id", "") not in {"", *there}
        and context.target_at(record.place).facts.shows_at_once
        and not context.cloud(record.place).handler(record.kind).rare
        for record in deployment.resources
    )


def reject_replacement(deployment: Deployment, steps: Iterable[Step], seen: Iterable[Found]) -> None:
    """Raise ConflictError `name_taken` if `steps` delete a running machine that the record does not know.

    A record that has adopted one of several machines may delete the others.
    """
    known = {record.attributes.get("id") for record in deployment.resources}
    requested = deployment.machine is not None and deployment.machine.state == "intent"
    running = {found.id: found.place for found in seen if found.is_machine and found.alive and found.id not in known}
    deleted = running.keys() & {step.attributes.get("id") for step in steps if step.action == "delete"}
    if requested or not deleted or (deployment.serial and deleted != running.keys()):
        return
    others = " and ".join(sorted(running))
    many = f"{others} run under '{deployment.name}', and no record shows which one serves"
    machine = min(deleted)
    made = (
        f"a machine named '{deployment.name}' runs in {running[machine]} ({machine}), created with different settings"
    )
    raise ConflictError(
        "name_taken",
        many if len(running) > 1 else made,
        hint=f"{with_its_record(deployment.name)}; 'tgi-deploy down {deployment.name}' removes what is running; "
        "a different --name creates another deployment",
    )


def findings_of(
    context: Context, request: UpRequest, launch: Launch, deployment: Deployment, attempt: Attempt
) -> tuple[Problem, ...]:
    """Return the warnings to show before confirmation. Raises DeployError if the attempt is impossible."""
    return (
        *_in_the_clear(context, launch),
        *_dropped_limits(context, deployment, attempt),
        *check_restorable(context, request.plan_revision, deployment),
        *(preflight(context, launch, deployment, attempt) if request.preflight else ()),
    )


def _dropped_limits(context: Context, deployment: Deployment, attempt: Attempt) -> tuple[Problem, ...]:
    """Warn about an update without a limit where the running revision has one."""
    rollout = deployment.rollout
    known = deployment.ends if rollout is None or rollout.ends is None else rollout.ends
    before, after = (ends_of(replaced(deployment, ends=ends), ()) for ends in (known, attempt.ends))
    if rollout is None or not before or after:
        return ()
    first, number = before[0], deployment.current.number
    idle = f"ends after {option_duration(first.seconds or 0)} without requests"
    when = f"ends at {stamp(first.at)}" if first.at else idle
    words = shlex.join(given_ends(known)) or "--ttl 2h"
    found = warning(
        "limits_dropped",
        f"revision {number} of '{deployment.name}' {when}; this update names no limit, so nothing would end it",
        f"add {words}, or another limit",
    )
    context.reporter.warn(found)
    return (found,)


def _in_the_clear(context: Context, launch: Launch) -> tuple[Problem, ...]:
    """Warn about unencrypted traffic, with and without preflight checks."""
    if launch.traffic.unencrypted is None:
        return ()
    found = warning("unencrypted", launch.traffic.unencrypted)
    context.reporter.warn(found)
    return (found,)
