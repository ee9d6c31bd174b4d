"""At which utilisation two machines cost the same per output token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.plan import Candidate, Plan


class Breakeven(Frozen, frozen=True, kw_only=True):
    """The chosen machine beside one of its fallbacks.

    Both bill every hour, so while either can carry the traffic the one that is cheaper an hour is cheaper a token.
    The dearer one pays where it is busy enough to beat the cheaper one at its best, always busy: with prices an hour
    P and output tokens a second X, where P_dear / (X_dear * u) = P_cheap / X_cheap. `utilisation` is that u, the share
    of the time at the promised load; None where even always busy the dearer one's tokens cost more. At the same price
    an hour the faster one counts as the dearer.
    """

    fallback: Candidate
    dearer: Literal["chosen", "fallback"]
    utilisation: float | None


def breakevens(plan: Plan) -> Iterator[Breakeven]:
    """One for each fallback, in their order; none where prices are not known, as of machines one owns."""
    for fallback in plan.fallbacks:
        if plan.chosen.cost.usd_per_hour and fallback.cost.usd_per_hour:
            yield breakeven(plan.chosen, fallback)


def breakeven(chosen: Candidate, fallback: Candidate) -> Breakeven:
    cheap, dear = sorted((chosen, fallback), key=_price_and_speed)
    share = _usd_per_token(dear) / _usd_per_token(cheap)
    return Breakeven(
        fallback=fallback,
        dearer="chosen" if dear is chosen else "fallback",
        utilisation=share if share <= 1 else None,
    )


def _price_and_speed(candidate: Candidate) -> tuple[float, float]:
    return float(candidate.cost.usd_per_hour), candidate.performance.output_tokens_per_s


def _usd_per_token(candidate: Candidate) -> float:
    """Always busy, up to a factor that is the same for all."""
    return float(candidate.cost.usd_per_hour) / candidate.performance.output_tokens_per_s
