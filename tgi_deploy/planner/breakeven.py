"""The utilization at which two machines cost the same per output token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.plan import Candidate, Plan


class Breakeven(Frozen, frozen=True, kw_only=True):
    """The chosen machine compared with one of its fallbacks.

    Both bill every hour, so while either can carry the traffic, the lower hourly price gives the lower token price. The
    more expensive one pays off if it is busy enough to beat the cheaper one at full load: with hourly prices P and
    output tokens per second X, P_high / (X_high * u) = P_low / X_low. `utilization` is that u, the share of time at the
    planned load; None if its tokens cost more even at full load. At equal prices, the faster one counts as the more
    expensive.
    """

    fallback: Candidate
    more_expensive: Literal["chosen", "fallback"]
    utilization: float | None


def breakevens(plan: Plan) -> Iterator[Breakeven]:
    """Yield one per fallback, in order; none if prices are unknown, as for owned machines."""
    for fallback in plan.fallbacks:
        if plan.chosen.cost.usd_per_hour and fallback.cost.usd_per_hour:
            yield breakeven(plan.chosen, fallback)


def breakeven(chosen: Candidate, fallback: Candidate) -> Breakeven:
    cheap, expensive = sorted((chosen, fallback), key=_price_and_speed)
    share = _usd_per_token(expensive) / _usd_per_token(cheap)
    return Breakeven(
        fallback=fallback,
        more_expensive="chosen" if expensive is chosen else "fallback",
        utilization=share if share <= 1 else None,
    )


def _price_and_speed(candidate: Candidate) -> tuple[float, float]:
    return float(candidate.cost.usd_per_hour), candidate.performance.output_tokens_per_s


def _usd_per_token(candidate: Candidate) -> float:
    """Return the price at full load, up to a constant factor."""
    return float(candidate.cost.usd_per_hour) / candidate.performance.output_tokens_per_s
