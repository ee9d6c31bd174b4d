"""What is asked for in a history, by number: few requests, made once, that differ where the product decides by it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from builders.plans import candidate, engine
from fakes.surroundings import on, plan, request

from tgi_deploy.operations.deploying.rollout import former
from tgi_deploy.operations.launching.launch import spec_of
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds

TTL_S = 7200
LEASE_S = 1800
IDLE_S = 900
CEILING_USD = Decimal(3)
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
    """A plan, and how its machine is asked to end by itself."""

    plan: Any
    ends: dict[str, Any]


@cache
def asked():
    """Return every request by number: 0 to 3 run the same on different machines, 4 and 5 something else each."""
    other, spot = on("g6.xlarge"), on("g6e.xlarge", market="spot")
    elsewhere = on("g6.xlarge", region="us-west-2")
    awq, gptq = (candidate(engine=engine(quantize=scheme)) for scheme in ("awq", "gptq"))
    return (
        Asked(plan(other), {"ttl_s": TTL_S}),
        Asked(plan(on("g6e.xlarge"), chosen=spot), {"ttl_s": TTL_S, "lease_s": LEASE_S}),
        Asked(plan(other, concurrency=9), {"idle_s": IDLE_S, "lease_s": LEASE_S}),
        Asked(plan(elsewhere), {"ttl_s": TTL_S, "max_spend_usd": CEILING_USD}),
        Asked(plan(chosen=awq, quantize="awq"), {"ttl_s": TTL_S}),
        Asked(plan(chosen=gptq, quantize="gptq"), {"ttl_s": TTL_S, "max_spend_usd": CEILING_USD}),
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
    return _request(command, wanted.plan, dict(wanted.ends))


def rollback_request(command, recorded):
    """Return the `up` that a `rollback` is. Raises ConflictError where there is nothing to go back to."""
    wanted, _ = again(former(recorded))
    ends = {name: getattr(recorded.ends, name) for name in ("ttl_s", "max_spend_usd", "idle_s", "lease_s")}
    return replaced(_request(command, wanted, ends), exact=True, origin="rollback", wait=True)


def _request(command, wanted, ends):
    strategy = "recreate" if command.recreates else None
    return request(
        wanted, name=command.name, wait=command.waits, ready="fast", settings=ends, again=again, strategy=strategy
    )
