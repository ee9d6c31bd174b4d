"""A request and a supply in, a plan with its reasons out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.search import Search
from tgi_deploy.values.plan import NoFeasiblePlan, Plan, Rejection
from tgi_deploy.values.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

MAX_FALLBACKS: Final = 5
_FEW_REGIONS: Final = 3


def make_plan(request: Request, supply: Supply, engine: Engine) -> Plan | NoFeasiblePlan:
    """The best candidate with its fallbacks, or every reason why there is none.

    Raises InputError for engine flags that the release does not have or that contradict each other.
    """
    search = Search(request, supply, engine)
    found = search.run()
    if not found.configurations:
        return NoFeasiblePlan(
            request=request,
            rejections=found.rejections or (_nothing_on_offer(request),),
            near_misses=(),
            considered=found.considered,
            catalogue_date=supply.date,
        )
    chosen = search.candidate(found.configurations[0])
    return Plan(
        request=request,
        chosen=chosen,
        fallbacks=tuple(search.candidate(configuration) for configuration in _fallbacks(found.configurations)),
        rejections=found.rejections,
        considered=found.considered,
        assumptions=tuple(_assumptions(request, chosen, supply)),
        notices=tuple(_notices(request, supply)),
        catalogue_date=supply.date,
    )


def _nothing_on_offer(request: Request) -> Rejection:
    """The one reason where there was nothing to judge: nobody rents it out there."""
    what = request.instance_type or "no accelerated instance type"
    where = ", ".join(request.regions) if len(request.regions) <= _FEW_REGIONS else f"{len(request.regions)} regions"
    verb = "is not offered" if request.instance_type else "is offered"
    return Rejection(
        instance_type=request.instance_type or "any",
        num_shard=request.num_shard or 1,
        quantize=request.quantize,
        code="not_offered",
        message=f"{what} {verb} {' or '.join(request.markets)} in {where}",
        numbers={},
        codes=("not_offered",),
        region=request.regions[0] if len(request.regions) == 1 else None,
        market=request.markets[0],
        usd_per_hour=None,
        offers=0,
    )


def _fallbacks(configurations: tuple[Configuration, ...]) -> Iterator[Configuration]:
    """The next best, each from another pool of capacity (type, region, market) than those before it."""
    seen = {_pool(configurations[0])}
    for configuration in configurations:
        if len(seen) > MAX_FALLBACKS:
            return
        if _pool(configuration) not in seen:
            seen.add(_pool(configuration))
            yield configuration


def _pool(configuration: Configuration) -> tuple[str, str, str]:
    return configuration.offer.instance_type.name, configuration.offer.region, configuration.offer.market


def _assumptions(request: Request, chosen: Candidate, supply: Supply) -> Iterator[str]:
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
    if request.model.model.source and request.model.model.parameters:
        yield f"model shape from {request.model.model.source.partition(';')[0]}"
    yield "speed is predicted by an analytic model at the promised load, fully used"
    yield from _memory_remarks(chosen)
    if request.utilisation < 1:
        yield f"tokens are priced as if that load were there {request.utilisation * 100:.4g} % of the time"
    if chosen.offer.instance_type.accelerator.confidence != "high":
        yield f"figures of {chosen.offer.instance_type.accelerator.name} are of {chosen.offer.instance_type.accelerator.confidence} confidence"  # noqa: E501 -- one sentence


def _memory_remarks(chosen: Candidate) -> Iterator[str]:
    """Yield what the figures of the choice's memory do not show."""
    memory, settings = chosen.memory, chosen.engine.settings
    if memory.tight:
        left, unsure = (round(size / MIB) for size in (memory.margin_bytes, memory.uncertainty_bytes))
        yield f"memory is tight: {left} MiB are left on each card, and start-up logs have differed by {unsure} MiB"
    if settings.max_input_tokens < settings.max_total_tokens - 1:
        yield f"prompts may have {settings.max_input_tokens} of the context's {settings.max_total_tokens} tokens"


def _notices(request: Request, supply: Supply) -> Iterator[str]:
    if request.model.notice:
        yield request.model.notice
    if request.allow_turing:
        for rule in supply.release.architectures:
            if rule.verdict == "override" and rule.loses:
                yield f"--allow-turing: {rule.loses}"
    if supply.release.notice:
        yield supply.release.notice
