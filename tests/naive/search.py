"""The planner's answer by brute force: every offer, shard count, scheme and number of replicas.

Written from the rules of the design and of the engine, not from the planner: only constants (sizes of fixed parts,
steps) and the model of predicted speed are shared. It is deliberately simple, so that it is easy to verify.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from statistics import NormalDist
from typing import TYPE_CHECKING

from naive import hosting

from tgi_deploy.planner import performance
from tgi_deploy.planner.speed_load import Traffic
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import Scheduling, Scheme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.tgi.release import ModelClass, QuantizationRule, TgiRelease
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.model import ModelSpec, Profile
    from tgi_deploy.values.plan import Performance, Span
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer, Supply

GIB = 2**30
SHARD_COUNTS = (1, 2, 4, 8, 16)
PREFILL_LADDER = (4096, 2048, 1024, 512)
WAITING_STEPS = 20  # how long prompts that can't be chunked are delayed, so that more of them enter together
SYSTEM_GIB = 80  # the machine image with its tools, and room for logs
MOST_MACHINES = 8
ONE_IN_TEN = NormalDist().inv_cdf(0.9)
MET, NEVER = (1.0, 0.0), (math.inf, math.inf)
LATE = frozenset({"ttft_too_slow", "tpot_too_slow", "throughput_too_low", "load_too_high"})
Missed = tuple[float, float]
Cache = tuple[int, int, int, bool]  # tokens, prompts per batch, steps that prompts are delayed, whether memory is tight
KERNEL_BLOCKS_ARE_CHUNKED = ("flashinfer", "flashdecoding")


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightFormat:
    """A format of the weights: `bits` per linear weight, including group scales; `padded_to`: the width of a copy."""

    name: str
    hub_id: str
    bits: float
    lost_bits: float
    group: int
    published: bool
    rule: QuantizationRule | None
    loads: bool
    padded_to: int = 0

    def changes_type(self, model: ModelSpec) -> bool:
        return self.rule is not None and self.rule.forces_dtype not in {None, model.torch_dtype}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result for an instance type with this many shards and replicas of this format, whatever it costs.

    `missed`: the ratio to the default goals, 1 if they are met, and the time of a whole answer; `alone`: the same for a
    single request. `answer_s`: how long the longest planned answer takes, `graphs`: how many are captured.
    """

    instance_type: str
    num_shard: int
    replicas: int
    machines: int
    stored: WeightFormat
    codes: frozenset[str]
    output_tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    missed: Missed
    alone: Missed
    tight: bool
    answer_s: float
    graphs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A working configuration on one offer; `total` is None if the price is unknown.

    `most`: the total at the largest size, where a service changes the number of replicas by itself; else the same.
    """

    instance_type: str
    region: str
    market: str
    num_shard: int
    replicas: int
    quantize: str
    hub_id: str
    total: Decimal | None
    most: Decimal | None
    needs_block: bool
    lost_bits: float
    changes_type: bool
    after: int
    output_tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    missed: Missed
    tight: bool

    @property
    def place(self) -> tuple[object, ...]:
        return self.instance_type, self.region, self.market, self.num_shard, self.quantize, self.hub_id

    @property
    def identity(self) -> tuple[object, ...]:
        return *self.place, self.replicas, self.total


def weight_formats(profile: Profile, release: TgiRelease) -> Iterator[WeightFormat]:
    own = profile.model.quantization
    if own is not None:
        method = "fp8" if own.method == "fbgemm_fp8" else own.method
        rule = release.quantizations.get(method)
        bits = _with_scales(rule, own.bits, own.group_size)
        yield WeightFormat(
            name=method, hub_id=profile.model.hub_id, bits=bits, lost_bits=0, group=own.group_size or 0,
            published=True, rule=rule, loads=rule is not None and _can_load(rule, own.bits),
        )  # fmt: skip
        return
    yield WeightFormat(
        name="none", hub_id=profile.model.hub_id, bits=16, lost_bits=0, group=0, published=False, rule=None, loads=True
    )
    yield from _published(profile, release)
    named = {repository.method for repository in profile.quantized}
    for method, rule in release.quantizations.items():
        if method not in named and rule.on_the_fly:
            yield WeightFormat(
                name=method, hub_id=profile.model.hub_id, bits=rule.bits, lost_bits=16 - math.floor(rule.bits), group=0,
                published=False, rule=rule, loads=True,
            )  # fmt: skip


def _published(profile: Profile, release: TgiRelease) -> Iterator[WeightFormat]:
    for repository in profile.quantized:
        rule = release.quantizations.get(repository.method)
        if rule is not None and _can_load(rule, repository.bits):
            bits = _with_scales(rule, repository.bits, repository.group_size)
            yield WeightFormat(
                name=repository.method, hub_id=repository.hub_id, bits=bits, lost_bits=16 - math.floor(repository.bits),
                group=repository.group_size or 0, published=True, rule=rule, loads=True,
                padded_to=repository.intermediate_size or 0,
            )  # fmt: skip


def _can_load(rule: QuantizationRule, bits: int) -> bool:
    return rule.prequantized and (bits in rule.checkpoint_bits or not rule.checkpoint_bits)


def _with_scales(rule: QuantizationRule | None, bits: float, group: int | None) -> float:
    if rule is None or not group or group < 0:
        return float(bits)
    return bits + rule.group_overhead_bits / group


def verdicts(request: Request, supply: Supply) -> Iterator[Verdict]:
    """Every instance type on offer x shard counts it has accelerators for x ways to serve x replicas.

    Two instance types that differ in nothing that is asked about here are one question.
    """
    answers: dict[tuple[object, ...], Verdict] = {}
    release = supply.release
    types = {offer.instance_type.name: offer.instance_type for offer in supply.offers}
    formats = tuple(weight_formats(request.model, release))
    for name in sorted(types):
        for num_shard in SHARD_COUNTS:
            if num_shard <= types[name].accelerator_count:
                numbers = tuple(_numbers(request, supply, types[name], num_shard))
                for stored in formats:
                    for replicas, machines in numbers:
                        asked = (*_asked_of(types[name]), num_shard, stored, replicas)
                        if asked not in answers:
                            answers[asked] = judge(request, supply, types[name], num_shard, stored, replicas)
                        found = answers[asked]
                        crowded = machines > (request.max_machines or (1 if request.hardware else machines))
                        more = {*_hosting_codes(request, supply, types[name], stored, found)}
                        more |= {"too_many_machines"} if crowded else set()
                        yield replace(found, instance_type=name, machines=machines, codes=found.codes | more)


def _hosting_codes(
    request: Request, supply: Supply, hardware: InstanceType, stored: WeightFormat, found: Verdict
) -> Iterator[str]:
    """Yield what a service does not allow on its machine."""
    if supply.hosting is not None:
        yield from hosting.codes(
            supply.hosting.service.lower(), hardware, image_bytes=supply.release.image_bytes,
            weights_bytes=downloaded_bytes(request.model.model, stored), graphs=found.graphs, answer_s=found.answer_s,
        )  # fmt: skip


def _asked_of(hardware: InstanceType) -> tuple[object, ...]:
    return (
        hardware.accelerator.name, hardware.memory_bytes_per_accelerator, hardware.cpu_arch, hardware.partition,
        hardware.driver, hardware.interconnect,
    )  # fmt: skip


def _numbers(request: Request, supply: Supply, hardware: InstanceType, num_shard: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of replicas and machines: as many as fill one machine, two, and so on, each with a request.

    A service runs one container on a machine.
    """
    each, least = max(1, hardware.accelerator_count // num_shard), request.replicas.least
    each = 1 if supply.hosting is not None else each
    most = max(least, request.replicas.most or 1)
    if not request.arrivals_per_s:
        most = max(least, min(most, request.concurrency))
    machines = request.max_machines or (1 if request.hardware else MOST_MACHINES)
    numbers = {min(most, each * machine) for machine in range(1, machines + 1)}
    for number in sorted({count for count in numbers if count >= least} or {min(most, each * math.ceil(least / each))}):
        yield number, math.ceil(number / each)


def judge(
    request: Request, supply: Supply, hardware: InstanceType, num_shard: int, stored: WeightFormat, replicas: int = 1
) -> Verdict:
    release, model = supply.release, _as_published(request.model.model, stored)
    served = release.model_classes[model.model_type]
    codes = {
        *_hardware_codes(release, hardware, num_shard),
        *_turing_codes(request, release, hardware),
        *_model_codes(model, served, num_shard),
        *_split_codes(model, num_shard, stored),
        *_quantization_codes(model, served, hardware, num_shard, stored),
        *_block_codes(model, release, hardware),
        *_floor_codes(request, stored),
    }
    share = replaced(request, concurrency=math.ceil(request.concurrency / replicas))
    caches = _caches(share, release, hardware, num_shard, stored)
    rate, ttft_ms, tpot_ms, missed, alone, tight, answer_s = 0.0, 0.0, 0.0, NEVER, NEVER, False, 0.0
    if isinstance(caches, str):
        codes.add(caches)
    elif not codes:
        served_so = [_served(request, supply, hardware, num_shard, stored, replicas, cache) for cache in caches]
        place = min(range(len(caches)), key=lambda place: _best_served(served_so[place]))
        late, rate, ttft_ms, tpot_ms, missed, alone = served_so[place]
        answer_s = _answer_s(request, supply, hardware, num_shard, stored, replicas, caches[place])
        tight = caches[place][3]
        codes |= late
    return Verdict(
        instance_type=hardware.name, num_shard=num_shard, replicas=replicas, machines=1, stored=stored,
        codes=frozenset(codes), output_tokens_per_s=rate, ttft_ms=ttft_ms, tpot_ms=tpot_ms, missed=missed,
        alone=alone, tight=tight, answer_s=answer_s, graphs=_captured(share, served, stored),
    )  # fmt: skip


def _answer_s(
    request: Request, supply: Supply, hardware: InstanceType, num_shard: int, stored: WeightFormat, replicas: int,
    cache: Cache,
) -> float:  # fmt: skip
    """Return the seconds until the last token of the longest planned answer, of a slow request."""
    seen = _speed(request, supply, hardware, num_shard, stored, _share(request, replicas), cache)
    slow_ms = [seen.ttft_ms_p95 or seen.ttft_ms, seen.tpot_ms_p95 or seen.tpot_ms]
    return (slow_ms[0] + slow_ms[1] * (request.output_p95 or request.output_tokens)) / 1000


def _served(
    request: Request, supply: Supply, hardware: InstanceType, num_shard: int, stored: WeightFormat, replicas: int,
    cache: Cache,
) -> tuple[set[str], float, float, float, Missed, Missed]:  # fmt: skip
    """Return missed explicit limits, tokens per second, both latencies, and how far default goals are missed."""
    seen = _speed(request, supply, hardware, num_shard, stored, _share(request, replicas), cache)
    working = replicas if request.arrivals_per_s else min(replicas, request.concurrency)
    one = Traffic(input_tokens=request.input_tokens, output_tokens=request.output_tokens, clients=1)
    alone = _missed(request, _speed(request, supply, hardware, num_shard, stored, one, cache), 0.5)
    missed = _missed(request, seen, request.confidence)
    late = set(_slowness(request, seen, working))
    return late, seen.output_tokens_per_s * working, seen.ttft_ms, seen.tpot_ms, missed, alone


def _best_served(one: tuple[set[str], float, float, float, Missed, Missed]) -> tuple[object, ...]:
    """Return the best: no missed limit, nearest to the default goals, most tokens per second; the first of equals."""
    late, rate, _, _, missed, _ = one
    return (True,) if late else (False, *_near(missed, MET), -round(rate, 1))


def _floor_codes(request: Request, stored: WeightFormat) -> Iterator[str]:
    """Yield the code for weights below the requested quality."""
    too_low = {"exact": stored.lost_bits > 0, "near-lossless": stored.lost_bits > 8}.get(request.quality, False)
    if too_low or (request.min_bits is not None and math.floor(stored.bits) < request.min_bits):
        yield "quality_too_low"


def _share(request: Request, replicas: int) -> Traffic:
    """Return one replica's share of the load; surplus replicas are idle."""
    if request.arrivals_per_s:
        return Traffic(
            input_tokens=request.input_tokens, output_tokens=request.output_tokens, kind="open",
            arrivals_per_s=request.arrivals_per_s / replicas,
        )  # fmt: skip
    each = max(1.0, request.concurrency / replicas)
    return Traffic(input_tokens=request.input_tokens, output_tokens=request.output_tokens, clients=each)


def _slowness(request: Request, seen: Performance, replicas: int) -> Iterator[str]:
    """Yield explicit limits whose probability is too low."""
    if math.isinf(seen.ttft_ms):
        yield "load_too_high"
        return
    for limit, figure, span, code in (
        (request.ttft_ms, seen.ttft_ms, seen.ttft_ms_span, "ttft_too_slow"),
        (request.tpot_ms, seen.tpot_ms, seen.tpot_ms_span, "tpot_too_slow"),
    ):
        if limit is not None and _chance_below(limit, figure, span) < request.confidence:
            yield code
    wanted = request.min_tokens_per_s
    if wanted is not None:
        below = _chance_below(wanted / replicas, seen.output_tokens_per_s, seen.output_tokens_per_s_span)
        if 1 - below < request.confidence:
            yield "throughput_too_low"


def _chance_below(limit: float, figure: float, span: Span) -> float:
    """Return the probability of a lower measurement: 8 in 10 are within the span, one in ten is beyond each end."""
    away = math.log(limit / figure)
    side = math.log(span.high / figure) if away > 0 else math.log(figure / span.low)
    return NormalDist().cdf(away / side * ONE_IN_TEN)


def _missed(request: Request, seen: Performance, confidence: float) -> Missed:
    times = _unexpected(request, seen, confidence)
    whole = (seen.ttft_ms + seen.tpot_ms * request.output_tokens) / (2000 + 80 * request.output_tokens)
    return MET if times <= 1 else (times, whole)


def _unexpected(request: Request, seen: Performance, confidence: float) -> float:
    """Return the ratio to 2 s to the first token or 80 ms a token, at the requested confidence; at least 1."""
    if request.slo == "none" or math.isinf(seen.ttft_ms):
        return 1.0
    sure, times = NormalDist().inv_cdf(confidence) / ONE_IN_TEN, [1.0]
    for typed, expected, figure, span in (
        (request.ttft_ms, 2000, seen.ttft_ms, seen.ttft_ms_span),
        (request.tpot_ms, 80, seen.tpot_ms, seen.tpot_ms_span),
    ):
        if typed is None:
            side = span.high / figure if sure > 0 else figure / span.low
            times.append(figure * side**sure / expected)
    return max(times)


def _as_published(model: ModelSpec, stored: WeightFormat) -> ModelSpec:
    if not stored.padded_to:
        return model
    columns = (stored.padded_to - model.intermediate_size) * 3 * model.layers
    return replaced(
        model, intermediate_size=stored.padded_to, parameters=model.parameters + columns * model.hidden_size
    )  # fmt: skip


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
    """Its kernels have no sliding window, which matters if a prompt is longer than the window."""
    capability, window = hardware.accelerator.compute_capability, request.model.model.sliding_window
    can = any(r.verdict == "override" and r.minimum <= (7, 5) <= r.maximum for r in release.architectures)
    if can and capability == (7, 5) and window is not None and request.context_tokens - 1 > window:
        yield "arch_sliding_window"


def _model_codes(model: ModelSpec, served: ModelClass, num_shard: int) -> Iterator[str]:
    generates = any(part in model.architecture for part in ("ForCausalLM", "LMHead", "ForConditionalGeneration"))
    if served.backend == "refused" or not generates:
        yield "model_type_unsupported"
    if num_shard > 1 and not served.shardable:
        yield "model_not_shardable"


def _split_codes(model: ModelSpec, num_shard: int, stored: WeightFormat) -> Iterator[str]:
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
    grouped = stored.group <= 0 or all(size % (num_shard * stored.group) == 0 for size in inputs_of_row_split_layers)
    if not (whole and grouped):
        yield "not_divisible"


def _quantization_codes(
    model: ModelSpec, served: ModelClass, hardware: InstanceType, num_shard: int, stored: WeightFormat
) -> Iterator[str]:
    if not stored.loads:
        yield "quantization_unavailable"
    if stored.rule is None:
        return
    capability = hardware.accelerator.compute_capability
    if capability is not None and capability < stored.rule.min_compute_capability:
        yield "quantization_capability"
    if num_shard > 1 and not stored.rule.shardable:
        yield "quantization_not_shardable"
    if served.backend in {"transformers", "plain"} and not stored.rule.transformers_backend:
        yield "quantization_no_effect"
    elif model.experts and not stored.rule.fused_moe and not served.dense_fallback:
        yield "quantization_moe"


def _block_codes(model: ModelSpec, release: TgiRelease, hardware: InstanceType) -> Iterator[str]:
    """Block scales of fp8 weights need kernels that only one release has, and a GPU that multiplies in fp8."""
    if model.quantization is not None and model.quantization.block_scaled:
        can = hardware.accelerator.compute_capability is None or hardware.accelerator.compute_capability >= (8, 9)
        if not (release.block_scaled_fp8 == release.version and can):
            yield "quantization_block_scaled"


def attention_kernels(model: ModelSpec, served: ModelClass, release: TgiRelease, chip_rule_env: str) -> str:
    if not served.flash:
        return "padded"
    if chip_rule_env:
        return chip_rule_env
    if not release.default_attention:
        return "paged"
    usual = model.head_dim in release.flash_head_dims and not served.paged_only
    return release.default_attention if usual else "flashdecoding"


def _caches(
    request: Request, release: TgiRelease, hardware: InstanceType, num_shard: int, stored: WeightFormat
) -> list[Cache] | str:
    """Return the token capacity and the prompt batches that leave room for the longest request; otherwise the part that
    is too big. Chunked prompts use the largest batch that fits, or a smaller one that holds a prompt and a token of
    each request.
    """
    model = _as_published(request.model.model, stored)
    served = release.model_classes[model.model_type]
    capability = hardware.accelerator.compute_capability
    rule = next((r for r in release.architectures if capability and r.minimum <= capability <= r.maximum), None)
    kernels = attention_kernels(model, served, release, rule.env.get("ATTENTION", "")) if rule else "paged"
    kernels = kernels if served.flash else "padded"
    block = release.block_tokens.get(kernels, 1)
    chunked = release.chunked_prefill and served.prefill_chunking and kernels in KERNEL_BLOCKS_ARE_CHUNKED
    kv_heads = model.kv_heads if served.replicated_kv else max(1, model.kv_heads // num_shard)
    per_token = model.layers * 2 * kv_heads * model.head_dim * 2
    each = math.ceil((request.input_tokens + request.output_tokens) / block) * block
    longest_answered = math.ceil((request.context_tokens - 1) / block) * block
    total, left, most = hardware.memory_bytes_per_accelerator, 0, 0
    found: list[Cache] = []
    for prefill in _prompt_batches(request, chunked=chunked):
        left = total - _weights(model, served, stored, num_shard) - _before_any_weight(release, num_shard)
        rows = min(request.concurrency, max(1, left // (per_token * each)))
        working = _activations(rows, model, served, release, num_shard, stored, prefill)
        left -= working
        measured = left - longest_answered * per_token
        unused = total * (1 - release.memory_share)
        if release.share_of == "free":
            unused = max(0, measured) * (1 - release.memory_share)
        left -= max(int(unused), _graphs(request, served, stored))
        tokens = max(0, left) // (per_token * block) * block
        needed = max(request.context_tokens, each, longest_answered)
        if tokens >= needed:
            # Each running request has its prompt in the cache, and a smaller batch frees at most all working memory.
            most = most or (tokens + working // per_token) // max(1, request.input_tokens)
            unsure = 256 * 2**20 + working // 4
            tight = left - needed * per_token < unsure
            found.append((tokens, prefill, 0 if chunked else WAITING_STEPS, tight))
    if found:
        whole = request.input_tokens + min(request.concurrency, most)
        return found[:1] + [cache for cache in found[1:] if chunked and cache[1] >= whole]
    return "memory_weights" if left <= 0 else "memory_kv_cache"


def _prompt_batches(request: Request, *, chunked: bool) -> tuple[int, ...]:
    """Without chunking the longest prompt is prefilled at once: the context less one token, or half of it."""
    context = request.context_tokens
    if chunked:
        return tuple(size for size in PREFILL_LADDER if size < context) or (context,)
    half = context // 2
    return (context - 1, half) if request.input_tokens <= half < context - 1 else (context - 1,)


def _weights(model: ModelSpec, served: ModelClass, stored: WeightFormat, num_shard: int) -> int:
    """Return what one rank holds: its part of the linear layers, its rows of the tables, and all 16-bit norms and
    routers.

    The head splits only if the vocabulary does; key and value projections of a single head are on every rank.
    transformers splits linear layers alone, and not even the experts of some mixtures.
    """
    one_table = model.vocab_size * model.hidden_size
    norms_and_router = (2 * model.layers + 1) * model.hidden_size + model.layers * model.experts * model.hidden_size
    tables = one_table * (1 if model.tied_embeddings else 2)
    linear = model.parameters - model.vision_parameters - norms_and_router - tables
    linear_bytes = linear * stored.bits / 8
    if model.quantization is not None and model.quantized_bytes:
        linear_bytes = model.quantized_bytes + 2 * max(0, linear - model.quantized_parameters)
    if served.backend != "native":
        experts = 0.0
        if served.whole_experts:
            experts = _expert_parameters(model) * stored.bits / 8
        head = 0 if model.tied_embeddings else math.ceil(one_table / num_shard)
        return int((linear_bytes - experts) / num_shard + experts) + 2 * (
            norms_and_router + model.vision_parameters + one_table + head
        )
    on_a_rank = int(linear_bytes / num_shard)
    if model.kv_heads < num_shard:
        one_head = 2 * model.layers * model.hidden_size * model.head_dim
        shared_already = model.kv_heads / num_shard
        on_a_rank += int(one_head * (1 - shared_already) * linear_bytes / linear)
    embedding_rows = math.ceil(model.vocab_size / num_shard)
    head_rows = model.vocab_size if model.vocab_size % num_shard else model.vocab_size // num_shard
    sixteen_bit = model.vision_parameters // num_shard + norms_and_router
    on_a_rank += 2 * (sixteen_bit + model.hidden_size * (embedding_rows + head_rows))
    if stored.rule is not None and stored.rule.packs_head:
        on_a_rank -= int(head_rows * model.hidden_size * (2 - stored.bits / 8))
    return on_a_rank


def _expert_parameters(model: ModelSpec) -> int:
    each_layer = 3 * model.hidden_size * model.expert_intermediate_size * model.experts
    return each_layer * (model.layers - model.first_dense_layers)


def _activations(
    rows: int,
    model: ModelSpec,
    served: ModelClass,
    release: TgiRelease,
    num_shard: int,
    stored: WeightFormat,
    prefill: int,
) -> int:
    """Return the peak: one layer working on a batch of prompts, or sampling for `rows`. Prompts are scored unless the
    release has a flag that is off; padded models always score them.
    """
    heads = (model.attention_heads + 2 * model.kv_heads) * model.head_dim // num_shard
    values = 6 * model.hidden_size + heads + _feed_forward(model, served, num_shard, stored)
    prompt = max(prefill * 2 * values, served.image_bytes // num_shard)
    a_pair = served.mask_bytes + served.mask_bytes_per_head * model.attention_heads // num_shard
    prompt += a_pair * prefill**2
    if not served.flash or "--enable-prefill-logprobs" not in release.flags:
        split = num_shard > 1 and model.vocab_size % num_shard == 0
        row = 2 * model.vocab_size
        prompt += prefill * (3 * row + row // num_shard if split else row * release.score_copies)
    return max(prompt, rows * model.vocab_size * 8)


def _feed_forward(model: ModelSpec, served: ModelClass, num_shard: int, stored: WeightFormat) -> int:
    dense = 4 * model.intermediate_size // num_shard
    if not model.experts:
        return dense
    wide = model.expert_intermediate_size
    if served.experts == "gathered":
        return model.experts * (3 * model.hidden_size + 4 * wide // num_shard)
    if served.experts == "fused" and not _has_no_kernel(served, stored):
        return max(dense, model.experts_per_token * (3 * wide // num_shard + model.hidden_size))
    return max(dense, 4 * wide // (1 if served.whole_experts else num_shard))


def _has_no_kernel(served: ModelClass, stored: WeightFormat) -> bool:
    """Return whether packed experts run one by one: the method has no fused kernel, or the class does not use it."""
    return stored.rule is not None and not (stored.rule.fused_moe and served.fused_quantized)


def _before_any_weight(release: TgiRelease, num_shard: int) -> int:
    """Driver and context, the kernels' workspace, and NCCL's buffers where ranks talk."""
    mib = 2**20
    talking = 0 if num_shard == 1 else 512 * mib + 64 * mib * (num_shard - 2)
    return release.context_bytes + release.workspace_bytes + talking


def _captured(request: Request, served: ModelClass, stored: WeightFormat) -> int:
    if not served.cuda_graphs or (stored.rule is not None and not stored.rule.cuda_graphs):
        return 0
    return len([batch for batch in (1, 2, 4, 8, 16, 32, 64, 128) if batch <= max(32, request.concurrency)])


def _graphs(request: Request, served: ModelClass, stored: WeightFormat) -> int:
    return _captured(request, served, stored) * request.model.model.layers * (12 * 2**20 // 10)


def _speed(
    request: Request, supply: Supply, hardware: InstanceType, num_shard: int, stored: WeightFormat, load: Traffic,
    cache: Cache,
) -> Performance:  # fmt: skip
    tokens, prefill, held_back, _ = cache
    scheme = Scheme(
        name=stored.name, hub_id="", bits=stored.bits, lost_bits=stored.lost_bits, prequantized=stored.published,
        method=stored.rule.method if stored.rule else None, cuda_graphs=stored.rule is None or stored.rule.cuda_graphs,
        native_fp8=stored.rule.native_fp8_compute if stored.rule else None,
    )  # fmt: skip
    served = supply.release.model_classes[request.model.model.model_type]
    mixture = request.model.model.experts > 0
    scheduling = Scheduling(
        profile="tgi", prefill_tokens=prefill, waiting_steps=held_back,
        cuda_graphs=served.cuda_graphs and (stored.rule is None or stored.rule.cuda_graphs),
        loops_over_experts=mixture and served.experts == "looped",
        layer_products=4 if served.backend == "native" else 7,
        runs_all_experts=mixture and (
            served.experts == "gathered"
            or (served.experts == "fused" and _has_no_kernel(served, stored))
        ),
    )  # fmt: skip
    return performance.predict(
        request.model.model, scheme, hardware.accelerator, tokens, load,
        num_shard=num_shard, interconnect=hardware.interconnect, constants=supply.speed,
        scheduling=scheduling,
    )  # fmt: skip


def choices(request: Request, supply: Supply, judged: tuple[Verdict, ...]) -> Iterator[Choice]:
    """Yield every working configuration on every offer, with its price, in no order and regardless of the budget."""
    works: dict[str, list[Verdict]] = {}
    for verdict in judged:
        if not verdict.codes:
            works.setdefault(verdict.instance_type, []).append(verdict)
    for offer in supply.offers:
        for verdict in works.get(offer.instance_type.name, ()):
            largest = max(verdict.machines, (request.replicas.most or 0) if _follows_load(request, supply) else 0)
            yield Choice(
                instance_type=offer.instance_type.name, region=offer.region, market=offer.market,
                num_shard=verdict.num_shard, replicas=verdict.replicas, quantize=verdict.stored.name,
                hub_id=verdict.stored.hub_id,
                total=total_usd_per_hour(request, supply, offer, verdict.stored, verdict.machines),
                most=total_usd_per_hour(request, supply, offer, verdict.stored, largest),
                needs_block=sold_in_blocks(offer),
                lost_bits=verdict.stored.lost_bits, changes_type=verdict.stored.changes_type(request.model.model),
                after=verdict.stored.rule.after if verdict.stored.rule else 0,
                output_tokens_per_s=verdict.output_tokens_per_s, ttft_ms=verdict.ttft_ms, tpot_ms=verdict.tpot_ms,
                missed=verdict.missed, tight=verdict.tight,
            )  # fmt: skip


def _follows_load(request: Request, supply: Supply) -> bool:
    """Return whether a service changes the number of replicas by itself, up to the largest allowed."""
    return supply.hosting is not None and request.replicas.varies


def sold_in_blocks(offer: Offer) -> bool:
    """Return whether its hours are sold in advance, which an hourly budget can't buy."""
    return offer.market == "on-demand" and offer.instance_type.capacity_block_only


def total_usd_per_hour(
    request: Request, supply: Supply, offer: Offer, stored: WeightFormat, machines: int = 1
) -> Decimal | None:
    """Return the total for instances, root volumes, public addresses and a load balancer; None: a price is unknown."""
    if offer.market == "owned":
        return Decimal(0)
    if offer.usd_per_hour is None or sold_in_blocks(offer):
        return None
    extras = supply.extra_prices[offer.region]
    stored = downloaded_bytes(request.model.model, stored)
    if supply.hosting is not None:
        gib = hosting.volume_gib(offer.instance_type, supply.release.image_bytes, stored)
        volume = (gib * extras.volume_usd_per_gib_month / 730).quantize(Decimal("0.0001"), ROUND_HALF_UP)
        return (offer.usd_per_hour + volume) * machines
    on_root = 0 if offer.instance_type.nvme_bytes * 10 >= stored * 11 else stored * 11 // 10
    gib = SYSTEM_GIB + math.ceil((supply.release.image_bytes + on_root) / GIB)
    volume = (gib * extras.volume_usd_per_gib_month / 730).quantize(Decimal("0.0001"), ROUND_HALF_UP)
    each = offer.usd_per_hour + volume + extras.public_ipv4_usd_per_hour
    return each * machines + (extras.load_balancer_usd_per_hour if machines > 1 else 0)


def downloaded_bytes(model: ModelSpec, stored: WeightFormat) -> int:
    """The checkpoint as the hub has it: the model's own, or the published quantized copy."""
    own = stored.hub_id == model.hub_id
    if own and model.stored_bytes:
        return model.stored_bytes
    if not stored.published:
        return model.parameters * (4 if model.torch_dtype == "float32" else 2)
    sixteen_bit = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2) + model.vision_parameters
    sixteen_bit += (2 * model.layers + 1) * model.hidden_size + model.layers * model.experts * model.hidden_size
    linear = model.parameters - sixteen_bit
    if own and model.quantized_bytes:
        return model.quantized_bytes + 2 * max(0, linear - model.quantized_parameters) + 2 * sixteen_bit
    return int(linear * stored.bits / 8) + 2 * sixteen_bit


def reach(request: Request, supply: Supply, judged: tuple[Verdict, ...], budget: Decimal | None) -> Missed:
    """Return the default goals, doubled until the fastest affordable configuration meets them for a single request."""
    fastest = NEVER
    for offer in supply.offers:
        for verdict in judged:
            if verdict.instance_type == offer.instance_type.name and verdict.codes <= LATE:
                total = total_usd_per_hour(request, supply, offer, verdict.stored, verdict.machines)
                if total is not None and (budget is None or total <= budget):
                    if verdict.alone == MET:
                        return MET
                    fastest = min(fastest[0], verdict.alone[0]), min(fastest[1], verdict.alone[1])
    return MET if fastest == NEVER else (_doubled(fastest[0]), _doubled(fastest[1]))


def _doubled(times: float) -> float:
    """Return the smallest power of two that is at least the value."""
    power = 2.0**-30
    while power < times:
        power *= 2
    return power


def _near(missed: Missed, within: Missed) -> tuple[bool, float]:
    """Return whether it is unusable, and how far it misses the default goals, or what is in reach. Up to twice the time
    is usable, and less is better. Beyond that, the time of a whole answer counts.
    """
    if missed == MET:
        return False, 1.0
    return (True, max(missed[1], within[1])) if missed[0] > 2 else (False, max(missed[0], within[0]))


def best(
    found: tuple[Choice, ...], prefer: str, budget: Decimal | None, within: Missed, *, unspoken: bool = True
) -> Choice | None:
    """Return the first in the requested order. `unspoken`: the request does not mention the weights."""
    affordable = [c for c in found if c.most is not None and (budget is None or c.most <= budget)]
    if prefer in {"cost", "quality"}:
        affordable = list(_no_more_than_enough(affordable, within))
    return min(affordable, key=lambda choice: _order(choice, prefer, within, unspoken=unspoken), default=None)


def _no_more_than_enough(found: list[Choice], within: Missed) -> Iterator[Choice]:
    """Drop larger numbers of replicas, unless they come nearer to the default goals."""
    nearest: dict[tuple[object, ...], tuple[bool, float]] = {}
    for choice in sorted(found, key=lambda choice: choice.replicas):
        near = _near(choice.missed, within)
        if choice.place not in nearest or near < nearest[choice.place]:
            nearest[choice.place] = near
            yield choice


def _order(choice: Choice, prefer: str, within: Missed, *, unspoken: bool) -> tuple[object, ...]:
    if choice.total is None:
        raise AssertionError("an unknown price is never free")
    dearness, slowness = choice.total, -round(choice.output_tokens_per_s, 1)
    method = (choice.after, choice.changes_type, choice.quantize)
    names = (
        choice.instance_type, f"{choice.num_shard:03}", f"{choice.replicas:05}", method, choice.region, choice.market
    )  # fmt: skip
    lost, wait = _lost(choice), (round(choice.ttft_ms, 1), round(choice.tpot_ms, 2))
    preferred = {
        "cost": (dearness, choice.tight, lost, slowness, wait, names),
        "quality": (lost, dearness, choice.tight, slowness, wait, names),
        "speed": (slowness, dearness, choice.tight, lost, wait, names),
        "value": (-float(dearness) / slowness, choice.tight, lost, dearness, wait, names),
    }[prefer]
    # Up to twice the default goals is usable, and better than 4-bit weights without a request.
    unusable, times = _near(choice.missed, within)
    return (unusable, unspoken and _is_four_bit(choice), choice.missed != MET, times, *preferred)


def _is_four_bit(choice: Choice) -> bool:
    return choice.lost_bits > 8


def _lost(choice: Choice) -> int:
    """Return the rank of quality loss: none, near-lossless, calibrated 4-bit, uncalibrated 4-bit, 4-bit floats."""
    if not choice.lost_bits:
        return 0
    if not _is_four_bit(choice):
        return 1
    return {"bitsandbytes-nf4": 3, "bitsandbytes-fp4": 4}.get(choice.quantize, 2)
