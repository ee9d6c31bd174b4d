"""Laws that the speed model must obey regardless of its constants."""

from __future__ import annotations

import itertools
import math

import pytest
from msgspec.structs import replace

from tgi_deploy.planner import performance, service_level, speed_numerics
from tgi_deploy.planner.speed_load import Traffic, fitting_batch, timing
from tgi_deploy.planner.speed_work import SIXTEEN_BITS, Setup, Work, kv_bytes_per_token
from tgi_deploy.values.engine import Scheduling, Scheme
from tgi_deploy.values.request import Limit
from tgi_deploy.wiring import open_catalog

CONSTANTS = open_catalog().predictions.speed
LLAMA = "meta-llama/Llama-3.1-8B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
MODELS = (LLAMA, MIXTRAL, "google/gemma-3-27b-it", "openai/gpt-oss-120b", "openai-community/gpt2")
ENGINES = (("tgi", ""), ("tgi", "1.1.0"), ("vllm", "0.6.4"), ("vllm", ""), ("TensorRT-LLM", "0.10"), ("nobody's", ""))
KV_TOKENS = 200_000


@pytest.fixture
def setup(catalog):
    return Setup(
        model=catalog.resolve(LLAMA).model, numerics=SIXTEEN_BITS, accelerator=catalog.accelerator("L40S"), num_shard=1,
        interconnect="none", engine=CONSTANTS.engine("vllm"),
    )  # fmt: skip


def seen(setup, *, prompt=1024, output=256, clients=8, kind="closed_loop", kv=KV_TOKENS):
    traffic = Traffic(input_tokens=prompt, output_tokens=output, clients=clients, kind=kind)
    return timing(Work(setup, CONSTANTS), traffic, kv)


def with_card(setup, **changes):
    return replace(setup, accelerator=replace(setup.accelerator, **changes))


@pytest.mark.parametrize("kind", ["static", "batch1", "burst", "closed_loop", "offline", "server"])
@pytest.mark.parametrize("change", [{"bandwidth_gb_s": 1000.0}, {"fp16_tflops": 500.0}])
def test_a_better_card_is_never_slower(setup, change, kind):
    better, own = seen(with_card(setup, **change), kind=kind), seen(setup, kind=kind)
    assert better.tpot_s <= own.tpot_s
    assert better.e2e_s < own.e2e_s
    # Clients that get their answers sooner come back sooner: prefills queue a little more.
    assert better.ttft_s <= own.ttft_s * (1.02 if kind in {"closed_loop", "offline", "server"} else 1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_a_longer_prompt_is_never_answered_sooner(catalog, setup, model, engine):
    setup = replace(setup, model=catalog.resolve(model).model, engine=CONSTANTS.engine(*engine))
    for clients in (1, 8, 64):
        ttfts = [seen(setup, prompt=n, clients=clients, kv=1e9).ttft_s for n in (16, 128, 1024, 2047, 2049, 4096, 9000)]
        # Prompts of half a chunk wait for each other, longer ones do not.
        assert all(later > 0.9 * sooner for sooner, later in itertools.pairwise(ttfts)), ttfts
        assert ttfts[-1] > ttfts[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_more_clients_are_slower_each_and_faster_in_total(setup, engine):
    setup = replace(setup, engine=CONSTANTS.engine(*engine))
    found = [seen(setup, clients=n) for n in (1, 2, 4, 8, 16, 32, 64)]
    tpots = [item.tpot_s for item in found]
    assert tpots == sorted(tpots)
    rates = [item.requests_per_s() for item in found]
    assert rates == sorted(rates)


def test_work_is_conserved_in_a_closed_loop(setup):
    found = seen(setup, output=300)
    first_s = (setup.engine.first_ms + setup.engine.front_ms) / 1e3
    assert found.ttft_s - first_s + 300 * found.tpot_s == pytest.approx(found.e2e_s)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("output", [1, 50])
def test_a_token_never_takes_less_than_its_step(setup, engine, output):
    """Long prompts and short answers: nearly all of the time goes to prefills."""
    setup = replace(setup, engine=CONSTANTS.engine(*engine))
    step_s = Work(setup, CONSTANTS).step_s(64, 65_536 + output / 2)
    assert seen(setup, prompt=65_536, output=output, clients=64, kv=1e9).tpot_s >= step_s * 0.999


def test_clients_beyond_the_batch_wait_for_their_turn(setup):
    within, beyond = seen(setup, clients=10, kv=11_520), seen(setup, clients=100, kv=11_520)
    assert beyond.batch == within.batch == 10
    assert beyond.ttft_s > 5 * within.ttft_s
    assert beyond.tpot_s == pytest.approx(within.tpot_s)
    assert beyond.requests_per_s() == pytest.approx(within.requests_per_s())


def test_the_prefill_flag_alone_decides_how_many_prompts_share_a_first_token(catalog, setup):
    """Two cards that differ in memory alone, or one card under two values of the flag."""
    planned = replace(setup, prefill_tokens=4096)
    own = {size: seen(with_card(planned, memory_bytes=size)).ttft_s for size in (40 * 10**9, 80 * 10**9)}
    assert own[40 * 10**9] == own[80 * 10**9]
    ttfts = [seen(replace(setup, prefill_tokens=tokens)).ttft_s for tokens in (1024, 2048, 4096, 8192)]
    assert ttfts == sorted(ttfts)
    assert ttfts[-1] > 1.3 * ttfts[0]


def served(setup, **load):
    traffic = Traffic(input_tokens=1024, output_tokens=256, **load)
    return performance.client_view(Work(setup, CONSTANTS), traffic, KV_TOKENS)


def test_more_arrivals_run_more_at_once_until_the_queue_only_grows(setup):
    rates = (0.01, 0.5, 1, 2, 4, 5, 50)
    found = [served(setup, arrivals_per_s=rate, kind="open") for rate in rates]
    for name in ("ttft_ms", "tpot_ms", "ttft_ms_p95", "tpot_ms_p95"):
        values = [getattr(item, name) for item in found]
        assert values == sorted(values), name
    assert found[0].tpot_ms == pytest.approx(1e3 * seen(setup, clients=1).tpot_s, rel=0.02)
    assert [math.isinf(item.ttft_ms) for item in found] == [False] * 6 + [True]
    for item, rate in zip(found[:-1], rates[:-1], strict=True):
        assert item.output_tokens_per_s == pytest.approx(256 * rate)


def test_the_95th_percentile_is_above_the_median(setup):
    alone, crowd = served(setup, clients=1), served(setup, clients=32)
    assert alone.ttft_ms_p95 == alone.ttft_ms
    assert crowd.ttft_ms_p95 > crowd.ttft_ms
    assert crowd.tpot_ms_p95 > crowd.tpot_ms


@pytest.mark.parametrize("load", [{"clients": 1}, {"clients": 32}, {"kind": "open", "arrivals_per_s": 2}])
def test_long_prompts_raise_the_95th_percentile(setup, load):
    plain, mixed = served(setup, **load), served(setup, **load, input_p95=6000)
    assert mixed.ttft_ms == plain.ttft_ms
    assert mixed.ttft_ms_p95 > 1.05 * plain.ttft_ms_p95


def test_a_limit_is_met_with_a_probability(setup):
    speed = served(setup, clients=8)

    def chance(value):
        return service_level.chance(speed, Limit(metric="tpot_ms", value=value, default=False))

    assert chance(speed.tpot_ms) == pytest.approx(0.5)
    assert chance(speed.tpot_ms_span.high) == pytest.approx(0.9)
    assert chance(speed.tpot_ms_span.low) == pytest.approx(0.1)
    assert chance(0) == 0
    overrun = served(setup, arrivals_per_s=1e3, kind="open")
    assert service_level.chance(overrun, Limit(metric="ttft_ms", value=1e9, default=False)) == 0


def test_a_small_prefill_flag_costs_throughput_where_chunks_outnumber_decoding_steps(setup):
    rates = [
        seen(replace(setup, prefill_tokens=tokens), prompt=16_000, output=50, clients=16, kv=1e9).requests_per_s()
        for tokens in (1024, 2048, 4096, 16_384)
    ]
    assert rates == sorted(rates)
    assert rates[-1] > 1.1 * rates[0]


def test_tgi_adds_time_per_running_request_and_step(setup, catalog):
    """Its tokens are chosen and decoded one by one: 100 users of 8B on an A100 get 2,400 tokens/s, not 4,000."""
    own = replace(setup, engine=CONSTANTS.engine("tgi", "3.0.0"), accelerator=catalog.accelerator("A100-80GB"))
    work = Work(own, CONSTANTS)
    assert 0.1e-3 < (work.host_s(64) - work.host_s(32)) / 32 < 0.3e-3


def test_the_host_sends_tokens_after_it_has_launched_a_step_without_graphs(setup):
    """70B on eight H100 with 100 clients takes 62 ms a step: neither launching it nor 100 tokens take so long alone."""
    work = Work(replace(setup, engine=CONSTANTS.engine("tgi", "3.0.0")), CONSTANTS)
    assert work.step_s(64, 1024) >= work.floor_s(64) + work.host_s(64) > work.floor_s(64) > work.floor_s(32)


def test_a_burst_takes_as_long_as_its_waves(setup):
    one, two = (seen(setup, clients=n, kind="burst", kv=10 * 1152) for n in (10, 20))
    first_s = (setup.engine.first_ms + setup.engine.front_ms) / 1e3
    assert two.e2e_s - first_s == pytest.approx(2 * (one.e2e_s - first_s))
    assert one.ttft_s < one.ttft_p95_s < two.ttft_s < two.ttft_p95_s < two.e2e_s
    assert one.requests_per_s() == pytest.approx(seen(setup, clients=10, kv=10 * 1152).requests_per_s(), rel=0.15)


def test_requests_wait_some_steps_where_prefills_are_not_in_chunks(setup):
    """TGI 2.1 on A100, Poisson arrivals: 471 ms to the first token of 70B, whose prompt alone takes a fifth of it."""
    held = replace(setup, engine=replace(setup.engine, waiting_steps=20))
    for rate in (0.001, 3):
        plain, later = (served(one, arrivals_per_s=rate, kind="open") for one in (setup, held))
        wait = (later.ttft_ms - plain.ttft_ms) / plain.tpot_ms
        assert (wait < 0.1) if rate < 1 else (5 < wait < 12)
    assert CONSTANTS.engine("tgi", "2.1.0").waiting_steps == 20
    assert CONSTANTS.engine("tgi", "3.0.0").waiting_steps == 0


def test_a_server_is_slower_than_a_library(setup):
    served, library = seen(setup, clients=1, kind="closed_loop"), seen(setup, clients=1, kind="batch1")
    assert served.ttft_s > library.ttft_s + 5e-3
    assert served.tpot_s >= library.tpot_s


@pytest.mark.parametrize(("words", "measured"), [("gptq-int4", 0.79), ("int8", 0.69), ("bitsandbytes", 0.57)])
def test_quantized_weights_are_slower_once_products_decide(catalog, setup, words, measured):
    """Saturated Qwen3-8B on an A100 against bf16; at batch 1 the bytes that are saved decide."""
    card = catalog.accelerator("A100-80GB")
    plain = replace(setup, model=catalog.resolve("Qwen/Qwen3-8B").model, accelerator=card)
    packed = replace(plain, numerics=speed_numerics.of_words(words, "fp16", card))
    crowd, alone = (
        seen(packed, prompt=217, output=202, clients=n, kind="offline").requests_per_s()
        / seen(plain, prompt=217, output=202, clients=n, kind="offline").requests_per_s()
        for n in (256, 1)
    )
    assert crowd == pytest.approx(measured, abs=0.12)
    assert alone > crowd


# bitsandbytes 0.45, benchmarking/README.md: seconds a step of transformers on an H100, 8 bits with outliers in 16.
@pytest.mark.parametrize(("hub_id", "batch", "measured_s"), [
    (LLAMA, 1, 0.0817), (LLAMA, 8, 0.0853), (LLAMA, 32, 0.0864),
    ("Qwen/Qwen2.5-32B-Instruct", 1, 0.1820), ("Qwen/Qwen2.5-32B-Instruct", 8, 0.1958),
    ("meta-llama/Llama-3.1-70B", 1, 0.1985), ("meta-llama/Llama-3.1-70B", 8, 0.2052),
])  # fmt: skip
def test_8_bits_of_bitsandbytes_take_the_hosts_time_for_every_product(catalog, setup, hub_id, batch, measured_s):
    card = catalog.accelerator("H100-80GB")
    transformers = replace(
        setup, model=catalog.resolve(hub_id).model, accelerator=card, layer_products=7,
        numerics=speed_numerics.of_words("bitsandbytes", "fp16", card),
        engine=CONSTANTS.planned_engine(Scheduling(profile="tgi", cuda_graphs=False)),
    )  # fmt: skip
    assert Work(transformers, CONSTANTS).step_s(batch, 512) == pytest.approx(measured_s, rel=0.2)


def test_experts_called_one_by_one_in_8_bits_of_bitsandbytes_take_seconds(catalog):
    """Eight requests touch 52 of 128 experts in each of 48 layers: 7,400 products of 0.27 ms."""
    scheme = Scheme(name="bitsandbytes", hub_id="", bits=8, lost_bits=8, prequantized=False, method="bitsandbytes")
    work = performance.planned_work(
        catalog.resolve("Qwen/Qwen3-30B-A3B").model, scheme, catalog.accelerator("L40S"), num_shard=1,
        interconnect="none", constants=CONSTANTS,
        scheduling=Scheduling(profile="tgi", cuda_graphs=False, loops_over_experts=True, layer_products=7),
    )  # fmt: skip
    assert 1.9 < work.step_s(8, 1024) < 2.6


def test_a_share_of_free_memory_exceeds_a_share_of_the_total(catalog, setup):
    """72B in 8 bits on one A100: TensorRT-LLM runs it, at 53 tokens/s; vLLM has no room for a request."""
    card = catalog.accelerator("A100-80GB")
    big = replace(
        setup, model=catalog.resolve("Qwen/Qwen1.5-72B-Chat").model, accelerator=card,
        numerics=speed_numerics.of_words("int8-w8a8", "fp16", card),
    )  # fmt: skip
    room = {
        name: Work(replace(big, engine=CONSTANTS.engine(name, "2024")), CONSTANTS).kv_capacity_tokens()
        for name in ("tensorrt-llm", "vllm")
    }
    assert room["tensorrt-llm"] > 1000
    assert room["vllm"] < 0


def test_more_kv_cache_lets_more_run(setup):
    work, traffic = Work(setup, CONSTANTS), Traffic(input_tokens=1000, output_tokens=200, clients=None)
    assert fitting_batch(work, traffic, 11_000) == pytest.approx(10)
    assert fitting_batch(work, traffic, 0) == 1
    assert fitting_batch(work, traffic, 1e12) == setup.engine.small_max_batch
    assert fitting_batch(work, traffic, 1e12, limited=False) > setup.engine.max_batch


def test_an_engines_own_limits_depend_on_the_card(catalog, setup):
    """vLLM takes 2,048 tokens and 256 requests a step on small cards and on A100, 8,192 and 1,024 elsewhere."""
    found = {
        name: Work(replace(setup, accelerator=catalog.accelerator(name)), CONSTANTS)
        for name in ("L4", "A100-80GB", "H100-80GB")
    }
    assert {name: (work.chunk_tokens, work.max_batch) for name, work in found.items()} == {
        "L4": (2048, 256), "A100-80GB": (2048, 256), "H100-80GB": (8192, 1024),
    }  # fmt: skip


@pytest.mark.parametrize(("slower", "faster"), [("pcie", "pcie-p2p"), ("pcie-p2p", "nvlink")])
def test_a_better_link_is_never_slower(setup, slower, faster):
    slow, fast = (seen(replace(setup, num_shard=4, interconnect=link)) for link in (slower, faster))
    assert fast.tpot_s < slow.tpot_s
    assert fast.ttft_s < slow.ttft_s


def test_links_are_idle_on_a_single_card(setup):
    assert seen(setup) == seen(replace(setup, interconnect="pcie"))


def test_a_long_prompt_over_plain_pcie_is_bound_by_the_link(setup):
    work = Work(replace(setup, num_shard=4, interconnect="pcie"), CONSTANTS)
    assert work.all_reduce_s(3500) > 2 * work.products_s(3500)


@pytest.mark.parametrize(("cards", "measured_ms"), [(2, 6.7), (4, 39), (8, 162)])
def test_gpus_without_peer_access_share_host_memory_bandwidth(setup, cards, measured_ms):
    """64 MB over NCCL on L40S; on A10G, 36 MB take 26 ms on four cards and 37 on eight."""
    work = Work(replace(setup, num_shard=cards, interconnect="pcie"), CONSTANTS)
    found_ms = work.all_reduce_s(64e6 / (2 * setup.model.hidden_size)) / (2 * setup.model.layers) * 1e3
    assert measured_ms / 3 < found_ms < measured_ms * 2


def test_unquantized_layers_are_streamed_in_full(catalog, setup):
    """Engines load 56.8 to 57.8 GiB on each of eight cards."""
    model = catalog.resolve("meta-llama/Llama-3.1-405B-Instruct-FP8").model
    fp8 = speed_numerics.of_words("fp8", "fp16", catalog.accelerator("H100-80GB"))
    work = Work(replace(setup, model=model, numerics=fp8, num_shard=8), CONSTANTS)
    assert work.weight_bytes / 8 / 2**30 == pytest.approx(57, rel=0.02)


def test_parameters_that_never_run_are_not_streamed(catalog, setup):
    model = catalog.resolve("deepseek-ai/DeepSeek-V3").model
    stored = Work(replace(setup, model=replace(model, active_parameters=None)), CONSTANTS)
    work = Work(replace(setup, model=model), CONSTANTS)
    assert work.weight_bytes == pytest.approx(2 * 671e9, rel=0.005)
    assert work.stream_s(1) < 0.8 * stored.stream_s(1)


def test_a_step_touches_few_experts_for_one_request_and_all_for_many(catalog, setup):
    work = Work(replace(setup, model=catalog.resolve(MIXTRAL).model), CONSTANTS)
    assert work.stream_s(1) < 0.35 * work.stream_s(256)
    assert work.stream_s(64) == pytest.approx(work.stream_s(256), rel=0.01)


def test_many_small_experts_take_longer_than_their_bytes(catalog, setup):
    """DeepSeek R1 for 64 clients on 8 x H200: 34.6 ms a token."""
    h200 = catalog.accelerator("H200-141GB")
    large = replace(
        setup, model=catalog.resolve("deepseek-ai/DeepSeek-R1").model, accelerator=h200, num_shard=8,
        interconnect="nvlink", engine=CONSTANTS.engine("SGLang", "0.5.7"),
        numerics=speed_numerics.of_words("fp8-block", "fp16", h200),
    )  # fmt: skip
    assert seen(large, prompt=1024, output=1024, clients=64, kv=1e9).tpot_s == pytest.approx(34.6e-3, rel=0.15)
    assert Work(large, CONSTANTS).stream_s(64) > 1.3 * Work(large, CONSTANTS).weight_bytes * 0.8 / (8 * 4.8e12)


def test_a_model_with_experts_in_some_layers_keeps_its_size(catalog, setup):
    model = catalog.resolve("meta-llama/Llama-4-Maverick-17B-128E-Instruct").model
    work = Work(replace(setup, model=model), CONSTANTS)
    assert work.weight_bytes == pytest.approx(2 * model.parameters, rel=0.01)
    assert seen(replace(setup, model=model)).tpot_s > 0


def test_a_sliding_window_limits_kv_reads(catalog, setup):
    windowed = Work(replace(setup, model=catalog.resolve("mistralai/Mistral-7B-v0.1").model), CONSTANTS)
    assert windowed.seen(1000) == 1000
    assert windowed.seen(20_000) == 4096
    mixed = Work(replace(setup, model=catalog.resolve("google/gemma-3-27b-it").model), CONSTANTS)
    assert 1024 < mixed.seen(6000) == pytest.approx(1024 * 5 / 6 + 6000 / 6)


@pytest.mark.parametrize(
    ("name", "shards", "expected"), [(LLAMA, 1, 131_072), (LLAMA, 16, 262_144), ("Qwen/Qwen2.5-7B-Instruct", 1, 57_344)]
)
def test_kv_bytes_match_engine_logs_and_copied_heads(catalog, name, shards, expected):
    assert kv_bytes_per_token(catalog.resolve(name).model, 16, shards) == expected


def test_latent_attention_keeps_its_latents_on_every_card(catalog):
    model = catalog.resolve("deepseek-ai/DeepSeek-V3").model
    assert kv_bytes_per_token(model, 16, 1) == 61 * 576 * 2
    assert kv_bytes_per_token(model, 16, 8) == 8 * 61 * 576 * 2


def test_engines_without_graphs_never_step_faster_than_they_launch(setup):
    old = replace(CONSTANTS.engine("TGI", "1.0.3"), request_us=0.0)
    tiny = replace(setup.model, parameters=setup.model.parameters // 8, intermediate_size=100)
    work = Work(replace(setup, model=tiny, engine=old), CONSTANTS)
    assert work.step_s(1, 100) == pytest.approx(old.floor_ms * 1e-3 * tiny.layers)
    graphed = replace(old, graph_batch=32)
    assert Work(replace(setup, model=tiny, engine=graphed), CONSTANTS).step_s(32, 100) < work.step_s(32, 100)
    assert Work(replace(setup, model=tiny, engine=graphed), CONSTANTS).step_s(33, 100) == work.step_s(33, 100)


@pytest.mark.parametrize(
    ("words", "card", "kernel", "products"),
    [
        ("bf16", "A10G", "16-bit", "16-bit"), ("fp8", "H100-80GB", "fp8", "fp8"),
        ("fp8", "A100-80GB", "w8a16", "16-bit"),
        ("int8", "L4", "w8a16", "16-bit"), ("int8-w8a8", "L4", "w8a8", "int8"), ("awq-int4", "T4", "int4", "16-bit"),
        ("gptq-int4", "L4", "int4", "16-bit"), ("w4a8", "A100-80GB", "w4a8", "int8"),
        ("mxfp4", "L40S", "mxfp4", "16-bit"),
    ],
)  # fmt: skip
def test_weight_formats_name_kernels(catalog, words, card, kernel, products):
    found = speed_numerics.of_words(words, "fp8", catalog.accelerator(card))
    assert (found.kernel, found.products, found.kv_bits) == (kernel, products, 8)


def test_schemes_name_kernels(catalog):
    def kernel(method, bits, card, native=None):
        scheme = Scheme(
            name=method, hub_id="a/b", bits=bits, lost_bits=0, prequantized=False, method=method, native_fp8=native
        )
        return speed_numerics.of_scheme(scheme, catalog.accelerator(card), 16).kernel

    assert kernel("fp8", 8, "H100-80GB", (9, 0)) == "fp8"
    assert kernel("fp8", 8, "L4", (9, 0)) == "w8a16"
    assert kernel("awq", 4.16, "L4") == "int4"
    assert kernel("eetq", 8, "L4") == "w8a16"
    assert kernel("bitsandbytes-nf4", 4.5, "L4") == "bitsandbytes"
    assert kernel("bitsandbytes", 8, "L4") == "bitsandbytes-int8"


def test_plans_get_intervals_around_their_medians(catalog):
    scheme = Scheme(name="none", hub_id=LLAMA, bits=16, lost_bits=0, prequantized=False)
    eight = Traffic(input_tokens=1024, output_tokens=256, clients=8)
    found = performance.predict(
        catalog.resolve(LLAMA).model, scheme, catalog.accelerator("L4"), 78643, eight, num_shard=1,
        interconnect="none", constants=CONSTANTS, scheduling=Scheduling(profile="tgi"),
    )  # fmt: skip
    assert found.ttft_ms_span.low < found.ttft_ms < found.ttft_ms_span.high
    assert found.tpot_ms_span.low < found.tpot_ms < found.tpot_ms_span.high
    assert found.output_tokens_per_s_span.low < found.output_tokens_per_s < found.output_tokens_per_s_span.high
    assert found.tokens_per_s_per_user == pytest.approx(1000 / found.tpot_ms)
    assert 16.1e9 / 300e9 * 1e3 < found.tpot_ms < 130  # an L4 streams 16 GB at 300 GB/s at best
    assert found.saturation_concurrency >= 1


def test_every_accelerator_has_a_prediction(catalog, setup):
    for name, accelerator in catalog.accelerators().items():
        found = seen(replace(setup, accelerator=accelerator, num_shard=2, interconnect=accelerator.interconnect))
        assert 0 < found.tpot_s < found.e2e_s, name
        assert found.ttft_s > 0, name


def test_every_shape_has_a_prediction(catalog, setup):
    for name, engine in zip(catalog.hub_ids(), itertools.cycle(ENGINES), strict=False):
        found = seen(replace(setup, model=catalog.resolve(name).model, engine=CONSTANTS.engine(*engine)))
        assert 0 < found.tpot_s < found.e2e_s, (name, engine)
