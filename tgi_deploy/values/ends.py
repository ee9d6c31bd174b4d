"""How a machine is asked to end by itself, and how much of its ceiling is left."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from typing import Final

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen, Moment, Seconds, Value

# A machine needs as long to start.
SHORTEST_TTL_S: Final = 300


class MadeWith(Value, frozen=True, kw_only=True):
    """The limits in a machine's user data: they hold until it reads others from its tags."""

    ttl_s: Seconds | None
    idle_s: Seconds | None
    lease_s: Seconds | None


class Ends(Value, frozen=True, kw_only=True):
    """What ends a machine without its owner; None where nothing of the kind does.

    `expires_at` is when it has lived for `ttl_s`, `lease_until` the end of a lease of `lease_s`, unless it is renewed.
    Under a ceiling of `max_spend_usd` on the name, `ttl_s` leaves room for `spent_before_usd`, what was spent by then;
    `asked_ttl_s` and `ttl_until` are --ttl alone. `made_with` is None until a running machine's limits are changed.
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
    made_with: MadeWith | None = None

    @property
    def first(self) -> MadeWith:
        """What its machine was made with."""
        return self.made_with or MadeWith(ttl_s=self.ttl_s, idle_s=self.idle_s, lease_s=self.lease_s)

    @property
    def any(self) -> bool:
        """Whether its machine ends by itself some day."""
        return any(term is not None for term in (self.ttl_s, self.idle_s, self.lease_s))


class Spent(Frozen, frozen=True, kw_only=True):
    """What `machines` of a name have cost so far: at most that, where nobody saw one of them end."""

    usd: Decimal = Decimal(0)
    machines: int = 0


class WantedEnds(Frozen, frozen=True, kw_only=True):
    """How a machine is asked to end by itself. None: not so; of one that runs: as before, and 0 lifts the limit.

    `max_spend_usd` is the ceiling for all machines of the name together, `max_spend_option` what messages call it.
    """

    ttl_s: int | None = None
    max_spend_usd: Decimal | None = None
    max_spend_option: str = "--max-spend"
    idle_s: int | None = None
    lease_s: int | None = None

    def lifetime_s(self, usd_per_hour: Decimal) -> int | None:
        """Return the seconds until a first machine ends itself: the earlier of --ttl and --max-spend at this price.

        Raises InputError `bad_max_spend` for an amount that is spent before a machine has started.
        """
        if self.max_spend_usd is None or usd_per_hour <= 0:
            return self.ttl_s
        seconds = int(self.max_spend_usd / usd_per_hour * 3600)
        if seconds < SHORTEST_TTL_S:
            raise InputError(
                "bad_max_spend",
                f"{self.max_spend_option}: ${self.max_spend_usd} is spent after {seconds} s at ${usd_per_hour} an hour",
                hint=f"a machine needs five minutes to start: give at least ${least_spend(usd_per_hour)}",
            )
        return seconds if self.ttl_s is None else min(self.ttl_s, seconds)

    def seconds(self, name: str, usd_per_hour: Decimal, spent: Spent) -> int | None:
        """Return for how long a machine may run after so much was spent, None for ever.

        Raises InputError `max_spend_reached`.
        """
        own_s = self.lifetime_s(usd_per_hour)
        if self.max_spend_usd is None or not usd_per_hour:
            return own_s
        left_s = seconds_left(name, self.max_spend_usd, spent, usd_per_hour)
        return left_s if own_s is None else min(own_s, left_s)


def least_spend(usd_per_hour: Decimal, spent_usd: Decimal = Decimal(0)) -> Decimal:
    """Return the lowest ceiling, in whole cents, that lets a machine of this price start after so much was spent."""
    return (spent_usd + usd_per_hour * SHORTEST_TTL_S / 3600).quantize(Decimal("0.01"), ROUND_UP)


def seconds_left(name: str, ceiling_usd: Decimal, spent: Spent, usd_per_hour: Decimal) -> int:
    """Return for how long a machine may run on what is left of --max-spend.

    Raises InputError `max_spend_reached` where that is too short for one to start.
    """
    seconds = int((ceiling_usd - spent.usd) / usd_per_hour * 3600)
    if seconds >= SHORTEST_TTL_S:
        return seconds
    least = least_spend(usd_per_hour, spent.usd)
    raise InputError(
        "max_spend_reached",
        f"{name}: {spent_words(spent, ceiling_usd)}, and the rest lasts {max(0, seconds)} s at ${usd_per_hour} an hour",
        hint=f"a machine needs five minutes to start: give at least --max-spend {least}, "
        f"or run 'tgi-deploy down {name}', after which the count begins anew",
    )


def spent_words(spent: Spent, ceiling_usd: Decimal) -> str:
    machines = "1 machine" if spent.machines == 1 else f"{spent.machines} machines"
    usd = spent.usd.quantize(Decimal("0.01"), ROUND_UP)
    return f"${usd} of --max-spend ${ceiling_usd} is spent already ({machines})"
