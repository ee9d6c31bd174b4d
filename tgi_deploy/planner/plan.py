"""A wish and a supply in, a plan with its reasons out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.search import Search
from tgi_deploy.planner.types import NoPlan, Plan, Rejection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.planner.search import Option
    from tgi_deploy.planner.supply import Supply
    from tgi_deploy.planner.types import Candidate, Requirements

MAX_FALLBACKS: Final = 5
_FEW_REGIONS: Final = 3


def make_plan(wish: Requirements, supply: Supply) -> Plan | NoPlan:
    """The best candidate with its fallbacks, or every reason why there is none.

    Raises InputError for engine flags that the release does not have or that contradict each other.
    """
    search = Search(wish, supply)
    found = search.run()
    if not found.options:
        return NoPlan(
            requirements=wish,
            rejections=found.rejections or (_nothing_on_offer(wish),),
            near_misses=(),
            considered=found.considered,
            catalogue_date=supply.date,
        )
    chosen = search.candidate(found.options[0])
    return Plan(
        requirements=wish,
        chosen=chosen,
        fallbacks=tuple(search.candidate(option) for option in _fallbacks(found.options)),
        rejections=found.rejections,
        considered=found.considered,
        assumptions=tuple(_assumptions(wish, chosen, supply)),
        notices=tuple(_notices(wish, supply)),
        catalogue_date=supply.date,
    )


def _nothing_on_offer(wish: Requirements) -> Rejection:
    """The one reason where there was nothing to judge: nobody rents it out there."""
    what = wish.instance_type or "no accelerated instance type"
    where = ", ".join(wish.regions) if len(wish.regions) <= _FEW_REGIONS else f"{len(wish.regions)} regions"
    verb = "is not offered" if wish.instance_type else "is offered"
    return Rejection(
        instance_type=wish.instance_type or "any",
        num_shard=wish.num_shard or 1,
        quantize=wish.quantize,
        code="not_offered",
        message=f"{what} {verb} {' or '.join(wish.markets)} in {where}",
        numbers={},
        codes=("not_offered",),
        region=wish.regions[0] if len(wish.regions) == 1 else None,
        market=wish.markets[0],
        usd_per_hour=None,
        offers=0,
    )


def best(wish: Requirements, supply: Supply) -> Candidate | None:
    """The best candidate alone."""
    search = Search(wish, supply)
    options = search.run().options
    return search.candidate(options[0]) if options else None


def cheapest(wish: Requirements, supply: Supply) -> Candidate | None:
    return best(replace(wish, prefer="cost"), supply)


def _fallbacks(options: tuple[Option, ...]) -> Iterator[Option]:
    """The next best, each from another pool of capacity (type, region, market) than those before it."""
    seen = {_pool(options[0])}
    for option in options:
        if len(seen) > MAX_FALLBACKS:
            return
        if _pool(option) not in seen:
            seen.add(_pool(option))
            yield option


def _pool(option: Option) -> tuple[str, str, str]:
    return option.offer.instance_type.name, option.offer.region, option.offer.market


def _assumptions(wish: Requirements, chosen: Candidate, supply: Supply) -> Iterator[str]:
    offer = chosen.offer
    if offer.market == "owned":
        yield "the machine is yours: no price, and the accelerators are taken to be free of other work"
    else:
        kind = "estimated" if offer.estimated else "listed"
        yield f"{offer.market} price as {kind} on {offer.price_date} ({offer.price_source})"
        extras = supply.extra_prices.get(offer.region)
        if extras is not None and extras.estimated:
            yield f"volume and address prices in {offer.region} are estimates"
        yield "quota and capacity of the account are not known to the planner"
    if wish.model.model.source and wish.model.model.parameters:
        yield f"model shape from {wish.model.model.source.partition(';')[0]}"
    yield "speed is predicted by an analytic model at the promised load, fully used"
    if wish.utilisation < 1:
        yield f"tokens are priced as if that load were there {wish.utilisation * 100:.4g} % of the time"
    if chosen.offer.instance_type.accelerator.confidence != "high":
        yield f"figures of {chosen.offer.instance_type.accelerator.name} are of {chosen.offer.instance_type.accelerator.confidence} confidence"  # noqa: E501 -- one sentence


def _notices(wish: Requirements, supply: Supply) -> Iterator[str]:
    if wish.model.notice:
        yield wish.model.notice
    if wish.allow_turing:
        for rule in supply.release.architectures:
            if rule.verdict == "override" and rule.loses:
                yield f"--allow-turing: {rule.loses}"
    if supply.release.notice:
        yield supply.release.notice
