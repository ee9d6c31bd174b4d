"""Looks up a deployment and its resources by its record, or else by tags."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError, NotHealthyError
from tgi_deploy.operations.launching.traffic import url_to
from tgi_deploy.operations.planning.no_plan import option_words
from tgi_deploy.reconcile.claim import owned_by
from tgi_deploy.reconcile.ends import ends_at_once, ends_of, moment_of
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.reconcile.tagged import is_plaintext, notes_of, service_of
from tgi_deploy.text import option_duration
from tgi_deploy.values.base import changed_fields
from tgi_deploy.values.container import is_folder
from tgi_deploy.values.deployment import Pool, ResourceRecord, Revision, TaggedDeployment
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.options import flag_of
from tgi_deploy.values.plan_options import PLAN_OPTIONS
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.resource import (
    STARTABLE,
    TAG_CREATED,
    TAG_ID,
    TAG_NAME,
    TAG_OWNER,
    TAG_PRICE,
    TAG_STOPPED_PRICE,
    revision_of,
)
from tgi_deploy.values.serving import PUBLIC_URL_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan_document import PlanDocument
    from tgi_deploy.values.request import RequestDocument
    from tgi_deploy.values.resource import Found

# Record states of a machine that is being stopped, is stopped, or is being started again.
SWITCHED: Final = frozenset({"stopping", "stopped", "starting"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup:
    """A deployment and its visible resources. `deployment` is its record, or built from tags if `recorded` is None."""

    name: str
    deployment: Deployment
    recorded: Deployment | None
    seen: tuple[Found, ...]

    @property
    def machine(self) -> Found | None:
        return machine_of(self.recorded, self.seen)


def look_at(context: Context, name: str) -> Lookup:
    """Return the deployment with its visible resources. Raises InputError `unknown_deployment`."""
    recorded = context.store.load(name)
    places = context.where(recorded)
    machine = recorded.machine if recorded else None
    # What leads a host to it is created with the promotion, after the record's resources.
    side = recorded is None or (machine is not None and PUBLIC_URL_NOTE in machine.notes)
    seen = observe(name, recorded, cloud=context.cloud, places=places, side=side)
    if recorded is None and not seen:
        raise unknown_deployment(context, name)
    deployment = recorded or tagged_deployment(context, name, seen)
    return Lookup(name=name, deployment=deployment, recorded=recorded, seen=seen)


def known(context: Context, name: str) -> Deployment:
    """Return the record, without calling any cloud; failing that, a deployment from tags.

    Raises InputError `unknown_deployment`.
    """
    return context.store.load(name) or look_at(context, name).deployment


def tagged_deployment(context: Context, name: str, seen: Sequence[Found]) -> TaggedDeployment:
    """Return a deployment built from the tags of its resources; `seen` must not be empty."""
    machine = machine_of(None, seen)
    first = machine or seen[0]
    tags, attributes = first.tags, first.attributes
    now, number = context.clock.now(), revision_of(first.key) or 1
    created = created_at(first) or now
    service = service_of(tags) if machine else None
    address = attributes.get("address") if first.alive else None
    market = attributes.get("market")
    pool = Pool(
        place=first.place,
        zone=attributes.get("zone", ""),
        instance_type=attributes.get("instance_type"),
        market=market if market in {"on-demand", "spot"} else None,  # type: ignore[arg-type]  # compared with both
        machine_usd_per_hour=money(tags.get(TAG_PRICE)) if machine else None,
    )
    return TaggedDeployment(
        name=name,
        id=tags.get(TAG_ID, ""),
        target=context.target_at(first.place).name,
        status="running" if machine else "creating",
        created_at=created,
        updated_at=now,
        owner=tags.get(TAG_OWNER, ""),
        revisions=(Revision(number=number, origin="adopted", state="serving", created_at=created, pools=(pool,)),),
        active=number,
        resources=tuple(_as_recorded(found) for found in owned_by(seen, tags.get(TAG_ID, "")) if not found.attached),
        endpoint=url_to(_as_recorded(first), address, service.port) if service and address else None,
        plaintext=is_plaintext(tags),
        ends=_tagged_ends(tags),
        tagged=service,
    )


def _as_recorded(found: Found) -> ResourceRecord:
    return ResourceRecord(
        key=found.key,
        kind=found.kind,
        place=found.place,
        state="created",
        spec=found.spec or "",
        request_number=0,
        attributes=found.attributes,
        notes=notes_of(found.tags) if found.is_machine else {},
        is_machine=found.is_machine,
    )


def _tagged_ends(tags: Mapping[str, str]) -> Ends:
    ends = {end.reason: end for end in ends_of(None, [tags])}
    ttl, lease, idle = (ends.get(reason) for reason in ("ttl", "lease", "idle"))
    return Ends(
        expires_at=ttl.at if ttl else None,
        idle_s=idle.seconds if idle else None,
        lease_s=lease.seconds if lease else None,
        lease_until=lease.at if lease else None,
    )


def unknown_deployment(context: Context, name: str) -> InputError:
    """Return the error for a name without a record or tags, with the nearest recorded names."""
    option = "--region" if any(context.target_at(place).facts.regions for place in context.regions) else "--target"
    return InputError(
        "unknown_deployment",
        f"no deployment '{name}' was found in {', '.join(context.regions)}",
        hint=f"{_near(context, name)}'tgi-deploy list' shows what exists; {option} searches elsewhere",
    )


def unrecorded_deployment(context: Context, name: str) -> InputError:
    """Return the error for a missing record if the cloud was not searched, with the nearest recorded names."""
    return InputError(
        "unknown_deployment",
        f"'{name}' has no record here",
        hint=f"{_near(context, name)}'tgi-deploy status {name}' searches the cloud for it by its tags",
    )


def _near(context: Context, name: str) -> str:
    near = recorded_like(context, name)
    return f"did you mean {' or '.join(near)}? " if near else ""


def recorded_like(context: Context, name: str) -> list[str]:
    """Return the recorded names nearest to an unknown one."""
    import difflib  # noqa: PLC0415 -- only for an unknown name

    return difflib.get_close_matches(name, context.store.names(), n=2)


def by_name(found: tuple[Found, ...]) -> dict[str, tuple[Found, ...]]:
    names: dict[str, list[Found]] = {}
    for item in found:
        if TAG_NAME in item.tags:
            names.setdefault(item.tags[TAG_NAME], []).append(item)
    return {name: tuple(items) for name, items in names.items()}


def created_at(found: Found) -> datetime | None:
    """Return a resource's creation time from the cloud, else from its tag."""
    words = (found.attributes.get("launched"), found.attributes.get("created"), found.tags.get(TAG_CREATED))
    return next((at for at in map(moment_of, words) if at is not None), None)


def machine_of(recorded: Deployment | None, seen: Sequence[Found]) -> Found | None:
    """Return the machine: preferably a live one, then the recorded one, then one that has no order to terminate."""
    record = recorded.machine if recorded else None
    known = record.attributes.get("id") if record else None
    machines = [found for found in seen if found.is_machine]
    return min(machines, key=lambda found: (not found.alive, found.id != known, ends_at_once(found.tags)), default=None)


def second_machines(recorded: Deployment | None, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return live machines of the deployment other than its own and those of an unfinished update."""
    rollout = recorded.rollout if recorded else None
    updated = {rollout.source, rollout.destination} if rollout else set()
    return tuple(found for found in other_machines(recorded, seen) if revision_of(found.key) not in updated)


def other_machines(recorded: Deployment | None, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return live machines of the deployment other than its own, including those of an unfinished update."""
    first = machine_of(recorded, seen)
    if first is None:
        return ()
    deployment_id = recorded.id if recorded else first.tags.get(TAG_ID, "")
    return tuple(
        found for found in owned_by(seen, deployment_id) if found.is_machine and found.alive and found is not first
    )


def is_stopped(recorded: Deployment | None, machine: Found | None) -> bool:
    """Return whether a machine is stopped or stopping, and can be started again from its disk.

    A container that exited counts only if this tool stopped it.
    """
    if machine is None or machine.state not in {"stopping", "stopped"}:
        return False
    record = recorded.machine if recorded else None
    return STARTABLE in machine.attributes or (record is not None and record.state in SWITCHED)


def stopped_error(name: str) -> NotHealthyError:
    """Return the error of a command that needs a running machine."""
    return NotHealthyError(
        "stopped",
        f"'{name}' does not serve: its machine is stopped",
        hint=f"'tgi-deploy start {name}' starts it again, 'tgi-deploy down {name}' removes it with its disk",
    )


def price_of(recorded: Deployment | None, seen: Sequence[Found]) -> Decimal | None:
    """Return the current hourly cost of a deployment, from its record or else its tags, for all its machines."""
    machine = machine_of(recorded, seen)
    stopped = is_stopped(recorded, machine)
    tagged = money(machine.tags.get(TAG_STOPPED_PRICE if stopped else TAG_PRICE)) if machine is not None else None
    first = tagged
    if recorded is not None:
        first = recorded.stopped_usd_per_hour if stopped else recorded.usd_per_hour
    others = price_of_all(recorded, other_machines(recorded, seen))
    beside = standing_price(recorded, seen) if stopped else Decimal(0)
    return None if first is None or others is None else first + others + beside


def standing_price(recorded: Deployment | None, seen: Sequence[Found]) -> Decimal:
    """Return the hourly cost of everything that is billed without a running machine, except a stopped one's disk."""
    if recorded is not None:
        return recorded.standing_usd_per_hour
    return sum((money(found.tags.get(TAG_PRICE)) or Decimal(0) for found in seen if found.billed), Decimal(0))


def price_of_all(recorded: Deployment | None, machines: Sequence[Found]) -> Decimal | None:
    """Return the total hourly cost of machines, from tags or else the record; None if a price is unknown."""
    tagged = (money(machine.tags.get(TAG_PRICE)) for machine in machines)
    prices = [recorded.usd_per_hour if price is None and recorded else price for price in tagged]
    known = [price for price in prices if price is not None]
    return sum(known, Decimal(0)) if len(known) == len(prices) else None


def money(text: object) -> Decimal | None:
    try:
        amount = Decimal(str(text))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def typed_request(
    context: Context, plan: PlanDocument | None, ends: Ends, *, own: Mapping[str, Any] | None = None
) -> str:
    """Return the MODEL argument and the caller's options for a command line, including limits.

    A local model is named by its path. `own` are the target's options, as given.
    """
    if plan is None:
        return "MODEL"
    model = plan.model.served_id if is_folder(plan.model.served_id) else plan.model.profile
    given = _given_options(context, plan.requirements)
    return shlex.join((model, *given, *given_ends(ends), *own_words(own or {})))


_FEW_REGIONS: Final = 4
_DEFAULTS: Final[Mapping[str, object]] = {
    "context_tokens": 8192, "concurrency": 8, "input_tokens": 1024, "output_tokens": 256,
}  # fmt: skip


def _given_options(context: Context, request: RequestDocument) -> Iterator[str]:
    """Yield the options that differ from their defaults; the engine's version comes from the catalog."""
    changed = changed_fields(request)
    own = request.hardware is not None
    load = "concurrency" if request.arrivals_per_s is not None else None  # follows from --rps
    for row in PLAN_OPTIONS:
        value = changed.get(row.lands)
        p95 = changed.get(row.lands.replace("tokens", "p95")) if row.reader == "lengths" else None
        if (value == _DEFAULTS.get(row.lands) and p95 is None) or row.lands in {load, "engine_version"}:
            continue
        if row.flag == "--region":
            where = () if own or value == context.targets[0].locations(()) else request.regions
            yield from option_words(row.flag, where if len(where) <= _FEW_REGIONS else ("all",))
        elif p95 is not None:
            yield from (row.flag, f"{value}:{p95}")
        elif isinstance(value, Replicas):
            yield from (row.flag, f"{value.least}..{value.most}" if value.most != value.least else str(value.least))
        else:
            yield from (row.flag,) if value is True else (row.flag, _number(value))
    if request.markets != ("on-demand",) and not own:
        yield from ("--market", "any" if len(request.markets) > 1 else request.markets[0])
    for flag, pairs in (("--set", request.flags), ("--env", request.env)):
        yield from option_words(flag, tuple(f"{name}={value}" for name, value in pairs.items()))


def own_words(own: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command-line words of a target's options."""
    for name, value in own.items():
        values = value if isinstance(value, list | tuple) else (value,)
        for item in values:
            yield from (flag_of(name),) if item is True else (flag_of(name), str(item))


def _number(value: object) -> str:
    return format(value, "g") if isinstance(value, float) else str(value)


def given_ends(ends: Ends) -> Iterator[str]:
    """Yield the limits as words of a command line."""
    limits = (("--ttl", ends.asked_ttl_s), ("--idle-timeout", ends.idle_s), ("--lease", ends.lease_s))
    for flag, seconds in limits:
        if seconds:
            yield from (flag, option_duration(seconds))
    if ends.max_spend_usd is not None:
        yield from ("--max-spend", str(ends.max_spend_usd))


def target_option(context: Context, place: str) -> str:
    """Return the `up` option that selects this location's target; empty for the default target."""
    target = context.target_at(place)
    return "" if target is context.targets[0] else f" --target {target.name}"
