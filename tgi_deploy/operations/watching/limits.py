"""Sets, moves and removes the limits of a running machine, which reads them from its tags.

A command that waits for a machine renews its lease, so that the machine does not terminate in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, InputError, warning
from tgi_deploy.operations.watching.ledger import MOVED, Ledger, sighting, spent_by
from tgi_deploy.operations.watching.lookup import money, price_of
from tgi_deploy.reconcile.ends import (
    NO_LIMIT,
    TAG_IDLE_S,
    TAG_LEASE,
    TAG_LEASE_S,
    TAG_MAX_SPEND,
    ends_of,
    lease_end,
    moved_tag,
    reads_tags,
    stamp,
    ttl_end,
)
from tgi_deploy.reconcile.executor import event_data
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import Ends, Spent, WantedEnds, seconds_left
from tgi_deploy.values.resource import TAG_EXPIRES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ports import Listener
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found

# A lease is renewed after this share of its time, so that two renewals may fail before it ends.
_BEAT: Final = 1 / 3
# What a machine reads of its limits.
_LIMITS: Final = (TAG_EXPIRES, TAG_IDLE_S, TAG_LEASE, TAG_LEASE_S)
# By option, the field of WantedEnds.
_FIELDS: Final = {"ttl": "ttl_s", "max_spend": "max_spend_usd", "idle_timeout": "idle_s", "lease": "lease_s"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A running machine with its deployment's visible resources and, if there is one, its record."""

    name: str
    recorded: Deployment | None
    machine: Found
    seen: Sequence[Found]


def move_limits(context: Context, running: Running, wanted: WantedEnds) -> tuple[Deployment | None, dict[str, str]]:
    """Change the `wanted` limits; return the record and the changed tags of the machine.

    Raises InputError `limits_fixed`, `external_end_fixed`, `max_spend_reached`, and the target's errors for a limit
    that it does not support.
    """
    machine, recorded = running.machine, running.recorded
    _check_moves(context, running, wanted)
    now = context.clock.now().replace(microsecond=0)
    ends = _ends(context, running, wanted, now)
    tags = _tags(ends, wanted, now, counted=reads_tags(machine.tags))
    cloud = context.cloud(machine.place)
    if TAG_EXPIRES in tags:
        cloud.move_outside_end(running.seen, ends.expires_at)
    cloud.handler(machine.kind).update({"id": machine.id}, {"tags": tags})
    return (None if recorded is None else _record(context, recorded, ends, tags)), tags


def keep_ceiling(context: Context, running: Running, ceiling_usd: Decimal) -> Running:
    """Recompute the end by --max-spend at the current price. If the limit can't be moved, save the record anyway."""
    try:
        recorded, tags = move_limits(context, running, WantedEnds(max_spend_usd=ceiling_usd))
    except InputError as error:  # less than five minutes are left, or an external end stays
        context.reporter.note(f"its limit is unchanged: {error.message}")
        return replace(running, recorded=running.recorded and context.executor().save(running.recorded))
    return replace(running, recorded=recorded, machine=with_tags(running.machine, tags))


def with_tags(machine: Found, tags: dict[str, str]) -> Found:
    return replaced(machine, tags={**machine.tags, **tags})


def _check_moves(context: Context, running: Running, wanted: WantedEnds) -> None:
    machine, name = running.machine, running.name
    asked = {option for option, field in _FIELDS.items() if getattr(wanted, field) is not None}
    for item in context.target_at(machine.place).facts.unsupported:
        if asked.intersection(item.options):
            raise InputError(item.code, f"'{name}': {item.why}", hint=item.hint)
    has_lease = any(end.reason == "lease" for end in ends_of(running.recorded, [machine.tags]))
    renews = has_lease and bool(wanted.lease_s) and wanted == WantedEnds(lease_s=wanted.lease_s)
    if not (reads_tags(machine.tags) or renews):
        raise InputError(
            "limits_fixed",
            f"the machine of '{name}' was launched by an earlier version of tgi-deploy, so its limits can't change",
            hint=("only its lease can be renewed: --lease TIME; " if has_lease else "")
            + f"'tgi-deploy down {name}' and 'up' create a machine whose limits can change",
        )


def _ends(context: Context, running: Running, wanted: WantedEnds, now: datetime) -> Ends:
    """Return the resulting limits; those not in `wanted` stay as recorded."""
    known = running.recorded.ends if running.recorded else Ends()
    ends = known if known.made_with or not reads_tags(running.machine.tags) else replaced(known, made_with=known.first)
    if wanted.ttl_s is not None or wanted.max_spend_usd is not None:
        ends = _timed(context, running, ends, wanted, now)
    if wanted.idle_s is not None:
        ends = replaced(ends, idle_s=wanted.idle_s or None)
    if wanted.lease_s is not None:
        lease_s = wanted.lease_s or None
        ends = replaced(ends, lease_s=lease_s, lease_until=now + timedelta(seconds=lease_s) if lease_s else None)
    return ends


def _timed(context: Context, running: Running, ends: Ends, wanted: WantedEnds, now: datetime) -> Ends:
    """Return the ends with the earlier of --ttl and --max-spend, both counted from now."""
    ceiling = ceiling_of(running) if wanted.max_spend_usd is None else wanted.max_spend_usd or None
    if wanted.ttl_s is not None:
        until = now + timedelta(seconds=wanted.ttl_s) if wanted.ttl_s else None
        ends = replaced(ends, asked_ttl_s=wanted.ttl_s or None, ttl_until=until)
    elif ceiling_of(running) is None:  # the tag holds the end by --ttl, which another computer may have moved
        until = ttl_end(running.recorded, running.machine.tags)
        ends = replaced(ends, asked_ttl_s=(ends.asked_ttl_s or ends.ttl_s) if until else None, ttl_until=until)
    elif running.recorded is None:
        raise InputError(
            "limit_unknown",
            f"without the record of '{running.name}', its previous --ttl is unknown",
            hint="also pass --ttl TIME or --ttl none",
        )
    spent = Spent() if ceiling is None else _spent(context, running)
    paid_s = None if ceiling is None else seconds_left(running.name, ceiling, spent, _price(running))
    paid_until = None if paid_s is None else now + timedelta(seconds=paid_s)
    expires = min((at for at in (ends.ttl_until, paid_until) if at is not None), default=None)
    return replaced(
        ends,
        expires_at=expires,
        ttl_s=None if expires is None else max(1, round((expires - now).total_seconds())),
        max_spend_usd=ceiling,
        spent_before_usd=None if ceiling is None else spent.usd,
    )


def ceiling_of(running: Running) -> Decimal | None:
    """Return the current --max-spend, from the machine's tag if it has one, because the record may be stale."""
    known = running.recorded.ends.max_spend_usd if running.recorded else None
    if not reads_tags(running.machine.tags):
        return known
    tag = running.machine.tags.get(TAG_MAX_SPEND, NO_LIMIT)
    return None if tag == NO_LIMIT else money(tag) or known


def _price(running: Running) -> Decimal:
    price = price_of(running.recorded, [running.machine])
    if not price:
        raise InputError(
            "limits_unsupported",
            f"--max-spend: the price of '{running.name}' is unknown",
            hint="limit it with --ttl instead",
        )
    return price


def _spent(context: Context, running: Running) -> Spent:
    """Return the cost of the name so far. Without a record, only this machine is known."""
    if running.recorded is not None:
        return spent_by(context, running.recorded)
    now = context.clock.now()
    lines = Ledger.of([sighting(running.machine, None, now, name=running.name)]).closed(now, expires=None, left=())
    return Spent(usd=sum((line.usd or Decimal(0) for line in lines), Decimal(0)), machines=1)


def _tags(ends: Ends, wanted: WantedEnds, now: datetime, *, counted: bool) -> dict[str, str]:
    """Return the tags of the wanted limits. `counted` is whether the machine reads all its limits from tags."""
    tags = {}
    if wanted.ttl_s is not None or wanted.max_spend_usd is not None:
        tags[TAG_EXPIRES] = moved_tag(ends.expires_at, now)
        tags[TAG_MAX_SPEND] = NO_LIMIT if ends.max_spend_usd is None else str(ends.max_spend_usd)
    if wanted.idle_s is not None:
        tags[TAG_IDLE_S] = str(ends.idle_s or NO_LIMIT)
    if wanted.lease_s is not None:
        tags[TAG_LEASE_S] = str(ends.lease_s or NO_LIMIT)
        tags[TAG_LEASE] = _lease_tag(ends.lease_until, now, counted=counted)
    return tags


def _lease_tag(until: datetime | None, now: datetime, *, counted: bool) -> str:
    """Return the tag of a lease. Machines of earlier versions expect one without seconds."""
    return moved_tag(until, now) if counted or until is None else stamp(until)


def _record(context: Context, recorded: Deployment, ends: Ends, tags: dict[str, str]) -> Deployment:
    executor = context.executor()
    recorded = executor.save(replaced(recorded, ends=ends))
    machine = recorded.machine
    data = event_data(machine, machine.attributes, recorded) if machine else None
    text = ", ".join(f"{name.partition(':')[2]}={value}" for name, value in tags.items())
    executor.event(recorded, MOVED, text, data=data)
    return recorded


def share_limits(context: Context, serving: ResourceRecord | Found, other: ResourceRecord) -> None:
    """Give another machine of a deployment the limits of the serving one, so that they end together.

    The first to end also removes what both share, and nothing would end the second.
    """
    handler = context.cloud(other.place).handler(other.kind)
    known, found = handler.read(serving.attributes), handler.read(other.attributes)
    if known is None or found is None or not found.alive:
        return
    tags = {name: known.tags.get(name, NO_LIMIT) for name in _LIMITS}
    changed = {name: value for name, value in tags.items() if found.tags.get(name, NO_LIMIT) != value}
    if changed:
        handler.update(other.attributes, {"tags": changed})


@dataclass(kw_only=True, slots=True)
class LeaseKeeper:
    """Renews a lease while a command waits. `until` is its known end, None without a lease."""

    context: Context
    deployment: Deployment
    until: datetime | None
    _due_s: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, context: Context, deployment: Deployment) -> LeaseKeeper:
        return cls(context=context, deployment=deployment, until=deployment.ends.lease_until)

    def beat(self) -> None:
        """Renew the lease, at most once per third of its time. A failure is only a warning, and is retried later."""
        lease_s, machine = self.deployment.ends.lease_s, self.deployment.machine
        clock = self.context.clock
        if lease_s is None or machine is None or clock.monotonic() < self._due_s:
            return
        self._due_s = clock.monotonic() + lease_s * _BEAT
        try:
            self._renew(machine.place, machine.kind, machine.attributes["id"], lease_s)
        except DeployError as error:
            message = f"the lease could not be renewed: {error.message}"
            self.context.reporter.warn(warning("lease_not_renewed", message))
            self._due_s = clock.monotonic() + lease_s * _BEAT**2

    def _renew(self, place: str, kind: str, machine_id: str, lease_s: int) -> None:
        """Renew the lease, unless it was removed, perhaps from another computer."""
        handler, now = self.context.cloud(place).handler(kind), self.context.clock.now().replace(microsecond=0)
        found = handler.read({"id": machine_id})
        tags = found.tags if found is not None else {}
        if tags.get(TAG_LEASE) == NO_LIMIT:
            return
        until = lease_end(lease_s, self.context.clock)
        tag = _lease_tag(until, now, counted=reads_tags(tags))
        handler.update({"id": machine_id}, {"tags": {TAG_LEASE: tag}})
        self.until = until

    def kept_by(self, context: Context) -> Context:
        """Return a context that renews the lease at every poll of a wait."""
        return replace(context, listener=_RenewingLease(inner=context.listener, keeper=self))


@dataclass(frozen=True, kw_only=True, slots=True)
class _RenewingLease:
    inner: Listener
    keeper: LeaseKeeper

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        self.keeper.beat()
        self.inner.phase(phase, detail, elapsed_s, expected_s)

    def line(self, text: str) -> None:
        self.inner.line(text)
