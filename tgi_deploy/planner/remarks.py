"""Assumptions and notices of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values.quality import is_below
from tgi_deploy.values.sizes import MIB
from tgi_deploy.values.supply import is_added

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.plan import Candidate, LimitOutcome
    from tgi_deploy.values.request import Metric, Request
    from tgi_deploy.values.supply import Supply

_NAMES: Final[dict[Metric, tuple[str, str, str]]] = {
    "ttft_ms": ("time to first token", "ms", "ttft-ms"),
    "tpot_ms": ("time per output token", "ms", "tpot-ms"),
    "output_tokens_per_s": ("output", "tokens/s", "min-tokens-per-s"),
}


def assumptions(request: Request, chosen: Candidate, supply: Supply) -> Iterator[str]:
    offer = chosen.offer
    if is_added(offer):
        kind = "estimated" if offer.estimated else "listed"
        yield f"price of a new node as {kind} on {offer.price_date} ({offer.price_source})"
        yield "quotas and capacity are not checked"
    elif offer.market == "owned":
        price = "it has no price" if offer.usd_per_hour is None else "its price is what it costs you"
        yield f"the machine is your own: {price}, and its accelerators are assumed to be idle"
    else:
        kind = "estimated" if offer.estimated else "listed"
        yield f"{offer.market} price as {kind} on {offer.price_date} ({offer.price_source})"
        extras = supply.extra_prices.get(offer.region)
        if extras is not None and extras.estimated and len(chosen.cost.lines) > 1:
            what = "volume" if supply.hosting else "volume and address"
            yield f"{what} prices in {offer.region} are estimates"
        if supply.hosting is not None:
            yield f"{supply.hosting.service} offers every instance type that {offer.region} has"
        yield "quotas and capacity are not checked"
    if request.model.model.source and request.model.model.parameters:
        yield f"model shape from {request.model.model.source.partition(';')[0]}"
    yield "speed is predicted by an analytic model, under the requested load"
    yield from _memory_notes(chosen)
    chip = chosen.offer.instance_type.accelerator
    if chosen.engine.container.host is not None:
        yield chosen.engine.container.host.remark
        yield f"the prediction is based on the datasheet of {chip.name}, not on measured speed"
    if chip.loses:
        yield chip.loses
    if request.utilization < 1:
        yield f"token prices assume that load for {request.utilization * 100:.4g} % of the time"
    if chip.confidence != "high":
        yield f"confidence in the figures of {chip.name} is {chip.confidence}"


def _memory_notes(chosen: Candidate) -> Iterator[str]:
    """Yield notes on the choice's memory."""
    memory, settings = chosen.memory, chosen.engine.settings
    if memory.tight:
        left, unsure = (round(size / MIB) for size in (memory.margin_bytes, memory.uncertainty_bytes))
        yield f"memory is tight: {left} MiB are left on each accelerator, and startup logs vary by {unsure} MiB"
    if settings.max_input_tokens < settings.max_total_tokens - 1:
        yield f"prompts may have {settings.max_input_tokens} of the context's {settings.max_total_tokens} tokens"


def notices(request: Request, chosen: Candidate, supply: Supply, more: Configuration | None) -> Iterator[str]:
    """Yield the notices. `more`: a better plan with several replicas, which the target can't run yet."""
    yield from _quality(request, chosen, supply)
    if more is not None:
        yield _several(more, runs_one=supply.hosting is None)
    if request.model.notice:
        yield request.model.notice
    if request.allow_turing:
        for rule in supply.release.architectures:
            if rule.verdict == "override" and rule.loses:
                yield f"--allow-turing: {rule.loses}"
    if supply.release.notice:
        yield supply.release.notice


def missed_limits(request: Request, chosen: Configuration) -> Iterator[str]:
    """Yield the default limits that the choice misses."""
    missed = [item for item in chosen.evaluation.outcomes if not item.met]
    if not missed:
        return
    figures = " and ".join(map(_figure, missed))
    shortfall, within = chosen.evaluation.shortfall, chosen.key[0].times
    nearest = within == (shortfall.answer if shortfall.unusable else shortfall.times)
    how = (
        "; this comes closest"
        if nearest
        else f", not even for a single request; this is the cheapest that comes within {within:g} times"
    )
    price = "" if request.budget_usd_per_hour is None else f" for ${request.budget_usd_per_hour}/h"
    yield (
        f"the default service level is missed: {figures}. Nothing on offer{price} meets it{how}. "
        "--slo none accepts that without a warning"
    )


def _figure(item: LimitOutcome) -> str:
    name, unit, option = _NAMES[item.limit.metric]
    chance = f", met with a chance of {item.chance:.0%}" if item.predicted <= item.limit.value else ""
    return f"{name} about {item.predicted:,.0f} {unit}, default limit {item.limit.value:g}{chance} (--{option})"


def _quality(request: Request, chosen: Candidate, supply: Supply) -> Iterator[str]:
    if not is_below(chosen.quality, "auto") or request.quality == "any" or request.quantize == chosen.quantize:
        return
    known = supply.quality.of(chosen.quantize, chosen.lost_bits)
    lost = [-item.points for item in known.deltas if item.points < 0]
    scores = f": published scores fall by {min(lost):.1f} to {max(lost):.1f} points" if lost else ""
    yield (
        f"{chosen.quantize} weights have 4 bits{scores}. Nothing near-lossless fits and is usable; "
        "--quality any accepts that without a warning, --quality near-lossless rules it out"
    )


def _several(more: Configuration, *, runs_one: bool) -> str:
    speed, evaluation = more.evaluation.performance, more.evaluation
    rate = f", {speed.output_tokens_per_s:,.0f} tokens/s" if speed else ""
    name = more.offer.instance_type.name
    where = f"{more.machines} x {name}" if more.machines > 1 else f"one {name}"
    price = f", ${more.cost.usd_per_hour:.2f}/h" if more.cost.usd_per_hour else ""
    so_far = ", for a target that runs several" if runs_one else ""
    return (
        f"{evaluation.replicas} replicas on {where} would do better{price}{rate}: "
        f"--replicas {evaluation.replicas} plans them{so_far}"
    )
