"""What is asked for in a history, by number: few requests, made once, that differ where the product decides by it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from fakes.surroundings import on, plan, request

TTL_S = 7200
LEASE_S = 1800
IDLE_S = 900


@dataclass(frozen=True)
class Asked:
    """A plan, and how its machine is asked to end by itself."""

    plan: Any
    ends: dict[str, Any]


@cache
def asked():
    """Return every request by number."""
    other, spot = on("g6.xlarge"), on("g6e.xlarge", market="spot")
    elsewhere = on("g6.xlarge", region="us-west-2")
    return (
        Asked(plan(other), {"ttl_s": TTL_S}),
        Asked(plan(on("g6e.xlarge"), chosen=spot), {"ttl_s": TTL_S, "lease_s": LEASE_S}),
        Asked(plan(other, concurrency=9), {"idle_s": IDLE_S, "lease_s": LEASE_S}),
        Asked(plan(elsewhere), {"ttl_s": TTL_S, "max_spend_usd": Decimal(3)}),
    )


def up_request(command):
    """Return the `up` of a command."""
    wanted = asked()[command.plan]
    return request(wanted.plan, name=command.name, wait=command.waits, ready="fast", settings=dict(wanted.ends))
