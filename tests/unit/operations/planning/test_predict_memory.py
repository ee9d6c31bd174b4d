"""Memory rows: exact for exact records, close for engine logs, conservative if memory runs out."""

from __future__ import annotations

import csv
import io
import statistics
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tgi_deploy import data_files
from tgi_deploy.operations.planning.memory_formats import format_of, metric_of, version_key
from tgi_deploy.operations.planning.predict import predict_cases
from tgi_deploy.operations.planning.predict_memory import COLUMNS, predict_memory_row
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = data_files.profiles_dir() / "memory" / "measured.csv"
ROWS = list(csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()))
EXACT = [row for row in ROWS if row["exactness"] in {"exact", "derived"}]
CATALOG = open_catalog()
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
QWEN = "Qwen/Qwen3-0.6B"


def error_of(row: Mapping[str, str]) -> float:
    made = predict_memory_row(row, CATALOG)
    assert made.error is None
    assert made.value is not None
    return abs(made.value - float(row["value"])) / abs(float(row["value"]))


def row_of(**changes: str) -> dict[str, str]:
    row = dict.fromkeys(ROWS[0], "")
    usual = {"model": LLAMA, "quant": "none", "weight_dtype": "bf16", "gpu": "H100-80GB", "gpu_memory_gib": "79.18",
             "n_gpu": "1", "tp": "1", "engine": "vLLM", "engine_version": "0.11", "max_model_len": "16000",
             "gpu_memory_utilization": "0.9", "metric": "kv_cache_gib_per_gpu", "unit": "GiB"}  # fmt: skip
    return row | usual | changes


def value_of(**changes: str) -> float:
    made = predict_memory_row(row_of(**changes), CATALOG)
    assert made.error is None
    assert made.value is not None
    return made.value


def test_computed_rows_are_exact() -> None:
    """To a tenth of a percent; a format written without zero points is 0.4 % smaller than its name says."""
    assert EXACT
    for row in EXACT:
        assert error_of(row) <= (0.005 if "gptq" in row["quant"] else 0.001), row["id"]


def test_every_row_is_predicted_within_an_interval_around_the_median() -> None:
    for row in ROWS:
        made = predict_memory_row(row, CATALOG)
        assert made.error is None, row["id"]
        assert made.low is not None
        assert made.high is not None
        assert made.value is not None
        assert made.low <= made.value <= made.high


@pytest.mark.parametrize(
    ("metrics", "most"),
    [({"kv_cache", "kv_cache_tokens"}, 0.02), ({"nvidia_smi"}, 0.03), ({"peak_gpu_memory"}, 0.04), ({"weights"}, 0.01)],
)
def test_medians_match_measurements(metrics: set[str], most: float) -> None:
    errors = [error_of(row) for row in ROWS if metric_of(row).name in metrics]
    assert len(errors) >= 4
    assert statistics.median(errors) <= most


def test_a_file_of_rows_is_predicted_in_order() -> None:
    answers = predict_cases(FILE.read_text(encoding="utf-8"), CATALOG)
    assert len(answers) == len(ROWS)
    assert [answer["value"] for answer in answers] == [predict_memory_row(row, CATALOG).value for row in ROWS]
    assert set(ROWS[0]) >= COLUMNS


def test_the_parts_add_up_to_the_share() -> None:
    parts = [value_of(metric=f"{name}_gib_per_gpu") for name in ("weights", "kv_cache")]
    parts += [value_of(metric=name) for name in ("activation_peak_gib", "non_torch_gib")]
    assert sum(parts) == pytest.approx(0.9 * 79.18)


@pytest.mark.parametrize("engine", ["vLLM", "TGI", "SGLang", "TensorRT-LLM"])
def test_a_larger_share_gives_a_larger_cache(engine: str) -> None:
    sizes = [
        value_of(engine=engine, engine_version="", gpu_memory_utilization=share) for share in ("0.6", "0.8", "0.95")
    ]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("engine", ["vLLM", "TGI"])
def test_more_gpus_hold_fewer_weights_each(engine: str) -> None:
    held = [value_of(engine=engine, metric="weights_gib_per_gpu", tp=tp) for tp in ("1", "2", "4", "8")]
    assert held == sorted(held, reverse=True)
    assert all(half > whole / 2 for whole, half in pairwise(held))


def test_a_model_that_does_not_fit_has_no_kv_cache() -> None:
    big = {"model": "meta-llama/Llama-3.1-70B-Instruct", "gpu": "A10G", "gpu_memory_gib": "22.2"}
    for engine in ("vLLM", "TGI", "SGLang", "TensorRT-LLM"):
        assert value_of(engine=engine, **big) == 0
        assert value_of(engine=engine, metric="fits", unit="", **big) == 0
        assert value_of(engine=engine, metric="oom", unit="", **big) == 1
    assert value_of(engine="transformers", metric="fits", unit="", **big) == 0


def test_a_context_longer_than_the_cache_does_not_fit() -> None:
    card = {"gpu": "L4", "gpu_memory_gib": "22.03", "metric": "fits", "unit": ""}
    assert value_of(max_model_len="8192", **card) == 1
    assert value_of(max_model_len="65536", **card) == 0
    assert value_of(max_model_len="", **card) == 0


def test_only_tgi_holds_a_tied_head_twice() -> None:
    table = 151_936 * 1024 * 2
    twice = value_of(model=QWEN, engine="TGI", metric="weights_bytes", unit="bytes")
    assert twice - value_of(model=QWEN, metric="weights_bytes", unit="bytes") == pytest.approx(table, abs=2)


def test_graphs_are_counted_unless_the_notes_say_eager() -> None:
    old = {"engine_version": "0.5.4", "metric": "nvidia_smi_mib_per_gpu", "unit": "MiB"}
    assert value_of(**old) > value_of(notes="eager", **old) == pytest.approx(0.9 * 79.18 * 1024)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metric": "temperature"}, "metric"),
        ({"model": "nobody/knows-this"}, "nobody/knows-this"),
        ({"tp": "two"}, "tp is 'two'"),
        ({"tp": "0"}, "tp is '0'"),
        ({"tp": "1.5"}, "tp is '1.5'"),
        ({"gpu_memory_gib": "-5"}, "gpu_memory_gib"),
        ({"gpu_memory_gib": "inf"}, "gpu_memory_gib"),
        ({"gpu_memory_utilization": "90"}, "gpu_memory_utilization"),
        ({"max_model_len": "8k", "metric": "max_concurrency"}, "max_model_len"),
        ({"quant": "gguf q4_k_m", "weight_dtype": ""}, "gguf q4_k_m"),
        ({"engine": "transformers", "metric": "activation_peak_gib"}, "transformers"),
        ({"gpu_memory_gib": "", "gpu": "Abacus"}, "Abacus"),
    ],
)
def test_a_bad_row_says_why(changes: dict[str, str], says: str) -> None:
    made = predict_memory_row(row_of(**changes), CATALOG)
    assert made.value is None
    assert says in (made.error or "")


def test_a_renamed_copy_is_recognized_by_its_parameters() -> None:
    row = {"metric": "loaded_weight_bytes_16bit", "unit": "bytes"}
    assert value_of(model="someone/a-copy", parameters="8030261248", **row) == 2 * 8_030_261_248


@pytest.mark.parametrize(
    ("quant", "dtype", "bits"),
    [
        ("none", "bf16", 16), ("fp8", "fp8", 8), ("int8 w8a8", "", 8), ("awq int4 g128", "", 4.15625),
        ("gptq int4 g32", "", 4.625), ("gptq int4 no group, act-order", "", 4), ("bnb nf4", "bnb nf4", 4.127),
        ("exl2 3.5bpw", "", 3.5), ("", "w4a16-int4", 4.125),
    ],
)  # fmt: skip
def test_formats(quant: str, dtype: str, bits: float) -> None:
    packed = format_of({"quant": quant, "weight_dtype": dtype})
    assert packed.linear_bits == packed.attention_bits == pytest.approx(bits)


def test_some_formats_pack_only_a_part() -> None:
    assert (format_of({"quant": "mxfp4"}).expert_bits, format_of({"quant": "mxfp4"}).linear_bits) == (4.25, 16)
    assert format_of({"quant": "fbgemm_fp8"}).attention_bits == 16


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vLLM", "vllm"),
        ("TGI", "tgi"),
        ("transformers/AutoAWQ", "autoawq"),
        ("text-generation-inference", "tgi"),
        ("exllama", None),
        ("", None),
    ],
)
def test_engines_of_published_tables(text: str, engine: str | None) -> None:
    assert CATALOG.predictions.memory_engine(text) == engine


def test_versions() -> None:
    assert version_key("0.6-0.7") == (0, 6)
    assert version_key("v0.11.0") > version_key("0.9")
    assert version_key("") == ()


def test_a_checkpoints_count_of_packed_layers_overrides_the_row() -> None:
    """405B in fp8: attention and the edge layers are 16-bit, whatever the row calls the format."""
    big = {"model": "meta-llama/Llama-3.1-405B-Instruct-FP8", "tp": "8", "metric": "weights_gib_per_gpu"}
    assert value_of(quant="fp8", weight_dtype="fp8", **big) == pytest.approx(56.73, abs=0.01)
    assert value_of(quant="fbgemm_fp8", weight_dtype="fp8", **big) == pytest.approx(56.73, abs=0.02)


@pytest.mark.parametrize(
    ("metric", "unit", "name", "scale"),
    [
        ("weights_gib_per_gpu", "GiB", "weights", 2**30),
        ("weights_gib_per_gpu", "", "weights", 2**30),
        ("weights_gib_per_gpu", "MiB per card", "weights", 2**20),
        ("kv_cache_tokens", "tokens", "kv_cache_tokens", 1),
        ("checkpoint_total_bytes", "bytes", "checkpoint_total", 1),
        ("kv_bytes_per_token", "bytes", "kv_bytes_per_token", 1),
        ("fits", "", "fits", 1),
    ],
)
def test_metrics_and_units(metric: str, unit: str, name: str, scale: int) -> None:
    found = metric_of({"metric": metric, "unit": unit})
    assert (found.name, found.scale) == (name, scale)


def test_cache_counts_agree() -> None:
    tokens = value_of(metric="kv_cache_tokens", unit="tokens")
    assert value_of(metric="kv_cache_blocks", unit="") * 16 == tokens
    assert value_of(metric="max_concurrency", unit="") == pytest.approx(tokens / 16_000)
    assert value_of(metric="kv_bytes_per_token", unit="bytes") == 131_072


def test_experts_in_every_second_layer_are_counted_there() -> None:
    maverick = {"model": "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "tp": "8", "metric": "weights_gib_per_gpu"}
    packed = value_of(quant="mxfp4", **maverick)
    assert packed == pytest.approx(value_of(**maverick) * 4.25 / 16, rel=0.15)


def test_a_bad_row_does_not_affect_others() -> None:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(ROWS[0]))
    writer.writeheader()
    writer.writerows([row_of(), row_of(tp="0"), row_of()])
    first, bad, last = predict_cases(file.getvalue(), CATALOG)
    assert bad["value"] is None
    assert first == last
    assert first["low"] < first["value"] < first["high"]


def test_missing_values_of_a_row_use_engine_defaults() -> None:
    left_out = value_of(gpu_memory_utilization="nan", tp="", gpu_memory_gib="")
    assert left_out == value_of(gpu_memory_utilization="0.9", tp="1.0", gpu_memory_gib="nan")


def test_on_demand_engines_hold_the_cache_of_one_request() -> None:
    words = {"engine": "LMDeploy", "metric": "kv_cache_tokens", "unit": "tokens"}
    assert value_of(max_model_len="2048", **words) == 2048
