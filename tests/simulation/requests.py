"""The requests of a history, by number: a few that lead to different decisions."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from builders.plans import candidate, engine
from fakes.computer import on, plan, request

from tgi_deploy.operations.deploying.rollout import former
from tgi_deploy.operations.launching.launch import spec_of
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.plan import Cost
from tgi_deploy.values.supply import ROOT_VOLUME, CostLine

TTL_S = 7200
LEASE_S = 1800
IDLE_S = 900
CEILING_USD = Decimal(3)
# What EC2 bills for a machine that runs, by type and whether it is a spot machine, and beside it for its disk.
USD_PER_HOUR = {
    ("g6e.xlarge", False): Decimal("1.861"),
    ("g6e.xlarge", True): Decimal("0.7"),
    ("g6.xlarge", False): Decimal("0.8048"),
}
DISK_USD_PER_HOUR = Decimal("0.04")
# What `extend` asks for, by number.
WANTED = (
    WantedEnds(),
    WantedEnds(ttl_s=2 * TTL_S),
    WantedEnds(lease_s=LEASE_S),
    WantedEnds(idle_s=2 * IDLE_S),
    WantedEnds(max_spend_usd=2 * CEILING_USD),
)


@dataclass(frozen=True)
class Asked:
    """A plan and its limits; `cidrs` are the networks that it names."""

    plan: Any
    ends: dict[str, Any]
    cidrs: tuple[str, ...] = ()


def priced(made):
    """Return a candidate at what EC2 bills for its machine, and for the disk of that."""
    offered = made.offer
    machine_usd = USD_PER_HOUR[offered.instance_type.name, offered.market == "spot"]
    lines = (("instance", machine_usd), (ROOT_VOLUME, DISK_USD_PER_HOUR))
    cost = Cost(lines=tuple(CostLine(item=item, usd_per_hour=usd) for item, usd in lines))
    return replaced(made, cost=cost)


@cache
def asked():
    """Return every request by number: 4 and 5 run different specs, the others the same one on different machines."""
    other, spot = priced(on("g6.xlarge")), priced(on("g6e.xlarge", market="spot"))
    elsewhere = priced(on("g6.xlarge", region="us-west-2"))
    awq, gptq = (priced(candidate(engine=engine(quantize=scheme))) for scheme in ("awq", "gptq"))
    first = priced(candidate())
    return (
        Asked(plan(other, chosen=first), {"ttl_s": TTL_S}),
        Asked(plan(priced(on("g6e.xlarge")), chosen=spot), {"ttl_s": TTL_S, "lease_s": LEASE_S}),
        Asked(plan(other, chosen=first, concurrency=9), {"idle_s": IDLE_S, "lease_s": LEASE_S}, ("192.0.2.0/24",)),
        Asked(plan(elsewhere, chosen=first), {"ttl_s": TTL_S, "max_spend_usd": CEILING_USD}),
        Asked(plan(chosen=awq, quantize="awq"), {"ttl_s": TTL_S}, ("192.0.2.0/24", "198.51.100.0/24")),
        Asked(plan(chosen=gptq, quantize="gptq"), {"ttl_s": TTL_S, "max_spend_usd": CEILING_USD}),
        Asked(plan(first, chosen=elsewhere), {"ttl_s": TTL_S}),
    )


@cache
def digests(number):
    """Return the digests of what may run for a request."""
    wanted = asked()[number].plan
    return frozenset(spec_of(wanted, item).digest for item in (wanted.chosen, *wanted.fallbacks))


def again(revision):
    """Plan a recorded revision again: exactly what ran."""
    ran = revision.plan.chosen
    plans = [item.plan for item in asked()]
    made, found = next(
        (wanted, item)
        for wanted in plans
        for item in (wanted.chosen, *wanted.fallbacks)
        if spec_of(wanted, item).digest == revision.spec.digest
        and (item.offer.instance_type.name, item.offer.region, item.offer.market)
        == (ran.instance_type, ran.region, ran.market)
    )
    return replaced(made, chosen=found, fallbacks=()), ()


def up_request(command):
    """Return the `up` of a command."""
    wanted = asked()[command.plan]
    named = {"allow_cidr": wanted.cidrs} if wanted.cidrs else {}
    address = {"static_ip": True} if command.static else {}
    return _request(command, wanted.plan, {**wanted.ends, **named, **address})


def rollback_request(command, recorded):
    """Return the `up` that a `rollback` is. Raises ConflictError where there is nothing to go back to."""
    back = former(recorded)
    wanted, _ = again(back)
    ends = {name: getattr(recorded.ends, name) for name in ("ttl_s", "max_spend_usd", "idle_s", "lease_s")}
    ends |= {name: value for name, value in back.options.items() if name == "static_ip"}
    return replaced(_request(command, wanted, ends), exact=True, origin="rollback", wait=True)


def _request(command, wanted, ends):
    strategy = "recreate" if command.recreates else None
    return request(
        wanted,
        name=command.name,
        wait=command.waits,
        ready="fast",
        settings=ends,
        plan_revision=again,
        strategy=strategy,
    )
