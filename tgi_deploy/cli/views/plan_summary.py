"""A plan in about fifteen lines, printed from its document, so that a lock can print it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.views.text import heading, table, with_dates, wrapped
from tgi_deploy.text import cents, count, dated, duration, gib, one_line, plural, rate, usd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from tgi_deploy.values.plan_document import Choice, PlanDocument
    from tgi_deploy.values.request import RequestDocument

_MOST_ALTERNATIVES: Final = 4
_NUMBERS: Final = frozenset({4, 5})
_REST: Final = " " * 11


def summary_text(plan: PlanDocument) -> str:
    """Return what runs, where, at what price and speed; alternatives; warnings."""
    facts = [wrapped(f"{label:<9}{text}", rest=_REST) for label, text in _facts(plan)]
    notices = [wrapped(f"! {one_line(text)}", rest="    ") for text in plan.notices]
    blocks = ("\n".join([_headline(plan), *facts]), _alternatives(plan), "\n".join(notices))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _headline(plan: PlanDocument) -> str:
    model, chosen = plan.model, plan.chosen
    price = _price(chosen)
    sentence = f"{one_line(model.profile)} on {_machine(chosen)}{price and f' for {price}'}"
    return click.style(wrapped(sentence, first="", rest=""), bold=True)


def _facts(plan: PlanDocument) -> Iterator[tuple[str, str]]:
    model, chosen = plan.model, plan.chosen
    known_as = "" if model.profile == model.id else f"{one_line(model.id)}, "
    yield "model", f"{known_as}{model.params / 1e9:.1f}B parameters"
    own = "a new node of your cluster" if chosen.price_date else "your own hardware"
    where = own if chosen.market == "owned" else f"{chosen.market} in {chosen.region}"
    quality = f", quality {chosen.quality_class}" if chosen.quality_class else ""
    yield "runs on", f"{_cards(chosen)}, {where}, {_precision(chosen)}{quality}"
    if chosen.usd_per_hour is not None:
        yield "price", _cost(plan)
    yield "memory", _memory(plan)
    yield "speed", _speed(plan)
    engine = f"{plan.engine.name} {plan.engine.version}, {count(plan.engine.max_total_tokens)} tokens of context"
    yield "engine", f"{engine}; ready in about {duration(sum(phase.expected_s for phase in plan.time_to_ready))}"


def _machine(choice: Choice) -> str:
    return f"{choice.machines} x {choice.instance_type}" if choice.machines > 1 else choice.instance_type


def _cards(choice: Choice) -> str:
    """Return `1 x L4`, or `2 of 4 x L4` if some of the machine's accelerators stay idle."""
    if choice.replicas > 1:
        return f"{choice.replicas} replicas of {choice.num_shard} x {choice.accelerator}"
    used = f"{choice.num_shard} of " if choice.num_shard != choice.accelerator_count else ""
    return f"{used}{choice.accelerator_count} x {choice.accelerator}"


def _precision(choice: Choice) -> str:
    return choice.dtype if choice.quantize == "none" else f"{choice.quantize} ({choice.dtype})"


def _place(choice: Choice) -> str:
    if choice.market == "owned":
        return ""
    return choice.region if choice.market == "on-demand" else f"{choice.market} in {choice.region}"


def _price(choice: Choice) -> str:
    return "" if choice.usd_per_hour is None else rate(choice.total_usd_per_hour, estimated=choice.estimated)


def _cost(plan: PlanDocument) -> str:
    chosen, million = plan.chosen, plan.performance.usd_per_million_output_tokens
    budget = plan.requirements.budget_usd_per_hour
    parts = [
        _price(chosen) + (f" of a budget of {usd(budget)}" if budget is not None else ""),
        f"{_cents(plan, plan.cost.usd_per_month)} a month" if plan.cost.usd_per_month else "",
        f"{_cents(plan, million)} a million output tokens" if million is not None else "",
    ]
    date = _dated(chosen)
    return ", ".join(filter(None, parts)) + (f" ({date})" if date else "")


def _dated(choice: Choice) -> str:
    return dated(choice.price_date, estimated=choice.estimated)


def _cents(plan: PlanDocument, amount: Decimal) -> str:
    return cents(float(amount), estimated=plan.chosen.estimated)


def _memory(plan: PlanDocument) -> str:
    memory = plan.memory
    part, total = memory.per_accelerator.weights_bytes, memory.per_accelerator.total_bytes
    room = f"KV cache for {count(memory.kv_capacity_tokens)} tokens, {count(memory.required_kv_tokens)} needed"
    return f"{gib(part)} of weights in {gib(total)}; {room}"


def _speed(plan: PlanDocument) -> str:
    speed = plan.performance
    span = (
        f" ({count(speed.output_tokens_per_s_low)} to {count(speed.output_tokens_per_s_high)})"
        if speed.output_tokens_per_s_low is not None
        else ""
    )
    missed = "" if plan.slo is None or plan.slo.met else "; misses the service level"
    return (
        f"first token {count(speed.ttft_ms)} ms, {speed.tpot_ms:.1f} ms a token,"
        f" {count(speed.output_tokens_per_s)} tokens/s{span} at {_load(plan.requirements)}{missed}"
    )


def _load(request: RequestDocument) -> str:
    number = plural(request.concurrency, "request") + " at once"
    if request.arrivals_per_s is not None:
        number = f"{request.arrivals_per_s:.4g} requests/s"
    return f"{number}, {count(request.input_tokens)} tokens in, {count(request.output_tokens)} out"


def _alternatives(plan: PlanDocument) -> str:
    """Return the best of the other accelerators and quality classes, a line each."""
    shown = plan.alternatives[:_MOST_ALTERNATIVES]
    if not shown:
        return ""
    cells = [
        (
            _machine(item), _cards(item), _precision(item), item.quality_class or "",
            _price(item), f"{count(item.output_tokens_per_s)} tokens/s",
            "" if _place(item) == _place(plan.chosen) else _place(item),
        )
        for item in shown
    ]  # fmt: skip
    date, rows = with_dates(cells, [_dated(item) for item in shown])
    lines = table(("",) * len(rows[0]), rows, right=_NUMBERS, indent="  ").rstrip("\n").split("\n")
    note = "best of each accelerator and quality class" + (f", {date}" if date else "")
    return "\n".join([heading("Alternatives", note), *lines[1:]])
