"""Plans as plain data: what `--json` prints and records keep. Keys are a contract (tests pin them)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tgi_deploy.planner.breakeven import breakevens
from tgi_deploy.planner.cost import usd_per_month
from tgi_deploy.planner.time_to_ready import to_go_through

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.breakeven import Breakeven
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.plan import (
        Candidate,
        Cost,
        NearMiss,
        NoFeasiblePlan,
        Performance,
        Plan,
        Rejection,
        Span,
        UsdSpan,
    )
    from tgi_deploy.values.request import Request


def as_recorded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as it reads back from a file: prices are numbers there, exact ones stand in the record itself."""
    plain: dict[str, Any] = json.loads(json.dumps(document, default=float))
    return plain


def plan_document(plan: Plan) -> dict[str, Any]:
    """`data.plan` of the JSON contract. Money stays `Decimal`; the printer turns it into a number."""
    chosen = plan.chosen
    return {
        "model": _model(plan.request, chosen),
        "requirements": request_document(plan.request),
        "chosen": choice_document(chosen),
        "cost": cost_document(chosen.cost),
        "memory": memory_document(chosen.memory, chosen.engine.settings.default_prefill_tokens),
        "performance": performance_document(chosen.performance),
        "storage": {
            "root_volume_gib": chosen.storage.root_volume_gib,
            "weights_on_nvme": chosen.storage.weights_on_nvme,
            "weights_bytes": chosen.storage.weights_bytes,
            "image_bytes": chosen.storage.image_bytes,
        },
        "time_to_ready": [
            {
                "phase": phase.phase,
                "expected_s": round(phase.expected_s),
                "deadline_s": round(phase.deadline_s),
                "stall_s": round(phase.stall_s),
            }
            for phase in to_go_through(chosen)
        ],
        "engine": engine_document(chosen),
        "fallbacks": [choice_document(candidate) for candidate in plan.fallbacks],
        "breakeven": [breakeven_document(item) for item in breakevens(plan)],
        "rejections": [rejection_document(rejection) for rejection in plan.rejections],
        "considered": plan.considered,
        "assumptions": list(plan.assumptions),
        "notices": list(plan.notices),
        "catalogue_date": plan.catalogue_date,
    }


def no_plan_document(made: NoFeasiblePlan) -> dict[str, Any]:
    """`data` of the JSON contract where nothing fits."""
    return {
        "requirements": request_document(made.request),
        "near_misses": [_near_miss(miss) for miss in made.near_misses],
        "rejections": [rejection_document(rejection) for rejection in made.rejections],
        "considered": made.considered,
        "catalogue_date": made.catalogue_date,
    }


def _model(request: Request, chosen: Candidate) -> dict[str, Any]:
    model = request.model.model
    return {
        "id": model.hub_id,
        "profile": request.model.name,
        "served_id": chosen.engine.settings.model_id,
        "params": model.parameters,
        "weights_bytes": chosen.storage.weights_bytes,
        "model_type": model.model_type,
        "dtype": model.torch_dtype,
        "max_position_embeddings": model.max_position_embeddings,
        "gated": model.gated,
        "license": model.license,
        "notice": request.model.notice,
    }


def request_document(request: Request) -> dict[str, Any]:
    return {
        "model": request.model.name,
        "engine_version": request.engine_version,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "concurrency": request.concurrency,
        "context_tokens": request.context_tokens,
        "budget_usd_per_hour": request.budget_usd_per_hour,
        "prefer": request.prefer,
        "quantize": request.quantize,
        "num_shard": request.num_shard,
        "instance_type": request.instance_type,
        "hardware": request.hardware,
        "regions": list(request.regions),
        "markets": list(request.markets),
        "ttft_ms": request.ttft_ms,
        "tpot_ms": request.tpot_ms,
        "min_tokens_per_s": request.min_tokens_per_s,
        "utilisation": request.utilisation,
        "allow_turing": request.allow_turing,
        "flags": dict(request.flags),
        "env": dict(request.env),
        "disk_gib": request.disk_gib,
        "port": request.port,
    }


def choice_document(candidate: Candidate) -> dict[str, Any]:
    """`chosen` and each of `fallbacks`: `usd_per_hour` is the machine's own price."""
    offer = candidate.offer
    return {
        "instance_type": offer.instance_type.name,
        "region": offer.region,
        "market": offer.market,
        "accelerator": offer.instance_type.accelerator.name,
        "accelerator_count": offer.instance_type.accelerator_count,
        "num_shard": candidate.num_shard,
        "quantize": candidate.quantize,
        "dtype": candidate.dtype,
        "usd_per_hour": offer.usd_per_hour,
        "total_usd_per_hour": candidate.cost.usd_per_hour,
    }


def cost_document(cost: Cost) -> dict[str, Any]:
    return {
        "usd_per_hour": cost.usd_per_hour,
        "usd_per_month": usd_per_month(cost.usd_per_hour) if cost.usd_per_hour else None,
        "lines": [{"item": line.item, "usd_per_hour": line.usd_per_hour} for line in cost.lines],
    }


def memory_document(memory: MemoryBudget, default_prefill_tokens: int | None = None) -> dict[str, Any]:
    """`default_prefill_tokens`: the prefill batch that the engine of a plan would have chosen by itself."""
    return {
        "per_accelerator": {
            "total_bytes": memory.total_bytes,
            "weights_bytes": memory.weights_bytes,
            "kv_cache_bytes": memory.kv_cache_bytes,
            "activation_bytes": memory.activation_bytes,
            "overhead_bytes": memory.overhead_bytes,
            "reserved_bytes": memory.reserved_bytes,
        },
        "overhead": {
            "context_bytes": memory.context_bytes,
            "workspace_bytes": memory.workspace_bytes,
            "cuda_graphs_bytes": memory.graph_bytes,
            "collectives_bytes": memory.collective_bytes,
        },
        "load_peak_bytes": memory.load_peak_bytes,
        "margin_bytes": memory.margin_bytes,
        "largest_context_tokens": memory.largest_context_tokens,
        "largest_concurrency": memory.largest_concurrency,
        "launcher_prefill_tokens": default_prefill_tokens,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "kv_capacity_tokens": memory.kv_capacity_tokens,
        "required_kv_tokens": memory.required_kv_tokens,
    }


def performance_document(performance: Performance) -> dict[str, Any]:
    return {
        "ttft_ms": round(performance.ttft_ms, 1),
        "tpot_ms": round(performance.tpot_ms, 2),
        "output_tokens_per_s": round(performance.output_tokens_per_s, 1),
        "usd_per_million_output_tokens": performance.usd_per_million_output_tokens,
        **_ends("ttft_ms", performance.ttft_ms_span, 1),
        **_ends("tpot_ms", performance.tpot_ms_span, 2),
        **_ends("output_tokens_per_s", performance.output_tokens_per_s_span, 1),
        **_ends("usd_per_million_output_tokens", performance.usd_per_million_output_tokens_span, 4),
        "usd_per_million_blended_tokens": performance.usd_per_million_blended_tokens,
        "utilisation": performance.utilisation,
    }


def _ends(name: str, span: Span | UsdSpan | None, digits: int) -> dict[str, Any]:
    """The 80 % interval of a figure, as two keys beside it."""
    low, high = (round(span.low, digits), round(span.high, digits)) if span else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def breakeven_document(item: Breakeven) -> dict[str, Any]:
    """One of `breakeven`: from which `utilisation` the dearer of the two costs less per token than the other."""
    choice, speed = item.fallback, item.fallback.performance
    return {
        "instance_type": choice.offer.instance_type.name,
        "region": choice.offer.region,
        "market": choice.offer.market,
        "num_shard": choice.num_shard,
        "quantize": choice.quantize,
        "usd_per_million_output_tokens": speed.usd_per_million_output_tokens,
        "dearer": item.dearer,
        "utilisation": None if item.utilisation is None else round(item.utilisation, 4),
    }


def engine_document(candidate: Candidate) -> dict[str, Any]:
    engine, container = candidate.engine, candidate.engine.container
    return {
        "name": engine.name,
        "version": engine.version,
        "image": container.image.reference,
        "args": list(container.args),
        "env": dict(container.env),
        "gpus": container.accelerators,
        "shm_bytes": container.shm_bytes,
        "port": engine.port,
        "max_input_tokens": engine.settings.max_input_tokens,
        "max_total_tokens": engine.settings.max_total_tokens,
    }


def rejection_document(rejection: Rejection) -> dict[str, Any]:
    numbers: Mapping[str, Any] = rejection.numbers
    return {
        **numbers,
        "instance_type": rejection.instance_type,
        "num_shard": rejection.num_shard,
        "quantize": rejection.quantize,
        "code": rejection.code,
        "message": rejection.message,
        "codes": list(rejection.codes),
        "region": rejection.region,
        "market": rejection.market,
        "usd_per_hour": rejection.usd_per_hour,
        "offers": rejection.offers,
    }


def _near_miss(miss: NearMiss) -> dict[str, Any]:
    return {
        "code": miss.code,
        "message": miss.message,
        "option": miss.option,
        "chosen": choice_document(miss.candidate),
    }
