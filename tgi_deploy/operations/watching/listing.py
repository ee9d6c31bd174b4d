"""The use case `list`: shows one line per deployment, with its current state. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.operations.watching.fleet import unsearched_warnings
from tgi_deploy.operations.watching.status import statuses
from tgi_deploy.reconcile.ends import certain_end, stamp

if TYPE_CHECKING:
    from decimal import Decimal

    from tgi_deploy.errors import DeployError, Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.status import Status
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.values.deployment import Deployment

_STARTING: Final = frozenset({"creating", "running"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A deployment. `phase` is from the record; `machine` is the machine's state, None if the cloud reports none.

    `now` is the current status, regardless of the record; `probe` is the endpoint's answer, None without an endpoint.
    `missing` is whether the cloud was queried and no longer has the recorded machine. `expires` is the earliest of
    `ends`. `usd_per_hour` is the price of all running machines, `estimated` on the spot market, `price_dated` its date,
    as `listed 2026-07-20`.
    """

    name: str
    recorded: bool
    phase: str
    now: str
    model: str | None
    region: str
    instance_type: str | None
    machine: str | None
    endpoint: str | None
    probe: Probe | None
    usd_per_hour: Decimal | None
    expires: str | None
    ends: tuple[End, ...] = ()
    owners: tuple[str, ...] = ()
    missing: bool = False
    estimated: bool = False
    price_dated: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    rows: tuple[Row, ...]
    warnings: tuple[Problem, ...]


def list_deployments(context: Context) -> Listing:
    """Return all deployments. A location that can't be searched, or an unreadable record, is only a warning."""
    not_searched: dict[str, DeployError] = {}
    found = statuses(context, not_searched=not_searched)
    problems = (problem for item in found for problem in item.drift)
    return Listing(
        rows=tuple(_row(item, item.deployment) for item in found if item.deployment is not None),
        warnings=(
            *(problem for problem in problems if problem.data["key"] in {"record", "endpoint"}),
            *unsearched_warnings(not_searched),
        ),
    )


def _row(status: Status, deployment: Deployment) -> Row:
    recorded, service = status.recorded, deployment.service
    machine, record = status.machine_seen, deployment.machine
    attributes = machine.attributes if machine else (record.attributes if record else {})
    planned = deployment.plan.chosen.instance_type if deployment.plan else None
    expires = certain_end(status.ends)
    return Row(
        name=status.name,
        recorded=recorded is not None,
        phase=recorded.status if recorded else "unrecorded",
        now=_now(status),
        model=service.model if service else None,
        region=deployment.region,
        instance_type=attributes.get("instance_type") or planned,
        machine=machine.state if machine else None,
        endpoint=deployment.endpoint,
        probe=status.probe,
        usd_per_hour=status.usd_per_hour,
        expires=None if expires is None else stamp(expires),
        ends=status.ends,
        owners=status.owners,
        missing=status.missing,
        estimated=deployment.estimated,
        price_dated=deployment.price_dated,
    )


def _now(status: Status) -> str:
    """Return the current status, as far as it could be determined."""
    recorded, machine = status.recorded, status.machine
    if status.healthy:
        return "ready"
    if status.missing:
        return "missing"
    if machine is not None and machine.state not in {"pending", "running"}:
        return machine.state
    if recorded is not None and recorded.status == "deleting":
        return recorded.status
    if status.not_searched is not None or (machine is not None and status.probe is None):
        return "unknown"
    return "starting" if recorded is not None and recorded.status in _STARTING else "not responding"
