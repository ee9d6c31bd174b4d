"""The planner's answer, found the slow way: every offer, every shard count, every scheme, each judged on its own.

Written from the rules of the design and of the engine, not from the planner: only constants (sizes of fixed parts,
steps of a ladder) and the physics of predicted speed are shared. Nothing is clever here, so that it can be believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from tgi_deploy.planner import performance
from tgi_deploy.values.engine import Load, MemoryBudget, Scheduling, Scheme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.tgi.release import ModelClass, QuantizationRule, TgiRelease
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.model import ModelSpec, Profile
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer, Supply

GIB = 2**30
SHARD_COUNTS = (1, 2, 4, 8, 16)
PREFILL_LADDER = (4096, 2048, 1024, 512)
SYSTEM_GIB = 80  # the machine image with its tools, and room for logs
KERNEL_BLOCKS_ARE_CHUNKED = ("flashinfer", "flashdecoding")


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to serve the weights: `bits` a linear weight takes, group scales included."""

    name: str
    hub_id: str
    bits: float
    lost_bits: float
    group: int
    published: bool
    rule: QuantizationRule | None
    loads: bool

    def changes_type(self, model: ModelSpec) -> bool:
        return self.rule is not None and self.rule.forces_dtype not in {None, model.torch_dtype}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is true of an instance type with this many shards of this way, whatever it costs."""

    instance_type: str
    num_shard: int
    way: Way
    codes: frozenset[str]
    output_tokens_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A configuration that works, on one offer; `total` is None where the price is not known."""

    instance_type: str
    region: str
    market: str
    num_shard: int
    quantize: str
    hub_id: str
    total: Decimal | None
    needs_block: bool
    lost_bits: float
    changes_type: bool
    output_tokens_per_s: float

    @property
    def identity(self) -> tuple[object, ...]:
        return (
            self.instance_type, self.region, self.market, self.num_shard, self.quantize, self.hub_id, self.total
        )  # fmt: skip


def ways(profile: Profile, release: TgiRelease) -> Iterator[Way]:
    own = profile.model.quantization
    if own is not None:
        method = "fp8" if own.method == "fbgemm_fp8" else own.method
        rule = release.quantizations.get(method)
        bits = _with_scales(rule, own.bits, own.group_size)
        yield Way(
            name=method, hub_id=profile.model.hub_id, bits=bits, lost_bits=0, group=own.group_size or 0,
            published=True, rule=rule, loads=rule is not None and rule.prequantized,
        )  # fmt: skip
        return
    yield Way(
        name="none", hub_id=profile.model.hub_id, bits=16, lost_bits=0, group=0, published=False, rule=None, loads=True
    )
    yield from _published(profile, release)
    named = {repository.method for repository in profile.quantized}
    for method, rule in release.quantizations.items():
        if method not in named and rule.on_the_fly:
            yield Way(
                name=method, hub_id=profile.model.hub_id, bits=rule.bits, lost_bits=16 - math.floor(rule.bits), group=0,
                published=False, rule=rule, loads=True,
            )  # fmt: skip


def _published(profile: Profile, release: TgiRelease) -> Iterator[Way]:
    for repository in profile.quantized:
        rule = release.quantizations.get(repository.method)
        if rule is not None and rule.prequantized:
            bits = _with_scales(rule, repository.bits, repository.group_size)
            yield Way(
                name=repository.method, hub_id=repository.hub_id, bits=bits, lost_bits=16 - math.floor(repository.bits),
                group=repository.group_size or 0, published=True, rule=rule, loads=True,
            )  # fmt: skip


def _with_scales(rule: QuantizationRule | None, bits: float, group: int | None) -> float:
    if rule is None or not group or group < 0:
        return float(bits)
    return bits + rule.group_overhead_bits / group


def verdicts(request: Request, supply: Supply) -> Iterator[Verdict]:
    """Every instance type on offer x shard counts it has accelerators for x ways to serve."""
    release = supply.release
    types = {offer.instance_type.name: offer.instance_type for offer in supply.offers}
    all_ways = tuple(ways(request.model, release))
    for name in sorted(types):
        for num_shard in SHARD_COUNTS:
            if num_shard <= types[name].accelerator_count:
                for way in all_ways:
                    yield judge(request, supply, types[name], num_shard, way)


def judge(request: Request, supply: Supply, hardware: InstanceType, num_shard: int, way: Way) -> Verdict:
    release, model = supply.release, request.model.model
    served = release.model_classes.get(model.model_type)
    codes = {
        *_hardware_codes(release, hardware, num_shard),
        *_turing_codes(request, release, hardware),
        *_model_codes(served, num_shard),
        *_split_codes(model, num_shard, way),
        *_quantization_codes(model, served, hardware, num_shard, way),
    }
    memory_code = _memory_code(request, release, hardware, num_shard, way)
    speed = 0.0
    if memory_code:
        codes.add(memory_code)
    else:
        speed = _tokens_per_s(request, supply, hardware, num_shard, way)
    return Verdict(
        instance_type=hardware.name, num_shard=num_shard, way=way, codes=frozenset(codes), output_tokens_per_s=speed
    )


def _hardware_codes(release: TgiRelease, hardware: InstanceType, num_shard: int) -> Iterator[str]:
    chip = hardware.accelerator
    if chip.vendor != "nvidia":
        yield "vendor_unsupported"
    else:
        rules = [r for r in release.architectures if r.minimum <= (chip.compute_capability or (0, 0)) <= r.maximum]
        if not rules:
            yield "no rule for this compute capability"
        elif rules[0].verdict != "ok":
            yield rules[0].code
    if hardware.cpu_arch not in release.cpu_archs:
        yield "host_architecture"
    if hardware.partition < 1 and (hardware.driver or num_shard > 1):
        yield "accelerator_fraction"


def _turing_codes(request: Request, release: TgiRelease, hardware: InstanceType) -> Iterator[str]:
    """Its kernels know no sliding window, which matters once a prompt is longer than the window."""
    capability, window = hardware.accelerator.compute_capability, request.model.model.sliding_window
    can = any(r.verdict == "override" and r.minimum <= (7, 5) <= r.maximum for r in release.architectures)
    if can and capability == (7, 5) and window is not None and request.context_tokens - 1 > window:
        yield "arch_sliding_window"


def _model_codes(served: ModelClass | None, num_shard: int) -> Iterator[str]:
    if served is None or served.backend == "refused":
        yield "model_type_unsupported"
    if served is not None and num_shard > 1 and not served.shardable:
        yield "model_not_shardable"


def _split_codes(model: ModelSpec, num_shard: int, way: Way) -> Iterator[str]:
    """Heads and every split dimension must divide; with group scales each shard must hold whole groups."""
    if num_shard == 1:
        return
    parts = [model.attention_heads]
    if not (model.kv_heads == 1 and model.model_type in {"gpt_bigcode", "santacoder"}):
        parts.append(model.kv_heads)
    inputs_of_row_split_layers = [model.attention_heads * model.head_dim]
    if model.intermediate_size:
        parts.append(model.intermediate_size)
        inputs_of_row_split_layers.append(model.intermediate_size)
    if model.experts:
        parts.append(model.expert_intermediate_size)
        inputs_of_row_split_layers.append(model.expert_intermediate_size)
    whole = all(part % num_shard == 0 for part in parts)
    grouped = way.group <= 0 or all(size % (num_shard * way.group) == 0 for size in inputs_of_row_split_layers)
    if not (whole and grouped):
        yield "not_divisible"


def _quantization_codes(
    model: ModelSpec, served: ModelClass | None, hardware: InstanceType, num_shard: int, way: Way
) -> Iterator[str]:
    if not way.loads:
        yield "quantization_unavailable"
    if way.rule is None:
        return
    capability = hardware.accelerator.compute_capability
    if capability is not None and capability < way.rule.min_compute_capability:
        yield "quantization_capability"
    if num_shard > 1 and not way.rule.shardable:
        yield "quantization_not_shardable"
    if served is None:
        return
    if served.backend == "transformers" and not way.rule.transformers_backend:
        yield "quantization_no_effect"
    elif model.experts and not way.rule.fused_moe:
        yield "quantization_moe"
    elif model.quantization is not None and model.quantization.block_scaled:
        yield "quantization_block_scaled"


def attention_kernels(model: ModelSpec, served: ModelClass | None, release: TgiRelease, chip_rule_env: str) -> str:
    if served is None or not served.flash:
        return "padded"
    if chip_rule_env:
        return chip_rule_env
    if not release.default_attention:
        return "paged"
    usual = model.head_dim in release.flash_head_dims and not served.paged_only
    return release.default_attention if usual else "flashdecoding"


def _memory_code(request: Request, release: TgiRelease, hardware: InstanceType, num_shard: int, way: Way) -> str | None:
    """None where some batch of prompts leaves room for the promised tokens; else which part is too big."""
    model = request.model.model
    served = release.model_classes.get(model.model_type)
    capability = hardware.accelerator.compute_capability
    rule = next((r for r in release.architectures if capability and r.minimum <= capability <= r.maximum), None)
    kernels = "paged" if rule is None or served is None else attention_kernels(
        model, served, release, rule.env.get("ATTENTION", "")
    )  # fmt: skip
    block = release.block_tokens.get(kernels, 1)
    chunked = bool(
        served and release.chunked_prefill and served.prefill_chunking and kernels in KERNEL_BLOCKS_ARE_CHUNKED
    )
    kv_heads = model.kv_heads if served and served.replicated_kv else max(1, model.kv_heads // num_shard)
    per_token = model.layers * 2 * kv_heads * model.head_dim * 2
    each = math.ceil((request.input_tokens + request.output_tokens) / block) * block
    left = 0
    for prefill in _prompt_batches(request.context_tokens, chunked=chunked):
        left = (
            int(hardware.memory_bytes_per_accelerator * release.memory_share)
            - _weights(model, way, num_shard)
            - _activations(request, release, num_shard, prefill)
            - _fixed(request, release, num_shard, way)
        )
        tokens = max(0, left) // (per_token * block) * block
        if tokens >= max(request.context_tokens, request.concurrency * each, prefill):
            return None
    return "memory_weights" if left <= 0 else "memory_kv_cache"


def _prompt_batches(context: int, *, chunked: bool) -> tuple[int, ...]:
    """Without chunking the longest prompt must go through at once."""
    if not chunked:
        return (context - 1,)
    return tuple(size for size in PREFILL_LADDER if size < context) or (context,)


def _weights(model: ModelSpec, way: Way, num_shard: int) -> int:
    """What one rank holds: its part of the linear layers, its rows of the tables, and 16-bit norms and router whole.

    The head only splits where the vocabulary does; key and value projections of a single head are on every rank.
    """
    one_table = model.vocab_size * model.hidden_size
    norms_and_router = (2 * model.layers + 1) * model.hidden_size + model.layers * model.experts * model.hidden_size
    sixteen_bit = model.vision_parameters + norms_and_router
    linear = model.parameters - sixteen_bit - one_table - (0 if model.tied_embeddings else one_table)
    linear_bytes = linear * way.bits / 8
    if model.quantization is not None and model.quantized_bytes:
        linear_bytes = model.quantized_bytes + 2 * max(0, linear - model.quantized_parameters)
    on_a_rank = int(linear_bytes / num_shard)
    if model.kv_heads < num_shard:
        one_head = 2 * model.layers * model.hidden_size * model.head_dim
        shared_already = model.kv_heads / num_shard
        on_a_rank += int(one_head * (1 - shared_already) * linear_bytes / linear)
    embedding_rows = math.ceil(model.vocab_size / num_shard)
    head_rows = model.vocab_size if model.vocab_size % num_shard else model.vocab_size // num_shard
    return on_a_rank + 2 * (sixteen_bit + model.hidden_size * (embedding_rows + head_rows))


def _activations(request: Request, release: TgiRelease, num_shard: int, prefill: int) -> int:
    """The worst moment: one layer at work on a batch of prompts, sampling, or, if scored, that batch's logits.

    Prompts are scored unless the release has a switch for it that is off.
    """
    model = request.model.model
    widest = model.intermediate_size
    if model.experts:
        widest = max(widest, model.experts_per_token * model.expert_intermediate_size)
    moments = [
        prefill * 2 * 2 * (6 * model.hidden_size + 3 * widest // num_shard),
        request.concurrency * model.vocab_size * 8,
    ]
    if "--enable-prefill-logprobs" not in release.flags:
        moments.append(prefill * (model.vocab_size * 2 + model.vocab_size * 4 + model.hidden_size * 2 * 2))
    return max(moments)


def _fixed(request: Request, release: TgiRelease, num_shard: int, way: Way) -> int:
    """Driver and context, the kernels' workspace, CUDA graphs, and NCCL's buffers where ranks talk."""
    mib = 2**20
    graphs = len([batch for batch in (1, 2, 4, 8, 16, 32, 64, 128) if batch <= max(32, request.concurrency)])
    if way.rule is not None and not way.rule.cuda_graphs:
        graphs = 0
    talking = 0 if num_shard == 1 else 512 * mib + 64 * mib * (num_shard - 2)
    return 870 * mib + release.workspace_bytes + graphs * request.model.model.layers * (12 * mib // 10) + talking


def _tokens_per_s(request: Request, supply: Supply, hardware: InstanceType, num_shard: int, way: Way) -> float:
    plenty = MemoryBudget(
        total_bytes=0, reserved_bytes=0, weights_bytes=0, activation_bytes=0, overhead_bytes=0, kv_cache_bytes=0,
        kv_bytes_per_token=0, kv_capacity_tokens=10**12, required_kv_tokens=0,
    )  # fmt: skip
    scheme = Scheme(
        name=way.name, hub_id="", bits=way.bits, lost_bits=way.lost_bits, prequantized=way.published,
        method=way.rule.method if way.rule else None, cuda_graphs=way.rule is None or way.rule.cuda_graphs,
        native_fp8=way.rule.native_fp8_compute if way.rule else None,
    )  # fmt: skip
    load = Load(
        input_tokens=request.input_tokens, output_tokens=request.output_tokens, concurrency=request.concurrency,
        context_tokens=request.context_tokens,
    )  # fmt: skip
    scheduling = Scheduling(profile="tgi", cuda_graphs=way.rule is None or way.rule.cuda_graphs)
    predicted = performance.predict(
        request.model.model, scheme, hardware.accelerator, plenty, load, num_shard=num_shard,
        interconnect=hardware.interconnect, constants=supply.speed, scheduling=scheduling,
    )  # fmt: skip
    return predicted.output_tokens_per_s


def choices(request: Request, supply: Supply, judged: tuple[Verdict, ...]) -> Iterator[Choice]:
    """Every offer on which something works, priced, in no order and under no budget."""
    works: dict[str, list[Verdict]] = {}
    for verdict in judged:
        if not verdict.codes:
            works.setdefault(verdict.instance_type, []).append(verdict)
    for offer in supply.offers:
        for verdict in works.get(offer.instance_type.name, ()):
            yield Choice(
                instance_type=offer.instance_type.name, region=offer.region, market=offer.market,
                num_shard=verdict.num_shard, quantize=verdict.way.name, hub_id=verdict.way.hub_id,
                total=total_usd_per_hour(request, supply, offer, verdict.way), needs_block=sold_in_blocks(offer),
                lost_bits=verdict.way.lost_bits, changes_type=verdict.way.changes_type(request.model.model),
                output_tokens_per_s=verdict.output_tokens_per_s,
            )  # fmt: skip


def sold_in_blocks(offer: Offer) -> bool:
    """Whether its hours must be paid for in advance: nothing an hourly budget can buy."""
    return offer.market == "on-demand" and offer.instance_type.capacity_block_only


def total_usd_per_hour(request: Request, supply: Supply, offer: Offer, way: Way) -> Decimal | None:
    """Instance, root volume and public address; None where the instance's price is not known."""
    if offer.usd_per_hour is None or sold_in_blocks(offer):
        return None
    extras = supply.extra_prices[offer.region]
    stored = downloaded_bytes(request.model.model, way)
    on_root = 0 if offer.instance_type.nvme_bytes * 10 >= stored * 11 else stored * 11 // 10
    gib = SYSTEM_GIB + math.ceil((supply.release.image_bytes + on_root) / GIB)
    volume = (gib * extras.gp3_usd_per_gib_month / 730).quantize(Decimal("0.0001"), ROUND_HALF_UP)
    return offer.usd_per_hour + volume + extras.public_ipv4_usd_per_hour


def downloaded_bytes(model: ModelSpec, way: Way) -> int:
    """The checkpoint as the hub has it: the model's own, or the published quantized copy."""
    own = way.hub_id == model.hub_id
    if own and model.stored_bytes:
        return model.stored_bytes
    if not way.published:
        return model.parameters * (4 if model.torch_dtype == "float32" else 2)
    sixteen_bit = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2) + model.vision_parameters
    sixteen_bit += (2 * model.layers + 1) * model.hidden_size + model.layers * model.experts * model.hidden_size
    linear = model.parameters - sixteen_bit
    if own and model.quantized_bytes:
        return model.quantized_bytes + 2 * max(0, linear - model.quantized_parameters) + 2 * sixteen_bit
    return int(linear * way.bits / 8) + 2 * sixteen_bit


def best(found: tuple[Choice, ...], prefer: str, budget: Decimal | None) -> Choice | None:
    affordable = [c for c in found if c.total is not None and (budget is None or c.total <= budget)]
    return min(affordable, key=lambda choice: _order(choice, prefer), default=None)


def _order(choice: Choice, prefer: str) -> tuple[object, ...]:
    if choice.total is None:
        raise AssertionError("an unknown price is never free")
    dearness, slowness = choice.total, -choice.output_tokens_per_s
    method = (choice.changes_type, choice.quantize)
    names = (choice.instance_type, f"{choice.num_shard:03}", method, choice.region, choice.market)
    return {
        "quality": (choice.lost_bits, dearness, slowness, names),
        "cost": (dearness, choice.lost_bits, slowness, names),
        "speed": (slowness, dearness, choice.lost_bits, names),
        "value": (float(dearness) / choice.output_tokens_per_s, choice.lost_bits, dearness, names),
    }[prefer]
