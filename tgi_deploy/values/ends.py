"""The limits that terminate a machine, and how much of its spending limit is left."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import Final

from tgi_deploy.errors import InputError, Problem, warning
from tgi_deploy.text import usd_spent
from tgi_deploy.values.base import Frozen, Moment, Seconds, Value
from tgi_deploy.values.supply import usd_per_month

# The time that a machine needs to start.
SHORTEST_TTL_S: Final = 300


class LaunchLimits(Value, frozen=True, kw_only=True):
    """The limits in a machine's user data, valid until it reads others from its tags."""

    ttl_s: Seconds | None
    idle_s: Seconds | None
    lease_s: Seconds | None


class Ends(Value, frozen=True, kw_only=True):
    """The limits that end a machine without its owner; None for unset ones.

    `expires_at` is the end of `ttl_s`, `lease_until` that of a lease of `lease_s` unless renewed. Under the name's
    spending limit `max_spend_usd`, `ttl_s` accounts for `spent_before_usd`; `asked_ttl_s` and `ttl_until` reflect --ttl
    alone. `made_with` is None until a running machine's limits are changed.
    """

    ttl_s: Seconds | None = None
    expires_at: Moment | None = None
    max_spend_usd: Decimal | None = None
    spent_before_usd: Decimal | None = None
    idle_s: Seconds | None = None
    lease_s: Seconds | None = None
    lease_until: Moment | None = None
    asked_ttl_s: Seconds | None = None
    ttl_until: Moment | None = None
    made_with: LaunchLimits | None = None

    @property
    def first(self) -> LaunchLimits:
        """The limits that its machine was created with."""
        return self.made_with or LaunchLimits(ttl_s=self.ttl_s, idle_s=self.idle_s, lease_s=self.lease_s)

    @property
    def any(self) -> bool:
        """Whether a limit will end its machine."""
        return any(term is not None for term in (self.ttl_s, self.idle_s, self.lease_s))


class Spent(Frozen, frozen=True, kw_only=True):
    """The cost of `machines` under a name so far; an upper bound if the end of one was not observed.

    One of them still runs for up to `beside_s` next to the machine that is about to start, at `beside_usd_per_hour`.
    """

    usd: Decimal = Decimal(0)
    machines: int = 0
    beside_usd_per_hour: Decimal = Decimal(0)
    beside_s: int = 0

    @property
    def shortest_s(self) -> int:
        """How long the rest of the budget has to last."""
        return max(SHORTEST_TTL_S, self.beside_s)


class WantedEnds(Frozen, frozen=True, kw_only=True):
    """The requested limits. None: no limit; for a running machine: unchanged, and 0 removes the limit.

    `max_spend_usd` is for all machines of the name together, `max_spend_option` its name in messages.
    """

    ttl_s: int | None = None
    max_spend_usd: Decimal | None = None
    max_spend_option: str = "--max-spend"
    idle_s: int | None = None
    lease_s: int | None = None

    def lifetime_s(self, usd_per_hour: Decimal) -> int | None:
        """Return the seconds until a first machine terminates: the earlier of --ttl and --max-spend at this price.

        Raises InputError `bad_option_value` for an amount too small to start a machine.
        """
        if self.max_spend_usd is None or usd_per_hour <= 0:
            return self.ttl_s
        seconds = int(self.max_spend_usd / usd_per_hour * 3600)
        if seconds < SHORTEST_TTL_S:
            raise InputError(
                "bad_option_value",
                f"{self.max_spend_option}: ${self.max_spend_usd} is spent after {seconds} s at ${usd_per_hour} an hour",
                hint=f"a machine needs five minutes to start: set at least ${least_spend(usd_per_hour, Spent())}",
            )
        return seconds if self.ttl_s is None else min(self.ttl_s, seconds)

    def seconds(self, name: str, usd_per_hour: Decimal, spent: Spent) -> int | None:
        """Return how long a machine may run after earlier spending; None: forever.

        Raises InputError `max_spend_reached`.
        """
        own_s = self.lifetime_s(usd_per_hour)
        if self.max_spend_usd is None or not usd_per_hour:
            return own_s
        left_s = seconds_left(name, self.max_spend_usd, spent, usd_per_hour)
        return left_s if own_s is None else min(own_s, left_s)


def least_spend(usd_per_hour: Decimal, spent: Spent) -> Decimal:
    """Return the lowest spending limit, in whole cents, with which a machine of this price can still start."""
    per_hour = usd_per_hour + spent.beside_usd_per_hour
    return (spent.usd + per_hour * spent.shortest_s / 3600).quantize(Decimal("0.01"), ROUND_UP)


def seconds_left(name: str, ceiling_usd: Decimal, spent: Spent, usd_per_hour: Decimal) -> int:
    """Return for how long a machine may run on the rest of --max-spend.

    Raises InputError `max_spend_reached` if that is too short to start one.
    """
    per_hour = usd_per_hour + spent.beside_usd_per_hour
    seconds = int((ceiling_usd - spent.usd) / per_hour * 3600)
    if seconds >= spent.shortest_s:
        return seconds
    needs = "a machine needs five minutes to start"
    if spent.beside_s:
        needs = f"two machines may run for {round(spent.beside_s / 60)} minutes"
    raise InputError(
        "max_spend_reached",
        f"{name}: {spent_words(spent, ceiling_usd)}, and the rest lasts {max(0, seconds)} s at ${per_hour} an hour",
        hint=f"{needs}: set at least --max-spend {least_spend(usd_per_hour, spent)}, "
        f"or run 'tgi-deploy down {name}', which resets the count",
    )


def spent_words(spent: Spent, ceiling_usd: Decimal) -> str:
    machines = "1 machine" if spent.machines == 1 else f"{spent.machines} machines"
    return f"{usd_spent(spent.usd)} of --max-spend ${ceiling_usd} is already spent ({machines})"


def endless(ends: Ends, usd_per_hour: Decimal | None) -> tuple[Problem, ...]:
    """Return a warning if nothing would stop the billing."""
    if ends.any or usd_per_hour is None:
        return ()
    message = (
        f"nothing ends this machine automatically: about ${usd_per_month(usd_per_hour):,.0f} a month until 'down'; "
        "--ttl sets a limit"
    )
    return (warning("no_limit", message),)
