"""Computes the spending of a deployment's name, for --max-spend, `status` and receipts.

The ledger is the history of a deployment: every creation, discovery and disappearance of a resource is an event with
its kind, id and region, written when it happens. So if a removal is killed, the next one still counts everything,
including earlier machines of a failover. For a launch that `up` itself removed, only the receipt is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.operations.watching.lookup import created_at, money
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.reconcile.executor import event_data
from tgi_deploy.values.deployment import Event
from tgi_deploy.values.ends import Spent
from tgi_deploy.values.resource import TAG_PRICE, TAG_STOPPED_PRICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.errors import ResourceRef
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found

_HOUR_S: Final = 3600
MISSING: Final = frozenset({"missing", "gone"})  # the first release wrote "gone"
MOVED: Final = "extended"  # the event of a running machine whose limits were changed
# Events: a machine was stopped, and only its disk is billed from then on; the start of a stopped machine was requested.
STOPPED: Final = "stopped"
STARTED: Final = "started"
RESIZED: Final = "resized"  # a machine of several replicas has another number of them, at another price
PRICED: Final = "priced"  # a machine runs in one of several pools, whose price is known from then on
_DISK: Final = "disk"
# The reply to a launch arrives within seconds; any larger difference is clock skew.
_AGREED: Final = timedelta(minutes=1)
_MICRO: Final = Decimal("0.000001")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A resource that existed. A machine that was stopped and started, or resized, has one line per run.

    `removed_at` is when its removal was observed or, if `exact` is False, the latest possible time.
    The price of a machine covers everything billed by the hour; the disk of a stopped one has its own price. Another
    resource with its own price is not billed for `covered_s`, the time in which a machine's price covers it. `expires`
    is the end set at creation, if known. `clocks_agree` is False if this computer and the cloud disagree about the
    creation time; `created` is then the earlier one, and the duration may be too long by the difference. `run` counts
    the starts of a machine, from 1.
    """

    kind: str
    id: str
    region: str
    created: datetime | None
    removed_at: datetime | None = None
    exact: bool = True
    usd_per_hour: Decimal | None = None
    expires: datetime | None = None
    clocks_agree: bool = True
    is_machine: bool = False
    run: int = 1
    covered_s: int = 0

    @property
    def seconds(self) -> int | None:
        if self.created is None or self.removed_at is None:
            return None
        return max(0, round((self.removed_at - self.created).total_seconds()) - self.covered_s)

    @property
    def usd(self) -> Decimal | None:
        """Return seconds times price, rounded to a millionth; None if either is unknown."""
        if self.usd_per_hour is None or self.seconds is None:
            return None
        return (self.usd_per_hour * self.seconds / _HOUR_S).quantize(_MICRO, ROUND_HALF_UP)


@dataclass(slots=True)
class Ledger:
    """Collects lines by resource id. Earlier runs of a restarted machine have separate lines."""

    lines: dict[str, Line] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Ledger:
        ledger = cls()
        for event in events:
            ledger.add(event)
        return ledger

    def add(self, event: Event) -> None:
        data = event.data
        if not data.get("id") or "kind" not in data:
            return
        known = self.lines.get(data["id"]) or Line(
            kind=str(data["kind"]),
            id=str(data["id"]),
            region=str(data.get("region", "")),
            created=None,
            is_machine=data.get("is_machine") is True,
        )
        if event.code == RESIZED:
            self._resized(known, event)
            return
        if event.code == PRICED:
            self._put(replace(known, usd_per_hour=money(data.get("usd_per_hour")) or known.usd_per_hour))
            return
        elsewhere = self._switched_elsewhere(known, event)
        if elsewhere is not None:
            self._switch(elsewhere, known, event)
        if elsewhere is None or event.code == "deleted":
            self._apply(self.lines.get(known.id, known), event)

    def _switch(self, code: str, machine: Line, event: Event) -> None:
        (self._stopped if code == STOPPED else self._started)(machine, event)

    def _apply(self, known: Line, event: Event) -> None:
        if event.code in {STOPPED, STARTED}:
            self._switch(event.code, known, event)
        elif (disk := self._disk_of(known)) is None:
            self._seen(known, event)
        elif event.code == "deleted" or event.code in MISSING:
            seen = event.code == "deleted" and event.data.get("alive") is not False
            self._put(replace(disk, removed_at=event.at) if seen else _missing_by(disk, event.at, None))
        elif event.code == MOVED:
            self._put(replace(known, expires=moment_of(event.data.get("expires"))))

    def _switched_elsewhere(self, known: Line, event: Event) -> str | None:
        """Return the code of the missing event if someone else has stopped or started the machine."""
        rests, was_at_rest = event.data.get("rests"), self._disk_of(known) is not None
        if rests is None or rests is was_at_rest or (known.created is None and not rests):
            return None
        return STOPPED if rests else STARTED

    def _put(self, line: Line) -> None:
        """Store the current line of a machine or of its disk, whose keys have no run number."""
        self.lines[line.id if line.kind != _DISK else f"{line.id} {_DISK}"] = line

    def _disk_of(self, machine: Line) -> Line | None:
        """Return the line of a stopped machine's disk while it exists."""
        disk = self.lines.get(f"{machine.id} {_DISK}")
        return disk if disk is not None and disk.removed_at is None else None

    def _stopped(self, machine: Line, event: Event) -> None:
        if self._disk_of(machine) is not None:
            return
        at = event.at
        if machine.created is None:  # for an unknown time, so only its disk counts
            self._seen(machine, event)
            machine = self.lines[machine.id]
            at = machine.created or at
        self._put(replace(machine, removed_at=at, exact="rests" not in event.data))
        self._put(
            Line(
                kind=_DISK,
                id=machine.id,
                region=machine.region,
                created=at,
                usd_per_hour=money(event.data.get("stopped_usd_per_hour")),
            )
        )

    def _started(self, machine: Line, event: Event) -> None:
        """Archive the current lines and begin a new one for the machine."""
        disk = self._disk_of(machine)
        if disk is None or disk.created is None:
            self._put(replace(machine, exact=False))  # when it was stopped is unknown
            return
        launched = moment_of(event.data.get("created")) if "rests" in event.data else event.at
        since = max(launched or disk.created, disk.created)
        del self.lines[f"{machine.id} {_DISK}"]
        self.lines[f"{machine.id} {machine.run}"] = machine
        self.lines[f"{machine.id} {machine.run} {_DISK}"] = replace(disk, removed_at=since)
        del self.lines[machine.id]
        self._put(replace(machine, created=since, removed_at=None, exact=True, clocks_agree=True, run=machine.run + 1))

    def _resized(self, machine: Line, event: Event) -> None:
        """Archive the current line and begin a new one at the new price."""
        price = money(event.data.get("usd_per_hour"))
        if price is None or machine.created is None:
            return
        self.lines[f"{machine.id} {machine.run}"] = replace(machine, removed_at=event.at)
        self._put(replace(machine, created=event.at, usd_per_hour=price, clocks_agree=True, run=machine.run + 1))

    def _seen(self, known: Line, event: Event) -> None:
        data, alive = event.data, event.data.get("alive") is not False
        cloud, here = moment_of(data.get("created")), event.at if event.code == "created" else None
        agree = cloud is None or here is None or abs(here - cloud) <= _AGREED
        price = known.usd_per_hour or money(data.get("usd_per_hour"))
        again = cloud is not None and known.created is not None and cloud - known.created > _AGREED
        restarted = again and known.is_machine and known.clocks_agree  # someone else stopped and started it
        line = replace(
            known,
            exact=known.exact and not restarted,
            created=min((at for at in (known.created, cloud, here) if at is not None), default=None)
            if known.run == 1
            else known.created,
            removed_at=event.at if event.code == "deleted" and alive else known.removed_at,
            usd_per_hour=price if known.is_machine or known.usd_per_hour or data.get("billed") is True else None,
            expires=moment_of(data.get("expires"))
            if event.code == MOVED
            else known.expires or moment_of(data.get("expires")),
            clocks_agree=known.clocks_agree and (agree or known.run > 1),
        )
        found_missing = (event.code in MISSING or not alive) and line.removed_at is None
        self.lines[known.id] = _missing_by(line, event.at, None) if found_missing else line

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line.region for line in self.lines.values() if line.region))

    def closed(self, at: datetime, *, expires: datetime | None, left: Sequence[ResourceRef]) -> tuple[Line, ...]:
        """Return the final lines.

        Resources that disappeared without being observed count until now, machines at most until their end.
        """
        still = {item.id for item in left}
        lines = tuple(
            line if line.removed_at is not None or line.id in still else _missing_by(line, at, expires)
            for line in self.lines.values()
        )
        machines = sorted(
            (line.created, line.removed_at) for line in lines if line.is_machine and line.created and line.removed_at
        )
        return tuple(_beside(line, machines) for line in lines)


def _beside(line: Line, machines: Iterable[tuple[datetime, datetime]]) -> Line:
    """Return the line of a resource with its own price, without the time in which one of the machines ran."""
    if (
        line.is_machine
        or line.kind == _DISK
        or not line.usd_per_hour
        or line.created is None
        or line.removed_at is None
    ):
        return line
    covered, since = timedelta(), line.created
    for began, ended in machines:
        until = min(ended, line.removed_at)
        covered += max(timedelta(), until - max(began, since))
        since = max(since, until)
    return replace(line, covered_s=round(covered.total_seconds()))


def _missing_by(line: Line, at: datetime, expires: datetime | None) -> Line:
    end = line.expires or expires
    latest = min(at, end) if end is not None and line.is_machine else at
    return replace(line, removed_at=max(latest, line.created) if line.created else latest, exact=False)


def sighting(found: Found, deployment: Deployment | None, at: datetime, *, name: str, code: str = "seen") -> Event:
    """Return the event of a found resource or, with code `deleted`, of a removed one."""
    price = deployment.price_of(found.key) if deployment else None
    made_at, rests = created_at(found), found.state == "stopped"
    data: dict[str, Any] = {
        "kind": found.kind,
        "id": found.id,
        "region": found.place,
        "is_machine": found.is_machine,
        "created": made_at.isoformat() if made_at else None,
        "usd_per_hour": found.tags.get(TAG_PRICE) or (str(price) if price is not None else None),
        **({"billed": True} if found.billed else {}),
    }
    if found.is_machine and code == "seen":
        data["alive"] = found.alive or rests
        if found.alive or rests:
            data |= {"rests": rests, "stopped_usd_per_hour": found.tags.get(TAG_STOPPED_PRICE)}
    return Event(at=at, deployment=name, code=code, text=f"{found.kind} {found.id} {code}", step=found.key, data=data)


def recorded_events(deployment: Deployment) -> tuple[Event, ...]:
    """Return the recorded resources as events, for a history without them."""
    return tuple(
        Event(
            at=deployment.created_at,
            deployment=deployment.name,
            code="recorded",
            text="",
            data=event_data(item, item.attributes, deployment),
        )
        for item in deployment.resources
        if "id" in item.attributes
    )


def spent_by(context: Context, deployment: Deployment) -> Spent:
    """Return the cost so far of this deployment and of earlier ones of its name that `up` removed after a failure.

    A machine whose end was not observed counts until now or until its own end; for a stopped one, its disk counts. A
    machine without a price counts as zero.
    """
    costs = costs_by_id(context, deployment.name, deployment)
    beside = {item.attributes.get("id") for item in deployment.resources if item.usd_per_hour is not None}
    return Spent(usd=sum(costs.values(), Decimal(0)), machines=len(costs.keys() - beside))


def costs_by_id(
    context: Context, name: str, deployment: Deployment | None, seen: Iterable[Found] = ()
) -> dict[str, Decimal]:
    """Return the cost so far of each resource of the name: recorded, on receipts of failed runs, or in `seen`."""
    now = context.clock.now()
    recorded = recorded_events(deployment) if deployment else ()
    there = (
        found for found in seen if found.billed or (found.is_machine and (found.alive or found.state == "stopped"))
    )
    shown = (sighting(found, deployment, now, name=name) for found in there)
    ledger = Ledger.of((*context.store.events(name), *recorded, *shown))
    expires = deployment.ends.expires_at if deployment else None
    costs = _by_id((line.id, line.usd) for line in ledger.closed(now, expires=expires, left=()))
    # A machine may be in both, after an unfinished removal or if its id reappears.
    for document in given_up(context, name):
        for resource_id, cost in receipt_costs(document).items():
            costs[resource_id] = max(cost, costs.get(resource_id, cost))
    return costs


def receipt_costs(document: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the cost of each resource on a receipt."""
    return _by_id((str(line.get("id")), money(line.get("usd"))) for line in lines_of(document))


def _by_id(costs: Iterable[tuple[str, Decimal | None]]) -> dict[str, Decimal]:
    """Return the cost of each resource with a price, summed over its runs; that of a machine includes its disk."""
    found: dict[str, Decimal] = {}
    for resource_id, cost in costs:
        if cost is not None:
            found[resource_id] = found.get(resource_id, Decimal(0)) + cost
    return found


def given_up(context: Context, name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the receipts since the last requested removal, newest first."""
    dated = [
        (at, item.get("given_up") is not True, item)
        for item in context.store.receipts(name)
        if (at := moment_of(item.get("at"))) is not None
    ]
    latest_first = sorted(dated, key=lambda item: item[:2], reverse=True)
    return tuple(item for _, _, item in takewhile(lambda item: not item[1], latest_first))


def lines_of(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the lines of a receipt from disk."""
    lines = document.get("resources")
    return tuple(line for line in lines if isinstance(line, dict)) if isinstance(lines, list) else ()
