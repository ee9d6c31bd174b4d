"""Formats `plan --why-not`: explains an instance type or an accelerator for a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.views.plan import precision, price_of
from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.text import count, gib, one_line, plural, rate, usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.api import Explained, Priced, Variant, WhyNot
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Request

_MAX_PRICES: Final = 3
_STATUS: Final = {
    "retired": "it is no longer offered",
    "bundled": "it is only sold as part of a larger system",
    "owned": "it can't be rented: it is your own machine",
}


def why_not_text(found: WhyNot) -> str:
    shown = _shown(found)
    blocks = [click.style(wrapped(_sentence(shown, found.request), first="", rest=""), bold=True)]
    if len(found.explanations) > 1:
        blocks.append(_overview(found))
    blocks.append(_details(shown, found.request))
    return "\n\n".join(blocks) + "\n"


def _shown(found: WhyNot) -> Explained:
    """Return the instance type to show in full: the best that works, else the nearest."""
    return min(found.explanations, key=_distance)


def _distance(item: Explained) -> tuple[bool, int, int, int]:
    if item.best is not None:
        return (False, item.rank or 0, 0, 0)
    codes = item.nearest.codes if item.variants else ()
    return (True, item.hardware.status in {"retired", "bundled"}, len(codes), item.hardware.accelerator_count)


def _sentence(item: Explained, request: Request) -> str:
    name, model = _name(item), one_line(request.model.name)
    if item.best is None:
        codes = item.nearest.codes if item.variants else ("not_offered",)
        return f"{name} does not serve {model} as requested; nearest misses: {', '.join(codes)}."
    if item.verdict == "chosen":
        return f"{name} is the plan's choice for {model}."
    if item.hardware.status == "owned":
        return f"{name} serves {model}: {_figures(item.best)}."
    if item.machines > 1 and item.decided_by is None:
        option = f"--instance {item.hardware.name} --replicas {item.best.replicas}"
        return f"{name} would serve {model} better: {_figures(item.best)}; {option} plans it."
    if item.chosen is None or item.decided_by is None:
        return f"{name} would serve {model}, but the request names {request.instance_type}."
    return (
        f"{name} would serve {model}: number {item.rank} of {item.ranked} instance types, behind "
        f"{item.chosen.offer.instance_type.name} by {item.decided_by} ({_versus(item.best, item.chosen)})."
    )


def _name(item: Explained) -> str:
    return f"{item.machines} x {item.hardware.name}" if item.machines > 1 else item.hardware.name


def _versus(mine: Candidate, chosen: Candidate) -> str:
    return f"{_figures(mine)}; chosen: {_figures(chosen)}"


def _figures(item: Candidate) -> str:
    price = "" if item.offer.market == "owned" else f", {price_of(item)} {item.offer.dated}"
    return f"{precision(item)}{price}, {count(item.performance.output_tokens_per_s)} tokens/s"


def _overview(found: WhyNot) -> str:
    header = ("instance type", "count", "verdict", "$/h", "rank")
    rows = table(header, [_row(item) for item in found.explanations], right=frozenset({1, 3, 4}))
    dates = sorted({price.offer.dated for price in map(_price_of, found.explanations) if price is not None} - {""})
    return rows + f"prices {' and '.join(dates)}" if dates else rows.rstrip("\n")


def _price_of(item: Explained) -> Candidate | Priced | None:
    """Return what the price in the overview is of: the best configuration, or else the cheapest one."""
    cheapest = next((price for variant in item.variants for price in variant.prices if price.cost is not None), None)
    return item.best or cheapest


def _row(item: Explained) -> tuple[str, ...]:
    price = _price_of(item)
    owned = item.hardware.status == "owned"
    return (
        item.hardware.name,
        str(item.hardware.accelerator_count),
        item.verdict if item.hardware.status in {"offered", "hosted", "owned"} else item.hardware.status,
        "-" if owned or not price or not price.cost else usd(price.cost.usd_per_hour, estimated=price.offer.estimated),
        "-" if item.rank is None or owned else str(item.rank),
    )


def _details(item: Explained, request: Request) -> str:
    hardware = item.hardware
    size = (
        f"{hardware.accelerator_count} x {hardware.accelerator.name}, {gib(hardware.memory_bytes_per_accelerator)} each"
    )
    lines = [heading(hardware.name, size)]
    if hardware.status in _STATUS:
        lines.append(wrapped(f"{_STATUS[hardware.status]}. {hardware.note or ''}".strip()))
    for variant in item.variants:
        lines += ["", *_variant(variant, request)]
    return "\n".join(lines)


def _variant(variant: Variant, request: Request) -> Iterator[str]:
    verdict_of_it = "works" if not variant.codes else ", ".join(variant.codes)
    several = f"{variant.replicas} replicas of " if variant.replicas > 1 else ""
    scheme = "not quantized" if variant.quantize == "none" else variant.quantize
    yield heading(f"{several}{plural(variant.num_shard, 'shard')}, {scheme}:", verdict_of_it)
    for problem in variant.problems:
        yield wrapped(f"{problem.code}: {one_line(problem.message)}", rest="      ")
    yield wrapped(_arithmetic(variant.memory), rest="      ")
    if variant.performance is not None:
        speed = variant.performance
        yield (
            f"  speed: {count(speed.ttft_ms)} ms to the first token, {speed.tpot_ms:.1f} ms a token, "
            f"{count(speed.output_tokens_per_s)} tokens/s"
        )
    yield from _prices(variant, request)


def _arithmetic(memory: MemoryBudget) -> str:
    """Return the arithmetic of one accelerator's memory, part by part."""
    return (
        f"memory of one accelerator: {gib(memory.total_bytes)} - {gib(memory.reserved_bytes)} not used by the engine - "
        f"{gib(memory.weights_bytes)} weights - {gib(memory.activation_bytes)} activations - "
        f"{gib(memory.overhead_bytes)} overhead = {gib(memory.kv_cache_bytes)} for the KV cache, at "
        f"{count(memory.kv_bytes_per_token)} bytes a token {count(memory.kv_capacity_tokens)} tokens; "
        f"{count(memory.required_kv_tokens)} are needed"
    )


def _prices(variant: Variant, request: Request) -> Iterator[str]:
    for item in variant.prices[:_MAX_PRICES]:
        if item.offer.market != "owned":
            yield wrapped(_price(item, request), rest="      ")
    more = len(variant.prices) - _MAX_PRICES
    if more > 0:
        yield f"  and {plural(more, 'more price')}"
    if not variant.prices:
        places = ", ".join(request.regions)
        yield wrapped(f"price: no {' or '.join(request.markets)} offer in {places}", rest="      ")


def _price(item: Priced, request: Request) -> str:
    where = ", ".join(filter(None, (f"price, {item.offer.market} in {item.offer.region}", item.offer.dated)))
    if item.cost is None:
        return f"{where}: unknown, and an unknown price does not count as free"
    parts = " + ".join(f"{usd(line.usd_per_hour)} {line.item}" for line in item.cost.lines)
    text = f"{where}: {parts} = {rate(item.cost.usd_per_hour, estimated=item.offer.estimated)}"
    budget = request.budget_usd_per_hour
    if budget is None:
        return text
    over = item.cost.usd_per_hour - budget
    return f"{text}; {usd(abs(over))} {'over' if over > 0 else 'under'} the budget of {usd(budget)}"
