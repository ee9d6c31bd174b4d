"""Converts plans to the documents in `--json`, records and lock files."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from tgi_deploy.planner.breakeven import breakevens
from tgi_deploy.planner.cost import served_usd_per_hour
from tgi_deploy.planner.performance import usd_per_million
from tgi_deploy.planner.time_to_ready import phases_of_start
from tgi_deploy.values.base import json_number, replaced
from tgi_deploy.values.plan_document import (
    AcceleratorMemory,
    Choice,
    MemoryOverhead,
    NearMissData,
    PlanDocument,
    PlannedBreakeven,
    PlannedCost,
    PlannedCredits,
    PlannedEngine,
    PlannedInterruptions,
    PlannedLimit,
    PlannedMemory,
    PlannedModel,
    PlannedPhase,
    PlannedServiceLevel,
    PlannedSpeed,
)
from tgi_deploy.values.supply import usd_per_month

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.breakeven import Breakeven
    from tgi_deploy.planner.time_to_ready import PhaseEstimate
    from tgi_deploy.values.base import Fact
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.plan import Candidate, Cost, NearMiss, NoFeasiblePlan, Performance, Plan, Rejection
    from tgi_deploy.values.supply import Credits


def plan_to_record(plan: Plan, candidate: Candidate) -> PlanDocument:
    """Return the plan for a record, with `candidate` as its choice.

    Rejections are omitted: they are by far the largest part, every step would rewrite them, and nothing reads them
    later.
    """
    return plan_document(replaced(plan, chosen=candidate, rejections=()))


def plan_document(plan: Plan) -> PlanDocument:
    """Return `data.plan` of the JSON output. Money stays `Decimal`; the printer turns it into a number."""
    chosen = plan.chosen
    return PlanDocument(
        model=_model(plan),
        requirements=plan.request.document,
        chosen=choice(chosen),
        cost=cost(chosen.cost, chosen.offer.credits),
        memory=memory(chosen.memory, chosen.engine.settings.default_prefill_tokens),
        performance=speed(chosen.performance),
        storage=chosen.storage,
        time_to_ready=tuple(_phase(item) for item in phases_of_start(chosen)),
        engine=_engine(chosen),
        quality_class=chosen.quality,
        slo=_service_level(plan),
        frontier=plan.frontier,
        alternatives=tuple(choice(candidate) for candidate in plan.alternatives),
        fallbacks=tuple(choice(candidate) for candidate in plan.fallbacks),
        interruptions=interruptions(plan.chosen),
        breakeven=tuple(_breakeven(item) for item in breakevens(plan)),
        rejections=tuple(_rejection(item) for item in plan.rejections),
        considered=plan.considered,
        assumptions=plan.assumptions,
        notices=plan.notices,
        catalog_date=plan.catalog_date,
    )


def no_plan_document(made: NoFeasiblePlan) -> dict[str, Any]:
    """Return `data` of the JSON output if no plan is feasible."""
    return {
        "requirements": made.request.document,
        "near_misses": [_near_miss(miss) for miss in made.near_misses],
        "rejections": [_rejection(item) for item in made.rejections],
        "considered": made.considered,
        "catalog_date": made.catalog_date,
    }


def _model(plan: Plan) -> PlannedModel:
    profile, chosen = plan.request.model, plan.chosen
    return PlannedModel(
        id=profile.model.hub_id,
        profile=profile.name,
        served_id=chosen.engine.settings.model_id,
        params=profile.model.parameters,
        weights_bytes=chosen.storage.weights_bytes,
        model_type=profile.model.model_type,
        dtype=profile.model.torch_dtype,
        max_position_embeddings=profile.model.max_position_embeddings,
        gated=profile.model.gated,
        license=profile.model.license,
        notice=profile.notice,
    )


def choice(candidate: Candidate) -> Choice:
    offer = candidate.offer
    return Choice(
        instance_type=offer.instance_type.name,
        region=offer.region,
        market=offer.market,
        accelerator=offer.instance_type.accelerator.name,
        accelerator_count=offer.instance_type.accelerator_count,
        num_shard=candidate.num_shard,
        quantize=candidate.quantize,
        dtype=candidate.dtype,
        usd_per_hour=offer.usd_per_hour,
        total_usd_per_hour=candidate.cost.usd_per_hour,
        quality_class=candidate.quality,
        replicas=candidate.replicas,
        machines=candidate.machines,
        engine=candidate.engine.name,
        output_tokens_per_s=candidate.performance.output_tokens_per_s,
        price_date=offer.price_date,
        estimated=offer.estimated,
        streaming_only=candidate.streaming_only,
    )


def _service_level(plan: Plan) -> PlannedServiceLevel:
    outcomes = plan.chosen.outcomes
    return PlannedServiceLevel(
        met=all(item.met for item in outcomes),
        chance=round(min((item.chance for item in outcomes), default=1.0), 3),
        confidence=plan.request.confidence,
        limits=tuple(
            PlannedLimit(
                metric=item.limit.metric, limit=item.limit.value, default=item.limit.default,
                predicted=round(item.predicted, 2), chance=round(item.chance, 3), met=item.met,
            )
            for item in outcomes
        ),
        one_replica=plan.replica_load,
        spare_usd_per_hour=plan.spare_usd_per_hour,
        cheaper=plan.cheaper,
        safer=plan.safer,
    )  # fmt: skip


def cost(bill: Cost, given: Credits | None = None) -> PlannedCost:
    total = bill.usd_per_hour
    return PlannedCost(
        usd_per_hour=total,
        usd_per_month=usd_per_month(total) if total else None,
        lines=bill.lines,
        credits=credits_on(total, given),
    )


def credits_on(usd_per_hour: Decimal, given: Credits | None) -> PlannedCredits | None:
    """Return how long credits cover this hourly cost; None without credits, or if the cost is zero."""
    if given is None or not usd_per_hour:
        return None
    return PlannedCredits(
        usd=given.usd,
        until=given.until,
        covers_hours=(given.usd / usd_per_hour).quantize(Decimal(1), ROUND_FLOOR),
        first_month_usd=max(Decimal(0), usd_per_month(usd_per_hour) - given.usd),
        source=given.source,
    )


def memory(budget: MemoryBudget, default_prefill_tokens: int | None = None) -> PlannedMemory:
    """Return the memory document. `default_prefill_tokens` is the prefill batch that the engine would choose."""
    return PlannedMemory(
        per_accelerator=AcceleratorMemory(
            total_bytes=budget.total_bytes,
            weights_bytes=budget.weights_bytes,
            kv_cache_bytes=budget.kv_cache_bytes,
            activation_bytes=budget.activation_bytes,
            overhead_bytes=budget.overhead_bytes,
            reserved_bytes=budget.reserved_bytes,
        ),
        overhead=MemoryOverhead(
            context_bytes=budget.context_bytes,
            workspace_bytes=budget.workspace_bytes,
            cuda_graphs_bytes=budget.graph_bytes,
            collectives_bytes=budget.collective_bytes,
        ),
        load_peak_bytes=budget.load_peak_bytes,
        margin_bytes=budget.margin_bytes,
        uncertainty_bytes=budget.uncertainty_bytes,
        largest_context_tokens=budget.largest_context_tokens,
        largest_concurrency=budget.largest_concurrency,
        launcher_prefill_tokens=default_prefill_tokens,
        kv_bytes_per_token=budget.kv_bytes_per_token,
        kv_capacity_tokens=budget.kv_capacity_tokens,
        required_kv_tokens=budget.required_kv_tokens,
    )


def speed(performance: Performance) -> PlannedSpeed:
    ttft, tpot, rate = performance.ttft_ms_span, performance.tpot_ms_span, performance.output_tokens_per_s_span
    price = performance.usd_per_million_output_tokens_span
    return PlannedSpeed(
        ttft_ms=round(performance.ttft_ms, 1),
        tpot_ms=round(performance.tpot_ms, 2),
        output_tokens_per_s=round(performance.output_tokens_per_s, 1),
        usd_per_million_output_tokens=performance.usd_per_million_output_tokens,
        ttft_ms_low=round(ttft.low, 1) if ttft else None,
        ttft_ms_high=round(ttft.high, 1) if ttft else None,
        tpot_ms_low=round(tpot.low, 2) if tpot else None,
        tpot_ms_high=round(tpot.high, 2) if tpot else None,
        output_tokens_per_s_low=round(rate.low, 1) if rate else None,
        output_tokens_per_s_high=round(rate.high, 1) if rate else None,
        usd_per_million_output_tokens_low=round(price.low, 4) if price else None,
        usd_per_million_output_tokens_high=round(price.high, 4) if price else None,
        usd_per_million_blended_tokens=performance.usd_per_million_blended_tokens,
        utilization=performance.utilization,
        ttft_ms_p95=None if performance.ttft_ms_p95 is None else round(performance.ttft_ms_p95, 1),
        tpot_ms_p95=None if performance.tpot_ms_p95 is None else round(performance.tpot_ms_p95, 2),
    )


def _phase(item: PhaseEstimate) -> PlannedPhase:
    return PlannedPhase(
        phase=item.phase,
        expected_s=round(item.expected_s),
        deadline_s=round(item.deadline_s),
        stall_s=round(item.stall_s),
    )


def interruptions(candidate: Candidate) -> PlannedInterruptions | None:
    """Return the price including interruptions; None for machines that are never reclaimed."""
    known = candidate.offer.interruptions
    if known is None:
        return None
    seconds = sum(item.expected_s for item in phases_of_start(candidate))
    low, likely, high = (
        served_usd_per_hour(candidate.cost.usd_per_hour, times, seconds)
        for times in (known.low_per_month, known.per_month, known.high_per_month)
    )
    rate, share = candidate.performance.output_tokens_per_s, candidate.performance.utilization
    return PlannedInterruptions(
        band=known.band, per_month=known.per_month, per_month_low=known.low_per_month,
        per_month_high=known.high_per_month, restart_s=round(seconds), served_usd_per_hour=likely,
        served_usd_per_hour_low=low, served_usd_per_hour_high=high,
        usd_per_million_output_tokens=usd_per_million(likely, rate, share), source=known.source, date=known.date,
    )  # fmt: skip


def _breakeven(item: Breakeven) -> PlannedBreakeven:
    other = item.fallback
    return PlannedBreakeven(
        instance_type=other.offer.instance_type.name,
        region=other.offer.region,
        market=other.offer.market,
        num_shard=other.num_shard,
        quantize=other.quantize,
        usd_per_million_output_tokens=other.performance.usd_per_million_output_tokens,
        more_expensive=item.more_expensive,
        utilization=None if item.utilization is None else round(item.utilization, 4),
    )


def _engine(candidate: Candidate) -> PlannedEngine:
    engine, container = candidate.engine, candidate.engine.container
    return PlannedEngine(
        name=engine.name,
        version=engine.version,
        image=container.image.reference,
        args=container.args,
        env=dict(container.env),
        gpus=container.accelerators,
        shm_bytes=container.shm_bytes,
        port=engine.port,
        max_input_tokens=engine.settings.max_input_tokens,
        max_total_tokens=engine.settings.max_total_tokens,
    )


def _rejection(rejection: Rejection) -> Mapping[str, Fact]:
    numbers = {name: json_number(at) if isinstance(at, Decimal) else at for name, at in rejection.numbers.items()}
    return {
        **numbers,
        "instance_type": rejection.instance_type,
        "num_shard": rejection.num_shard,
        "quantize": rejection.quantize,
        "replicas": rejection.replicas,
        "code": rejection.code,
        "message": rejection.message,
        "codes": rejection.codes,
        "region": rejection.region,
        "market": rejection.market,
        "usd_per_hour": None if rejection.usd_per_hour is None else json_number(rejection.usd_per_hour),
        "offers": rejection.offers,
    }


def _near_miss(miss: NearMiss) -> NearMissData:
    return NearMissData(code=miss.code, message=miss.message, option=miss.option, chosen=choice(miss.candidate))
