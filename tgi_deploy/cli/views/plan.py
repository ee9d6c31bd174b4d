"""The details of a plan, for --explain, and the reasons why there is none."""

from __future__ import annotations

import shlex
from collections import Counter
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views import choice
from tgi_deploy.cli.views.text import heading, table, width, with_dates, wrapped
from tgi_deploy.text import cents, count, dated, duration, gib, one_line, plural, rate, usd
from tgi_deploy.values.supply import usd_per_month

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, EngineRun, NearMiss, NoFeasiblePlan, Plan, Rejection, Span, UsdSpan
    from tgi_deploy.values.plan_document import PlanDocument, PlannedCredits, PlannedInterruptions, PlannedPhase
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Elsewhere

_BAR_WIDTH: Final = 60
_DECIMALS: Final = 4
_LABEL: Final = 34
_TOP_REASONS: Final = 4
_NUMBERS: Final = frozenset({5, 6})
_PHASE_WORDS: Final = {
    "launching": "launch", "booting": "boot", "pulling": "image", "downloading": "weights", "loading": "loading",
    "warming_up": "warm-up", "ready": "tokenizer",
}  # fmt: skip


def details_text(plan: Plan, printed: PlanDocument) -> str:
    """Return the bill, the memory, the command line, the figures with their intervals, and what was rejected.

    `printed` is the same plan as `--json` prints it.
    """
    chosen = plan.chosen
    blocks = [
        _cost(chosen, plan.request, printed.cost.credits),
        interruptions_text(printed.interruptions),
        _memory(chosen),
        _engine(chosen.engine),
        _performance(chosen, plan.request),
        choice.service_level(plan),
        _ready(printed.time_to_ready),
        choice.frontier(plan.frontier),
        _top(plan),
        _rejections(plan.rejections),
        _assumptions(plan.assumptions),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def elsewhere_text(hardware: InstanceType, machines: Sequence[Elsewhere]) -> str:
    """Return the list prices of other clouds, marked as for comparison only."""
    cards = f"{hardware.accelerator_count} x {hardware.accelerator.name}"
    lines = [heading("Elsewhere", f"{cards} at list price, for comparison only: nothing is deployed there")]
    lines += [
        f"  {item.cloud:<6}{item.machine:<28}{item.region:<13}{f'{usd(item.usd_per_hour)}/h':>12}"
        f"  from {item.date} on, {item.confidence} confidence"
        for item in machines
    ]
    if not machines:
        lines.append(wrapped(f"No list price of a machine with {cards} is known."))
    return "\n".join(lines) + "\n"


def no_plan_text(outcome: NoFeasiblePlan, commands: Sequence[str]) -> str:
    """Return why there is no plan; `commands` are its near misses in order, ready to paste."""
    model = one_line(outcome.request.model.name)
    blocks = [
        wrapped(f"No machine meets your requirements for {model}.", first=""),
        _near_misses(outcome.near_misses, commands),
        _rejections(outcome.rejections),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def files_text(files: Mapping[str, str]) -> str:
    """Return a line for each picture that was written."""
    return "".join(f"{kind} written to {one_line(path)}\n" for kind, path in files.items())


def summary(candidate: Candidate) -> str:
    """Return a candidate in one line: machine, cards, precision and price."""
    offer = candidate.offer
    several = f"{candidate.machines} x " if candidate.machines > 1 else ""
    where = "" if offer.market == "owned" else f" {offer.market} in {offer.region}"
    price = "" if offer.usd_per_hour is None else f", {price_of(candidate)}"
    return f"{several}{offer.instance_type.name}{where}: {cards(candidate)}, {precision(candidate)}{price}"


def price_of(candidate: Candidate) -> str:
    return rate(candidate.cost.usd_per_hour, estimated=candidate.offer.estimated)


def cards(candidate: Candidate) -> str:
    """Return `1 x L4`, or `2 of 4 x L4` if some of the machine's cards stay idle."""
    kind = candidate.offer.instance_type
    if candidate.replicas > 1:
        return f"{candidate.replicas} replicas of {candidate.num_shard} x {kind.accelerator.name}"
    used = f"{candidate.num_shard} of " if candidate.num_shard != kind.accelerator_count else ""
    return f"{used}{kind.accelerator_count} x {kind.accelerator.name}"


def precision(candidate: Candidate) -> str:
    return candidate.dtype if candidate.quantize == "none" else f"{candidate.quantize} ({candidate.dtype})"


def _cost(candidate: Candidate, request: Request, covered: PlannedCredits | None) -> str:
    if candidate.offer.usd_per_hour is None:
        return ""
    budget = request.budget_usd_per_hour
    rows = [(line.item, line.usd_per_hour) for line in candidate.cost.lines]
    rows.append(("sum", candidate.cost.usd_per_hour))
    month = usd_per_month(candidate.cost.usd_per_hour)
    decimals = max(_DECIMALS, *(-int(amount.as_tuple().exponent) for _, amount in rows))
    label = max(_LABEL, *(len(item) + 1 for item, _ in rows))
    lines = [f"  {item:<{label}}{f'${amount:,.{decimals}f}':>12}" for item, amount in rows]
    if budget is not None:
        lines[-1] += f"  of a budget of {usd(budget)}"
    lines.append(f"  {'a month of 730 hours':<{label}}{f'${month:,.2f}':>12}")
    priced = "spot price" if candidate.offer.market == "spot" else "price"
    note = f"with the {priced} estimated" if candidate.offer.estimated else ""
    return "\n".join([heading("Cost per hour", note), *lines, *credits_lines(covered, candidate.cost.usd_per_hour)])


def credits_lines(covered: PlannedCredits | None, usd_per_hour: Decimal) -> Iterator[str]:
    """Yield how long credits last, if there are any."""
    if covered is not None:
        yield wrapped(
            f"covered by credits for {covered.covers_hours:,} hours if nothing else uses them, or until"
            f" {covered.until}; then {usd(usd_per_hour)} an hour. The first month costs"
            f" {usd(covered.first_month_usd)}."
        )


def interruptions_text(found: PlannedInterruptions | None, *, first: str = "") -> str:
    """Return the estimated cost of spot interruptions."""
    if found is None:
        return ""
    times = f"{found.per_month:.2g} times a month ({found.per_month_low:.2g} to {found.per_month_high:.3g})"
    return wrapped(
        f"With interruptions, estimated: {usd(found.served_usd_per_hour)} an hour of service"
        f" ({usd(found.served_usd_per_hour_low)} to {usd(found.served_usd_per_hour_high)}),"
        f" {usd(found.usd_per_million_output_tokens)} a million output tokens. It is reclaimed about {times} and takes"
        f" {duration(found.restart_s)} to serve again, if there is capacity; provider: {found.band} a month.",
        first=first,
    )


def _memory(candidate: Candidate) -> str:
    memory = candidate.memory
    rows = [f"  {label:<{_LABEL}}{gib(size):>12}" for label, _, size in _memory_parts(memory)]
    capacity = f"{count(memory.kv_capacity_tokens)} tokens, {count(memory.required_kv_tokens)} needed"
    rows[1] += f"  {capacity}"
    rows[2] += _prefill_note(candidate)
    return "\n".join([heading("Memory per accelerator", gib(memory.total_bytes)), f"  [{_bar(memory)}]", *rows])


def _prefill_note(candidate: Candidate) -> str:
    """Return the prefill batch, if it differs from the engine's default, which favors speed over memory."""
    own, message = candidate.engine.settings.default_prefill_tokens, candidate.engine.settings.max_batch_prefill_tokens
    if own is None or own <= message:
        return ""
    return f"  prefill batches of {count(message)} (default {count(own)})"


def _memory_parts(memory: MemoryBudget) -> tuple[tuple[str, str, int], ...]:
    return (
        ("weights", "w", memory.weights_bytes),
        ("KV cache", "k", max(0, memory.kv_cache_bytes)),
        ("activations", "a", memory.activation_bytes),
        ("overhead", "o", memory.overhead_bytes),
        ("not used by the engine", ".", memory.reserved_bytes),
    )


def _bar(memory: MemoryBudget) -> str:
    """Return a bar of the parts of the memory, to scale; rounding never changes its length."""
    bar, end = "", 0
    for _, letter, size in _memory_parts(memory):
        end += size
        bar += letter * (round(_BAR_WIDTH * end / memory.total_bytes) - len(bar))
    return bar[:_BAR_WIDTH].ljust(_BAR_WIDTH, ".")


def _engine(engine: EngineRun) -> str:
    lines = [heading("Engine", f"{engine.name} {engine.version}  {engine.container.image.reference}")]
    lines += _flag_lines(engine.container.args)
    lines += [f"  {name}={value}" for name, value in engine.container.env]
    return "\n".join(lines)


def _flag_lines(args: Sequence[str]) -> Iterator[str]:
    """Yield flags with their values, several per line, never a flag apart from its value."""
    line, room = " ", width()
    for pair in _pairs(args):
        if len(line) + 1 + len(pair) > room and line.strip():
            yield line
            line = " "
        line += f" {pair}"
    if line.strip():
        yield line


def _pairs(args: Sequence[str]) -> list[str]:
    pairs: list[str] = []
    for arg in args:
        quoted = shlex.quote(arg)
        if arg.startswith("--") or not pairs:
            pairs.append(quoted)
        else:
            pairs[-1] += f" {quoted}"
    return pairs


def _performance(candidate: Candidate, request: Request) -> str:
    speed = candidate.performance
    number = plural(request.concurrency, "request")
    if request.arrivals_per_s is not None:
        number = f"{request.arrivals_per_s:.4g} requests/s"
    load = (
        f"at {number} of {count(request.input_tokens)} tokens in and"
        f" {count(request.output_tokens)} out{', with 80 % intervals' if speed.ttft_ms_span else ''}"
    )
    lines = [
        heading("Predicted speed", load),
        _figure("time to first token", count, speed.ttft_ms, speed.ttft_ms_span, "ms")
        + _slowest(speed.ttft_ms_p95, count)
        + choice.chance_of(candidate, "ttft_ms"),
        _figure("time per output token", _tenths, speed.tpot_ms, speed.tpot_ms_span, "ms")
        + _slowest(speed.tpot_ms_p95, _tenths)
        + choice.chance_of(candidate, "tpot_ms"),
        _figure("output", count, speed.output_tokens_per_s, speed.output_tokens_per_s_span, "tokens/s")
        + choice.chance_of(candidate, "output_tokens_per_s"),
    ]
    million, blended = speed.usd_per_million_output_tokens, speed.usd_per_million_blended_tokens
    price = partial(cents, estimated=candidate.offer.estimated)
    if million is not None:
        label = "a million output tokens"
        lines.append(_figure(label, price, float(million), speed.usd_per_million_output_tokens_span))
    if blended is not None:
        lines.append(_figure("a million tokens in and out", price, float(blended), None))
    return "\n".join(lines)


def _figure(
    label: str, written: Callable[[float], str], value: float, span: Span | UsdSpan | None, unit: str = ""
) -> str:
    """Return a median with its 80 % interval."""
    ends = f"({written(float(span.low))} to {written(float(span.high))})" if span else ""
    words = " ".join(word for word in (f"{written(value):>12}", unit, ends) if word)
    return f"  {label:<{_LABEL}}{words}"


def _slowest(p95: float | None, written: Callable[[float], str]) -> str:
    """Return the 95th percentile."""
    return "" if p95 is None else f", p95 {written(p95)}"


def _tenths(number: float) -> str:
    return f"{number:,.1f}"


def _ready(phases: Sequence[PlannedPhase]) -> str:
    """Return the time until the first answer, by phase."""
    parts = ", ".join(f"{_PHASE_WORDS[item.phase]} {duration(item.expected_s)}" for item in phases)
    return wrapped(f"Ready in about {duration(sum(item.expected_s for item in phases))}: {parts}.", first="")


def _top(plan: Plan) -> str:
    """Return the best of other cards and quality classes, and what is tried if there is no capacity."""
    lines = []
    if plan.alternatives:
        slow = "; * misses the service level" if any(map(_is_slow, plan.alternatives)) else ""
        here, offers = _place(plan.chosen), [item.offer for item in plan.alternatives]
        cells = [_row(number, item, here) for number, item in enumerate(plan.alternatives, start=1)]
        date, rows = with_dates(cells, [dated(offer.price_date, estimated=offer.estimated) for offer in offers])
        note = f"best of each accelerator and class{date and f', {date}'}{slow}"
        lines = [heading("All alternatives", note)]
        lines += table(("",) * len(rows[0]), rows, right=_NUMBERS, indent="  ").rstrip("\n").split("\n")[1:]
    if plan.fallbacks:
        pools = dict.fromkeys(_pool(item, plan.chosen) for item in plan.fallbacks)
        lines.append(wrapped(f"If there is no capacity: {', '.join(pools)}."))
    return "\n".join(lines)


def _is_slow(candidate: Candidate) -> bool:
    return any(not item.met for item in candidate.outcomes)


def _pool(candidate: Candidate, chosen: Candidate) -> str:
    offer = candidate.offer
    place = "" if offer.region == chosen.offer.region else f" in {offer.region}"
    market = "" if offer.market == chosen.offer.market else f" {offer.market}"
    return f"{offer.instance_type.name}{market}{place}"


def _place(candidate: Candidate) -> str:
    offer = candidate.offer
    return offer.region if offer.market == "on-demand" else f"{offer.region} {offer.market}"


def _row(number: int, candidate: Candidate, here: str) -> tuple[str, ...]:
    """Return the cells of a row, the last two of them numbers. Only the cards in use count, and a place not `here`."""
    offer = candidate.offer
    place = "" if _place(candidate) == here else _place(candidate)
    method = (candidate.dtype if candidate.quantize == "none" else candidate.quantize) + "*" * _is_slow(candidate)
    price = "" if offer.usd_per_hour is None else price_of(candidate)
    speed = f"{count(candidate.performance.output_tokens_per_s)} tokens/s"
    used = f"{candidate.replicas * candidate.num_shard} x {offer.instance_type.accelerator.name}"
    several = f"{candidate.machines} x " if candidate.machines > 1 else ""
    return (f"{number}.", f"{several}{offer.instance_type.name}", place, used, method, price, speed)


def _rejections(rejections: Sequence[Rejection]) -> str:
    if not rejections:
        return ""
    counts = Counter(item.code for item in rejections)
    nearest = sorted((_nearest(rejections, code) for code in counts), key=attrgetter("distance"))
    lines = [_rejection(item, counts[item.code]) for item in nearest[:_TOP_REASONS]]
    others = ", ".join(f"{item.code} ({counts[item.code]:,})" for item in nearest[_TOP_REASONS:])
    if others:
        lines.append(wrapped(f"and {others}", first="  ", rest="      "))
    return "\n".join([heading("Rejected", "by reason, the nearest miss of each; all with --json"), *lines])


def _nearest(rejections: Sequence[Rejection], code: str) -> Rejection:
    return min((item for item in rejections if item.code == code), key=attrgetter("distance"))


def _rejection(item: Rejection, number: int) -> str:
    shards = f", {item.num_shard} shards" if item.num_shard > 1 else ""
    shards += f", {item.replicas} replicas" if item.replicas > 1 else ""
    quantize = "" if item.quantize == "none" else f", {item.quantize}"
    message = one_line(_first_sentence(item.message))
    text = f"{item.code} ({number:,}): {item.instance_type}{shards}{quantize}: {message}"
    return wrapped(text, first="  ", rest="      ")


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".")


def _near_misses(misses: Sequence[NearMiss], commands: Sequence[str]) -> str:
    if not misses:
        return ""
    lines = [heading("Nearest misses")]
    for miss, line in zip(misses, commands, strict=True):
        lines += [wrapped(one_line(miss.message)), f"    {line}"]
    return "\n".join(lines)


def _assumptions(assumptions: Sequence[str]) -> str:
    return "\n".join([heading("Assumptions"), *(wrapped(f"- {one_line(text)}", rest="    ") for text in assumptions)])
