"""Pinned flags are checked against the release, the request and each configuration's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.request import Request

    MakePlan = Callable[..., Any]


@pytest.fixture
def planned(catalog: Catalog, make_request: Callable[..., Request]) -> Callable[..., Plan | NoFeasiblePlan]:
    def make(model: str, *pins: tuple[str, str], **changes: Any) -> Plan | NoFeasiblePlan:
        request = make_request(model, flags=pins, **changes)
        supply = catalog.supply(release=request.engine_version, regions=("us-east-1",), markets=("on-demand",))
        return make_plan(request, supply, catalog.engine)

    return make


def codes_by_type(made: Plan | NoFeasiblePlan) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rejection in made.rejections:
        found.setdefault(rejection.instance_type, set()).update(rejection.codes)
    return found


def test_a_short_prefill_batch_works_with_chunked_prefill(planned: MakePlan) -> None:
    made = planned("llama3-8b", ("max-batch-prefill-tokens", "1024"))
    assert isinstance(made, Plan)
    assert made.chosen.memory.activation_bytes < planned("llama3-8b").chosen.memory.activation_bytes
    assert "prefill_too_small" in codes_by_type(made)["g4dn.xlarge"]


def test_a_pinned_8_bit_kv_cache_is_read_faster(planned: MakePlan) -> None:
    load = {"instance_type": "g6.xlarge", "quantize": "eetq", "input_tokens": 3000, "output_tokens": 1000}
    wide, narrow = planned("llama3-8b", **load), planned("llama3-8b", ("kv-cache-dtype", "fp8_e4m3fn"), **load)
    assert isinstance(narrow, Plan)
    assert narrow.chosen.performance.tpot_ms < wide.chosen.performance.tpot_ms


def test_the_first_token_follows_the_prefill_batch_and_not_the_size_of_the_memory(planned: MakePlan) -> None:
    """Audit, row 8: two cards of the same compute answered 263 and 716 ms, whatever the flag said."""

    def ttft_ms(instance_type: str, *pins: tuple[str, str]) -> float:
        load = {"concurrency": 8, "input_tokens": 1024, "output_tokens": 256}
        made = planned("llama3.1-70b", *pins, instance_type=instance_type, **load)
        assert isinstance(made, Plan)
        return made.chosen.performance.ttft_ms

    settings = ((("max-batch-prefill-tokens", "1024"),), (), (("max-batch-prefill-tokens", "8192"),))
    forty, eighty = ([ttft_ms(name, *pins) for pins in settings] for name in ("p4d.24xlarge", "p4de.24xlarge"))
    assert 2 * forty[0] < forty[1] < 0.7 * forty[2]
    assert forty == pytest.approx(eighty, rel=0.05)


def test_prompts_share_smaller_batches_where_that_meets_a_limit(planned: MakePlan) -> None:
    """One flag trades the first token for throughput: it is as large as the limits allow, and no smaller."""
    load = {"instance_type": "g6e.xlarge", "quantize": "none", "concurrency": 16}

    def made(ttft_ms: float | None, *pins: tuple[str, str]) -> Any:
        return planned("llama3-8b", *pins, ttft_ms=ttft_ms, **load)

    loose = made(None).chosen
    tight = made(loose.performance.ttft_ms * 0.9).chosen
    assert [it.engine.settings.max_batch_prefill_tokens for it in (loose, tight)] == [4096, 2048]
    assert tight.performance.ttft_ms < loose.performance.ttft_ms * 0.9
    assert tight.performance.output_tokens_per_s <= loose.performance.output_tokens_per_s
    pinned = made(loose.performance.ttft_ms * 0.9, ("max-batch-prefill-tokens", "4096"))
    assert isinstance(pinned, NoFeasiblePlan)
    assert not any(it.settings.max_batch_prefill_tokens < 1040 for it in (loose.engine, tight.engine))


def test_speculation_disables_chunked_prefill(planned: MakePlan) -> None:
    made = planned("llama3-8b", ("speculate", "2"))
    assert made.chosen.engine.settings.max_batch_prefill_tokens == 8191
    with pytest.raises(InputError, match="max-batch-prefill-tokens 2048 must be at least --max-input-tokens 8191"):
        planned("llama3-8b", ("speculate", "2"), ("max-batch-prefill-tokens", "2048"))


def test_a_long_prompt_batch_needs_as_much_cache_as_its_requests(planned: MakePlan) -> None:
    """Its 20,000 tokens are three prompts of the warm-up, each with an answer up to the limit of 8,192."""
    made = planned("llama3-8b", ("max-batch-prefill-tokens", "20000"))
    assert made.chosen.memory.required_kv_tokens == 3 * 8191
    assert made.chosen.memory.kv_capacity_tokens >= 3 * 8191


@pytest.mark.parametrize("method", ["fp8", "eetq", "awq"])
def test_a_pinned_dtype_excludes_incompatible_schemes(planned: MakePlan, method: str) -> None:
    made = planned("llama3-8b", ("dtype", "float16"))
    refused = [r for r in made.rejections if r.quantize == method and r.instance_type == "g6.xlarge"]
    assert refused
    assert all("dtype_with_quantization" in rejection.codes for rejection in refused)
    assert made.chosen.dtype == "float16"


@pytest.mark.parametrize(
    ("model", "value", "works"),
    [
        ("llama3-8b", "fp8_e5m2", True),
        ("llama3-8b", "fp8_e4m3fn", True),
        ("falcon-7b", "fp8_e5m2", False),
        ("qwen3-8b", "fp8_e5m2", False),
    ],
)
def test_an_8_bit_kv_cache_needs_supporting_kernels(planned: MakePlan, model: str, value: str, works: bool) -> None:  # noqa: FBT001 -- a case
    made = planned(model, ("kv-cache-dtype", value))
    assert isinstance(made, Plan) is works
    assert ("kv_cache_dtype_unsupported" in codes_by_type(made).get("g6.xlarge", ())) is not works


def test_an_8_bit_kv_cache_holds_twice_the_tokens(planned: MakePlan) -> None:
    prompts = ("max-batch-prefill-tokens", "1024")
    half = planned("llama3-8b", prompts, ("kv-cache-dtype", "fp8_e5m2")).chosen.memory
    whole = planned("llama3-8b", prompts).chosen.memory
    assert half.kv_bytes_per_token * 2 == whole.kv_bytes_per_token
    assert half.kv_capacity_tokens in {whole.kv_capacity_tokens * 2, whole.kv_capacity_tokens * 2 + 1}


def test_a_padded_model_gets_no_batch_that_its_cache_cannot_hold(planned: MakePlan) -> None:
    """Its cache grows with what is batched; only this flag bounds it."""
    request = {"instance_type": "g6e.xlarge", "quantize": "none"}
    holds = planned("bigscience/bloom-7b1", **request).chosen.memory.kv_capacity_tokens
    pins = [("max-batch-total-tokens", str(tokens)) for tokens in (holds, holds + 1)]
    fits, too_much = (planned("bigscience/bloom-7b1", pin, **request) for pin in pins)
    assert fits.chosen.engine.container.args[-2:] == ("--max-batch-total-tokens", str(holds))
    assert isinstance(too_much, NoFeasiblePlan)
    assert codes_by_type(too_much)["g6e.xlarge"] == {"memory_kv_cache"}
    flash = planned("llama3-8b", ("max-batch-total-tokens", "10000000"), **request)
    assert isinstance(flash, Plan), "the engine ignores it for models with flash attention"


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        (("max-total-tokens", "512"), "less than a planned request of 640 tokens"),
        (("max-input-tokens", "100"), "less than the planned 512"),
        (("max-total-tokens", "8193"), "more than the 8192 that the model supports"),
        (("max-input-tokens", "8192"), "must be below --max-total-tokens 8192"),
        (("max-batch-total-tokens", "4096"), "must be at least 8192"),
        (("validation-workers", "0"), "must be above 0"),
        (("max-batch-size", "0"), "must be above 0"),
        (("max-batch-prefill-tokens", "0"), "must be at least"),
        (("max-concurrent-requests", "7"), "fewer than the planned 8 at once"),
        (("max-concurrent-requests", "0"), "fewer than the planned 8 at once"),
    ],
)
def test_values_that_the_launcher_would_reject_are_rejected(planned: MakePlan, pin: tuple[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        planned("llama3-8b", pin)
    assert refused.value.code == "contradictory_limits"


@pytest.mark.parametrize("fraction", ["0", "1.01", "-0.5", "nan", "1e3", ""])
def test_a_memory_share_is_above_0_and_at_most_1(planned: MakePlan, fraction: str) -> None:
    with pytest.raises(InputError) as refused:
        planned("llama3-8b", ("cuda-memory-fraction", fraction))
    assert refused.value.code == "bad_flag_value"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prometheus-port", "65536"),
        ("max-batch-total-tokens", "4294967296"),
        ("max-best-of", "18446744073709551616"),
        ("cuda-graphs", "1,18446744073709551616"),
        ("cuda-graphs", "1, 2"),
        ("cuda-graphs", "\u00b2"),
        ("max-best-of", "\u00b2"),
    ],
)
def test_a_number_out_of_the_launchers_range_is_rejected(planned: MakePlan, name: str, value: str) -> None:
    with pytest.raises(InputError) as refused:
        planned("llama3-8b", (name, value))
    assert refused.value.code == "bad_flag_value"


@pytest.mark.parametrize(
    ("name", "value"), [("prometheus-port", "65535"), ("cuda-graphs", "1,2"), ("max-concurrent-requests", "8")]
)
def test_boundary_values_are_accepted(planned: MakePlan, name: str, value: str) -> None:
    assert value in planned("llama3-8b", (name, value)).chosen.engine.container.args


@pytest.mark.parametrize("name", ["model-id", "port", "api-key", "num-shard", "quantize", "ngrok-authtoken"])
def test_flags_with_their_own_option_cannot_be_pinned(planned: MakePlan, name: str) -> None:
    with pytest.raises(InputError) as refused:
        planned("llama3-8b", (name, "1"))
    assert refused.value.code == "flag_not_allowed"
    assert refused.value.hint


def test_a_switch_is_written_without_a_value(planned: MakePlan) -> None:
    on = planned("llama3-8b", ("trust-remote-code", "true")).chosen.engine.container.args
    off = planned("llama3-8b", ("trust-remote-code", "false")).chosen.engine.container.args
    assert on[-1] == "--trust-remote-code"
    assert "--trust-remote-code" not in off
