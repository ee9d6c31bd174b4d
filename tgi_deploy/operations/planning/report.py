"""Computes the content of a plan's report, also if no plan is feasible.

A plan contains only its choice and fallbacks. The report searches again for all working configurations, without the
budget, so that it can show those just above it.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tgi_deploy import __version__
from tgi_deploy import text as words
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.planning.artifacts import deployable
from tgi_deploy.operations.planning.no_plan import given_options
from tgi_deploy.operations.planning.plan import supply_for
from tgi_deploy.operations.report.report import Choice, Command, CostRow, Figure, Memory, Part, Phase, Report
from tgi_deploy.operations.report.scatter import RejectionGroup, Variant
from tgi_deploy.planner.performance import usd_per_million
from tgi_deploy.planner.search import Search
from tgi_deploy.planner.time_to_ready import phases_of_start
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan, Span
from tgi_deploy.values.supply import usd_per_month

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.operations.report.scatter import State
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.plan import Candidate, NearMiss, Performance, Plan, Rejection
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer

_PHASES: Final = {
    "launching": "launch",
    "booting": "boot",
    "pulling": "pull the image",
    "downloading": "download the weights",
    "loading": "load the weights",
    "warming_up": "warm up",
    "ready": "answer",
}
_PERCENT: Final = 100
_MS_PER_S: Final = 1000
_S_PER_MINUTE: Final = 60


def report(
    made: Plan | NoFeasiblePlan,
    texts: OptionTexts,
    catalog: Catalog,
    environ: Mapping[str, str],
    *,
    targets: Sequence[Target],
    commands: Sequence[str] = (),
) -> Report:
    """Return the report. `commands` are those of the near misses, in order; `targets` render artifacts."""
    request = made.request
    chosen = None if isinstance(made, NoFeasiblePlan) else made.chosen
    variants, rejections = _configurations(made, catalog)
    page = Report(
        title=request.model.name,
        sentence=_sentence(request, chosen),
        feasible=chosen is not None,
        load=_load(request),
        budget_usd_per_hour=_float(request.budget_usd_per_hour),
        catalog_date=made.catalog_date,
        version=__version__,
        considered=made.considered,
        variants=variants,
        rejections=rejections,
    )
    if isinstance(made, NoFeasiblePlan):
        return replace(page, near_misses=tuple(_near_misses(made.near_misses, commands)))
    return replace(
        page,
        figures=tuple(_figures(made)),
        cost_rows=_cost_rows(made.chosen),
        memory=_memory(made.chosen),
        phases=tuple(_phases(made.chosen)),
        commands=tuple(_commands(made, texts, environ, targets)),
        fallbacks=tuple(_choice(item) for item in made.fallbacks),
        notices=made.notices,
        assumptions=made.assumptions,
    )


def _configurations(
    made: Plan | NoFeasiblePlan, catalog: Catalog
) -> tuple[tuple[Variant, ...], tuple[RejectionGroup, ...]]:
    """Return each working configuration at its lowest price, and those rejected for reasons other than the price."""
    request = made.request
    found = Search(replaced(request, budget_usd_per_hour=None), supply_for(request, catalog), catalog.engine).run()
    cheapest: dict[tuple[object, ...], Configuration] = {}
    for configuration in found.configurations:
        kept = cheapest.setdefault(_key_of(configuration), configuration)
        if configuration.cost.usd_per_hour < kept.cost.usd_per_hour:
            cheapest[_key_of(configuration)] = configuration
    states = _States(made)
    variants = [
        _variant(configuration, states.of(configuration), request.utilization) for configuration in cheapest.values()
    ]
    rejections = sorted(
        _rejection_groups(found.rejections), key=lambda item: (item.usd_per_hour or math.inf, item.instance_type)
    )
    return tuple(sorted(variants, key=_variant_order)), tuple(rejections)


def _key_of(configuration: Configuration) -> tuple[object, ...]:
    evaluation = configuration.evaluation
    return (
        configuration.offer.instance_type.name,
        evaluation.num_shard,
        evaluation.scheme.name,
        configuration.offer.market,
    )


def _variant_order(variant: Variant) -> tuple[object, ...]:
    order: tuple[State, ...] = ("chosen", "fallback", "works", "over")
    return (
        order.index(variant.state),
        variant.usd_per_hour or 0,
        -variant.tokens_per_s,
        variant.instance_type,
        variant.weights,
    )


class _States:
    """The state of a configuration in a plan: chosen, fallback, possible, or over the budget."""

    def __init__(self, made: Plan | NoFeasiblePlan) -> None:
        self._budget = made.request.budget_usd_per_hour
        self._named: dict[tuple[object, ...], State] = {}
        if isinstance(made, NoFeasiblePlan):
            return
        for item in made.fallbacks:
            self._named[_key(item.offer, item.num_shard, item.quantize)] = "fallback"
        self._named[_key(made.chosen.offer, made.chosen.num_shard, made.chosen.quantize)] = "chosen"

    def of(self, configuration: Configuration) -> State:
        if self._budget is not None and configuration.cost.usd_per_hour > self._budget:
            return "over"
        evaluation = configuration.evaluation
        return self._named.get(_key(configuration.offer, evaluation.num_shard, evaluation.scheme.name), "works")


def _key(offer: Offer, num_shard: int, quantize: str) -> tuple[object, ...]:
    return offer.instance_type.name, offer.market, num_shard, quantize


def _variant(configuration: Configuration, state: State, utilization: float) -> Variant:
    offer, evaluation, speed = configuration.offer, configuration.evaluation, configuration.evaluation.performance
    if speed is None:
        raise AssertionError("a working configuration has a predicted speed")
    usd = configuration.cost.usd_per_hour if offer.usd_per_hour is not None else None
    million = usd_per_million(usd, speed.output_tokens_per_s, utilization) if usd else None
    return Variant(
        instance_type=offer.instance_type.name,
        where=_where(offer),
        accelerators=_accelerators(offer, evaluation.num_shard),
        weights="as published" if evaluation.scheme.name == "none" else evaluation.scheme.name,
        exact=evaluation.scheme.lost_bits == 0,
        usd_per_hour=_float(usd),
        tokens_per_s=speed.output_tokens_per_s,
        ttft_ms=speed.ttft_ms,
        tpot_ms=speed.tpot_ms,
        span=(expected.low, expected.high) if (expected := speed.output_tokens_per_s_span) else None,
        usd_per_million_tokens=_float(million),
        state=state,
    )


def _rejection_groups(rejections: Iterable[Rejection]) -> Iterator[RejectionGroup]:
    """Yield rejections, merging those of one instance type with the same sentence."""
    groups: dict[tuple[str, str, str], list[Rejection]] = {}
    for item in rejections:
        groups.setdefault((item.code, item.instance_type, item.message), []).append(item)
    for (code, instance_type, message), items in groups.items():
        prices = [item.usd_per_hour for item in items if item.usd_per_hour is not None]
        yield RejectionGroup(
            instance_type=instance_type,
            code=code,
            message=message,
            configurations=_configurations_text(items),
            number=len(items),
            usd_per_hour=_float(min(prices, default=None)),
        )


def _configurations_text(items: Sequence[Rejection]) -> str:
    """Return numbers of accelerators with their methods: `x1, 2: unquantized, awq; x4: awq`."""
    methods: dict[int, list[str]] = {}
    for item in items:
        methods.setdefault(item.num_shard, []).append("unquantized" if item.quantize == "none" else item.quantize)
    shards: dict[str, list[str]] = {}
    for number, names in methods.items():
        shards.setdefault(", ".join(names), []).append(str(number))
    return "; ".join(f"{words.TIMES}{', '.join(numbers)}: {names}" for names, numbers in shards.items())


def _sentence(request: Request, chosen: Candidate | None) -> str:
    model = request.model.model
    size = f"{model.parameters / 1e9:.1f}B parameters" if model.parameters else "size unknown"
    known_as = size if request.model.name == model.hub_id else f"{model.hub_id}, {size}"
    if chosen is None:
        return f"No machine serves {request.model.name} ({known_as}) as requested."
    price = f", for {_usd(chosen)} an hour" if chosen.offer.usd_per_hour else ""
    return f"{request.model.name} ({known_as}) runs on {_summary(chosen)}{price}{_within(request, chosen)}."


def _within(request: Request, chosen: Candidate) -> str:
    budget = request.budget_usd_per_hour
    if budget is None or chosen.offer.usd_per_hour is None:
        return ""
    return f": {round(_PERCENT * chosen.cost.usd_per_hour / budget)}% of the budget"


def _load(request: Request) -> str:
    budget = f", at most {words.usd(float(request.budget_usd_per_hour))} an hour" if request.budget_usd_per_hour else ""
    return (
        f"Planned for {words.plural(request.concurrency, 'request')} at once,"
        f" {words.count(request.input_tokens)} tokens in and {words.count(request.output_tokens)} out,"
        f" contexts up to {words.count(request.context_tokens)} tokens{budget}; preferring {request.prefer}."
    )


def _summary(candidate: Candidate) -> str:
    offer = candidate.offer
    weights = candidate.dtype if candidate.quantize == "none" else f"{candidate.quantize} ({candidate.dtype})"
    where = f" {_where(offer)}" if offer.market != "owned" else ""
    return f"{offer.instance_type.name}{where} with {_accelerators(offer, candidate.num_shard)} in {weights}"


def _where(offer: Offer) -> str:
    guessed = " (estimate)" if offer.estimated else ""
    return "your own" if offer.market == "owned" else f"{offer.market}{guessed} in {offer.region}"


def _usd(candidate: Candidate) -> str:
    return words.usd(float(candidate.cost.usd_per_hour), estimated=candidate.offer.estimated)


def _accelerators(offer: Offer, num_shard: int) -> str:
    kind = offer.instance_type
    used = f"{num_shard} of " if num_shard != kind.accelerator_count else ""
    return f"{used}{kind.accelerator_count} {words.TIMES} {kind.accelerator.name}"


def _figures(plan: Plan) -> Iterator[Figure]:
    chosen = plan.chosen
    if chosen.offer.usd_per_hour is not None:
        date = words.dated(chosen.offer.price_date, estimated=chosen.offer.estimated)
        whole = ("machine, disk and address",) if len(chosen.cost.lines) > 1 else ()
        yield Figure(label="an hour", value=_usd(chosen), note="; ".join(filter(None, (*whole, date))))
        month = float(usd_per_month(chosen.cost.usd_per_hour))
        yield Figure(label="a month", value=words.cents(month, estimated=chosen.offer.estimated), note="730 hours")
    yield from _speed_figures(chosen.performance, estimated=chosen.offer.estimated)
    memory = chosen.memory
    yield Figure(
        label="KV cache",
        value=words.count(memory.kv_capacity_tokens),
        note=f"tokens, {memory.required_kv_tokens:,} needed",
    )
    minutes = sum(phase.expected_s for phase in phases_of_start(chosen)) / _S_PER_MINUTE
    yield Figure(label="until it is ready", value=f"{minutes:.1f}", unit="min", note=_beginning(chosen))


def _speed_figures(speed: Performance, *, estimated: bool) -> Iterator[Figure]:
    yield Figure(label="first token", value=words.count(speed.ttft_ms), unit="ms", note=_span(speed.ttft_ms_span))
    each = speed.tpot_ms_span
    reads = Span(low=_MS_PER_S / each.high, high=_MS_PER_S / each.low) if each else None
    yield Figure(label="per user", value=words.count(_MS_PER_S / speed.tpot_ms), unit="tokens/s", note=_span(reads))
    yield Figure(
        label="total output",
        value=words.count(speed.output_tokens_per_s),
        unit="tokens/s",
        note=_span(speed.output_tokens_per_s_span),
    )
    million = speed.usd_per_million_output_tokens
    if million is not None:
        used = "fully used" if speed.utilization == 1 else f"used {speed.utilization:.3g} of the time"
        price = words.cents(float(million), estimated=estimated)
        yield Figure(label="a million tokens", value=price, note=f"output, {used}")


def _span(span: Span | None) -> str:
    """Return the range of 8 in 10 measured values; if it is unknown, the word for a prediction."""
    return f"{words.count(span.low)} to {words.count(span.high)}" if span else "predicted"


def _beginning(candidate: Candidate) -> str:
    return "from the first pull" if candidate.offer.market == "owned" else "from the launch"


def _cost_rows(candidate: Candidate) -> tuple[CostRow, ...]:
    if candidate.offer.usd_per_hour is None:
        return ()
    return tuple(CostRow(item=line.item, usd_per_hour=float(line.usd_per_hour)) for line in candidate.cost.lines)


def _memory(candidate: Candidate) -> Memory:
    kind = candidate.offer.instance_type
    return Memory(
        accelerator=kind.accelerator.name,
        accelerators=candidate.num_shard,
        idle_accelerators=kind.accelerator_count - candidate.num_shard,
        total_bytes=candidate.memory.total_bytes,
        parts=tuple(part for part in _parts(candidate) if part.size_bytes > 0),
    )


def _parts(candidate: Candidate) -> Iterator[Part]:
    """Yield the parts. The KV cache is split into a needed and a spare part; the last one is the unexplained rest."""
    memory = candidate.memory
    cache = max(0, memory.kv_cache_bytes)
    needed = min(cache, cache * memory.required_kv_tokens // max(1, memory.kv_capacity_tokens))
    named = memory.weights_bytes + cache + memory.activation_bytes + memory.overhead_bytes + memory.reserved_bytes
    tokens = f"{memory.required_kv_tokens:,} tokens"
    spare = f"{memory.kv_capacity_tokens - memory.required_kv_tokens:,} tokens"
    yield Part(kind="weights", label="weights", size_bytes=memory.weights_bytes, note=_weights_note(candidate))
    yield Part(kind="needed", label="KV cache, needed", size_bytes=needed, note=tokens)
    yield Part(kind="spare", label="KV cache, spare", size_bytes=cache - needed, note=spare)
    yield Part(
        kind="activation", label="activations", size_bytes=memory.activation_bytes, note="the largest prompt batch"
    )
    yield Part(kind="overhead", label="overhead", size_bytes=memory.overhead_bytes, note=_overhead_note(memory))
    yield Part(kind="other", label="other", size_bytes=memory.total_bytes - named)
    yield Part(kind="reserved", label="not used by the engine", size_bytes=memory.reserved_bytes)


def _overhead_note(memory: MemoryBudget) -> str:
    named = (
        ("context", memory.context_bytes), ("workspace", memory.workspace_bytes), ("CUDA graphs", memory.graph_bytes),
        ("collectives", memory.collective_bytes),
    )  # fmt: skip
    return ", ".join(f"{name} {words.gib(size)}" for name, size in named if size)


def _weights_note(candidate: Candidate) -> str:
    weights = candidate.dtype if candidate.quantize == "none" else candidate.quantize
    return weights if candidate.num_shard == 1 else f"{weights}, 1/{candidate.num_shard} of the model"


def _phases(candidate: Candidate) -> Iterator[Phase]:
    start = 0.0
    for phase in phases_of_start(candidate):
        title = _PHASES.get(phase.phase, phase.phase.replace("_", " "))
        yield Phase(title=title, start_s=start, expected_s=phase.expected_s, deadline_s=phase.deadline_s)
        start += phase.expected_s


def _commands(
    plan: Plan, texts: OptionTexts, environ: Mapping[str, str], targets: Sequence[Target]
) -> Iterator[Command]:
    """Yield the command that deploys the plan (not for an owned machine), and every artifact of a target for it."""
    if plan.chosen.offer.market != "owned":
        given = (word for _, option in given_options(texts) for word in option)
        line = shlex.join(("tgi-deploy", "up", texts.model, *given))
        yield Command(title="tgi-deploy up", file_name="", text=f"{line}\n")
    subject = deployable(plan, texts, environ)
    for target in targets:
        for form, title in target.forms.items() if target.rejection(plan) is None else ():
            try:
                artifact = target.artifact(form, subject, templates_dir=None)
            except DeployError as error:
                yield Command(title=title, file_name="", problem=f"{error.message}; {error.hint}")
            else:
                yield Command(title=title, file_name=artifact.file_name, text=artifact.text)


def _choice(candidate: Candidate, *, reason: str = "", option: str = "") -> Choice:
    return Choice(
        text=_summary(candidate),
        usd_per_hour=_float(candidate.cost.usd_per_hour) if candidate.offer.usd_per_hour is not None else None,
        tokens_per_s=candidate.performance.output_tokens_per_s,
        reason=reason,
        option=option,
    )


def _near_misses(misses: Sequence[NearMiss], commands: Sequence[str]) -> Iterator[Choice]:
    options = commands or [miss.option for miss in misses]
    for miss, option in zip(misses, options, strict=True):
        yield _choice(miss.candidate, reason=miss.message, option=option)


def _float(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)
