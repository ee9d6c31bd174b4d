"""Waits for eventual consistency: a resource that was just requested may exist although the cloud does not list it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.claim import owned_by
from tgi_deploy.reconcile.clocks import ASKED, may_be_new
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.values.resource import TAG_ID, TAG_SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found


def await_settled(context: Context, deployment: Deployment, seen: Sequence[Found] = ()) -> bool:
    """Wait up to a minute for recently requested resources to become visible; return whether there were any.

    A deletion before that would miss them. A monotonic clock measures the minute.
    """
    if not not_shown_yet(context, deployment, seen):
        return False
    for waited_s in _looks(context):
        if waited_s and not not_shown_yet(context, deployment, seen):
            break
    return True


def observe_settled(
    context: Context, deployment: Deployment, observe: Callable[[], tuple[Found, ...]]
) -> tuple[Found, ...]:
    """Observe a deployment for up to a minute, until one observation has all recently requested resources.

    A resource that the cloud has listed once may be missing from its next reply.
    """
    seen = observe()
    for waited_s in _looks(context) if not_shown_yet(context, deployment, seen, at_once=True) else ():
        seen = observe() if waited_s else seen
        if waited_s and not not_shown_yet(context, deployment, seen, at_once=True):
            break
    return seen


def _looks(context: Context) -> Iterator[float]:
    context.reporter.note("a resource requested a moment ago is not visible yet; waiting for it, up to a minute")
    return polls(context.clock, context.pace.visibility_timeout)


def asked_for(context: Context, deployment: Deployment, record: ResourceRecord) -> tuple[Found, ...]:
    """Return the resources of a request whose reply was lost."""
    tagged = context.cloud(record.place).handler(record.kind).find({TAG_ID: deployment.id, TAG_SPEC: record.spec})
    return tuple(found for found in tagged if found.key == record.key)


def _shows(context: Context, deployment: Deployment, record: ResourceRecord) -> bool:
    if record.state == "intent":
        return bool(asked_for(context, deployment, record))
    cloud = context.cloud(record.place)
    if record.is_machine:
        return cloud.machine(record.attributes["id"]).state != "missing"
    return cloud.handler(record.kind).read(record.attributes) is not None


def not_shown_yet(
    context: Context, deployment: Deployment, seen: Sequence[Found] = (), *, at_once: bool = False
) -> tuple[ResourceRecord, ...]:
    """Return the recorded resources that may be too new to be visible: neither `seen` nor found by id or tags.

    A Docker host lists everything at once. Of resources that were being deleted, only machines count: EC2 lists
    terminated ones for about an hour, so one that it does not know is not visible yet. A resource that was requested
    twice may appear again after its deletion, unless both requests had the same token, as for machines. With `at_once`,
    a resource whose creating reply was lost has to be among `seen`.
    """
    now = context.clock.now()
    ids, made = {found.id for found in seen}, {(found.key, found.spec) for found in owned_by(seen, deployment.id)}
    return tuple(
        record
        for record in deployment.resources
        if _may_show_late(context, record)
        and may_be_new(record, now, within_s=context.pace.visibility_timeout_s)
        and (
            _may_come_twice(context, record)
            or not (
                record.attributes.get("id") in ids
                or (record.state == "intent" and (record.key, record.spec) in made)
                or (not (at_once and record.state == "intent") and _shows(context, deployment, record))
            )
        )
    )


def _may_show_late(context: Context, record: ResourceRecord) -> bool:
    if record.state == "intent":
        return True
    waited_for = record.state == "created" or record.is_machine
    return waited_for and "id" in record.attributes and not context.target_at(record.place).facts.shows_at_once


def _may_come_twice(context: Context, record: ResourceRecord) -> bool:
    at_once = context.target_at(record.place).facts.shows_at_once
    return ASKED in record.notes and not record.is_machine and not at_once
