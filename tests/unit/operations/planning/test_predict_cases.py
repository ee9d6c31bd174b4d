"""`predict` and `predict --cases`: one prediction per row, in order, also for invalid rows."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.predict import PredictionRequest, answer, predict_cases

ROW = {
    "id": "1", "hub_id": "meta-llama/Llama-3.1-8B", "weight_dtype": "bf16", "kv_dtype": "fp16", "gpu": "L4",
    "n_gpu": "1", "tp": "1", "interconnect": "none", "instance": "", "engine": "vLLM", "engine_version": "0.11.0",
    "input_len": "512", "output_len": "128", "concurrency_or_batch": "4", "load": "closed_loop", "metric": "tpot_ms",
}  # fmt: skip
WORDS = ("--accelerator", "A10G", "--num-shard", "4", "--weights", "fp16", "--kv", "fp16", "--input-tokens", "1024")


def cases(*changes):
    file = io.StringIO()
    writer = csv.DictWriter(file, list(ROW))
    writer.writeheader()
    writer.writerows({**ROW, **change} for change in changes)
    return file.getvalue()


def predicted(catalog, **change):
    (found,) = predict_cases(cases(change), catalog)
    assert "error" not in found, found
    return found["value"]


def run(capsys, *argv):
    exit_code = frame.run(ROOT, ["predict", *argv, "--json"])
    return exit_code, json.loads(capsys.readouterr().out)


def test_rows_keep_their_order_and_intervals(catalog):
    found = predict_cases(cases({}, {"gpu": "H100-80GB"}, {"gpu": "H200-141GB"}), catalog)
    values = [item["value"] for item in found]
    assert values == sorted(values, reverse=True)
    assert all(item["low"] < item["value"] < item["high"] for item in found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hub_id": "nobody/nothing"}, "nobody/nothing"), ({"gpu": "A1000G"}, "A1000G"), ({"gpu": ""}, "gpu is empty"),
        ({"tp": "0"}, "tp is '0'"), ({"tp": "2.5"}, "tp is '2.5'"), ({"input_len": "-5"}, "input_len"),
        ({"input_len": "nan"}, "input_len"), ({"input_len": "inf"}, "input_len"), ({"n_gpu": "1.5"}, "n_gpu"),
        ({"output_len": "1e99"}, "output_len"), ({"concurrency_or_batch": "many"}, "concurrency_or_batch"),
        ({"load": "bursty"}, "load"), ({"metric": "joules"}, "metric"), ({"weight_dtype": "int3"}, "weight_dtype"),
        ({"kv_dtype": "fp2"}, "kv_dtype"), ({"interconnect": "string"}, "interconnect"), ({"engine": ""}, "engine"),
    ],
)  # fmt: skip
def test_a_bad_row_has_its_error_and_does_not_affect_others(catalog, change, reason):
    first, bad, last = predict_cases(cases({}, change, {}), catalog)
    assert reason in bad["error"]
    assert bad["value"] is None
    assert first == last
    assert first["value"] > 0


def test_ragged_rows_are_errors(catalog):
    text = cases({}, {}, {})
    header, first, second, third = text.splitlines()
    found = predict_cases("\n".join([header, first, second + ",more", third.rpartition(",")[0]]), catalog)
    assert [("error" in item) for item in found] == [False, True, True]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", 'hub_id,"gpu\n'])
def test_a_file_of_another_kind_is_refused(catalog, text):
    with pytest.raises(InputError) as caught:
        predict_cases(text, catalog)
    assert caught.value.code == "bad_cases"


def test_an_empty_file_has_no_predictions(catalog):
    assert predict_cases(cases(), catalog) == []


def test_metrics_agree_with_each_other(catalog):
    tpot, ttft, e2e = (predicted(catalog, metric=name) for name in ("tpot_ms", "ttft_ms", "e2e_ms"))
    assert predicted(catalog, metric="decode_tok_s_per_user") == pytest.approx(1000 / tpot)
    requests = predicted(catalog, metric="req_s")
    assert requests == pytest.approx(4 / e2e * 1000)
    assert predicted(catalog, metric="decode_tok_s_total") == pytest.approx(128 * requests)
    assert ttft + 127 * tpot < e2e * 1.02


def test_the_prefill_flag_of_a_case_is_used(catalog):
    def ttft(tokens):
        text = cases({"engine": "TGI", "metric": "ttft_ms", "concurrency_or_batch": "16"})
        header, row = text.splitlines()
        return predict_cases(f"{header},max_batch_prefill_tokens\n{row},{tokens}\n", catalog)[0]

    assert ttft("512")["value"] < ttft("4096")["value"] < ttft("8192")["value"]
    assert "max_batch_prefill_tokens is '-1'" in ttft("-1")["error"]


@pytest.mark.parametrize(
    ("version", "gpu", "flag"),
    [("3.3.5", "A10G", "8327"), ("3.3.5", "T4", "4096"), ("2.0.4", "A10G", "4145"), ("2.2.0", "H100-80GB", "4145")],
)
def test_without_the_flag_the_default_prefill_of_the_release_is_used(catalog, version, gpu, flag):
    """3.x divides the card's TFLOPS by the model's work and falls back to 4,096; 2.x takes 4,095 tokens and 50."""

    def ttft(tokens):
        reported = {"engine": "TGI", "engine_version": version, "gpu": gpu, "tp": "1", "n_gpu": "1"}
        text = cases({**reported, "metric": "ttft_ms", "input_len": "1000", "concurrency_or_batch": "16"})
        header, row = text.splitlines()
        return predict_cases(f"{header},max_batch_prefill_tokens\n{row},{tokens}\n", catalog)[0]

    assert ttft("") == ttft(flag)


def test_replicas_share_clients_and_their_throughput_adds_up(catalog):
    one = predicted(catalog, metric="decode_tok_s_total", concurrency_or_batch="8")
    two = predicted(catalog, metric="decode_tok_s_total", concurrency_or_batch="16", n_gpu="2")
    assert two == pytest.approx(2 * one)


def test_open_load_counts_clients_as_requests_per_second(catalog):
    slow, fast = (predicted(catalog, load="open", concurrency_or_batch=rate, metric="req_s") for rate in ("1", "1.5"))
    assert (slow, fast) == (pytest.approx(1), pytest.approx(1.5))


def test_saturated_uses_the_largest_batch_that_fits(catalog):
    saturated = predicted(catalog, metric="max_throughput_tok_s", concurrency_or_batch="saturated", load="offline")
    alone = predicted(catalog, metric="max_throughput_tok_s", concurrency_or_batch="1", load="offline")
    assert saturated > 3 * alone


def test_engines_have_different_speeds(catalog):
    change = {"gpu": "A10G", "hub_id": "meta-llama/Llama-2-7b-hf"}
    current = predicted(catalog, engine="TGI", engine_version="3.3.7", **change)
    assert predicted(catalog, engine="TGI", engine_version="1.0.3", **change) > current


def test_pcie_on_ec2_goes_through_the_host(catalog):
    change = {"gpu": "L40S", "tp": "4", "n_gpu": "4", "interconnect": "pcie", "metric": "ttft_ms"}
    assert predicted(catalog, instance="g6e.12xlarge", **change) > 2 * predicted(catalog, **change)


def test_common_gpu_names_and_nan_versions_are_accepted(catalog):
    assert predicted(catalog, gpu="a100 80gb", engine_version="nan") == predicted(
        catalog, gpu="A100-80GB", engine_version=""
    )


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"weight_dtype": "BFloat16"}, {"weight_dtype": "bf16"}),
        ({"weight_dtype": "FP8_E4M3"}, {"weight_dtype": "fp8"}),
        ({"weight_dtype": "w8a8"}, {"weight_dtype": "int8-w8a8"}),
        ({"weight_dtype": "AWQ"}, {"weight_dtype": "awq-int4"}),
        ({"weight_dtype": "W4A16"}, {"weight_dtype": "gptq-int4"}),
        ({"kv_dtype": "fp8_e5m2"}, {"kv_dtype": "fp8"}),
        ({"concurrency_or_batch": "Saturated"}, {"concurrency_or_batch": "saturated"}),
        ({"engine": "NVIDIA NIM"}, {"engine": "TensorRT-LLM"}),
        ({"tp": "2", "interconnect": "NVLink 4.0"}, {"tp": "2", "interconnect": "nvlink"}),
        ({"tp": "2", "interconnect": "PCIe Gen4 x16"}, {"tp": "2", "interconnect": "pcie"}),
        ({"tp": "2", "interconnect": "nan"}, {"tp": "2", "interconnect": ""}),
        (
            {"tp": "2", "interconnect": "pcie", "engine": "text-generation-inference", "instance": "nan"},
            {"tp": "2", "interconnect": "pcie", "engine": "TGI"},
        ),
    ],
)  # fmt: skip
def test_synonyms_are_accepted(catalog, change, same):
    assert predicted(catalog, **change) == predicted(catalog, **same)


def test_gpus_without_a_named_link_use_their_default(catalog):
    change = {"gpu": "H100-80GB", "tp": "4", "n_gpu": "4"}
    assert predicted(catalog, interconnect="none", **change) == predicted(catalog, interconnect="nvlink", **change)


@pytest.mark.parametrize("gpu", ["MI300X", "Gaudi2", "Gaudi3", "TPU-v5p"])
def test_gpus_with_their_own_fabric_do_not_use_pcie(catalog, gpu):
    change = {"gpu": gpu, "tp": "8", "n_gpu": "8", "hub_id": "meta-llama/Llama-3.1-70B", "metric": "ttft_ms"}
    over_pcie = predicted(catalog, interconnect="pcie", instance="a machine of EC2", **change)
    assert predicted(catalog, interconnect="", **change) < over_pcie / 2


def test_weights_larger_than_memory_are_an_error(catalog):
    (found,) = predict_cases(cases({"hub_id": "meta-llama/Llama-3.1-70B", "gpu": "H100-80GB"}), catalog)
    assert found["error"] == "the weights take 141.1 GB, but 1 x H100-80GB have 85.5 GB"
    assert predicted(catalog, hub_id="meta-llama/Llama-3.1-70B", gpu="H100-80GB", weight_dtype="fp8") > 0


def test_a_format_for_experts_covers_all_layers_of_a_model_without_any(catalog):
    change = {"load": "batch1", "concurrency_or_batch": "1"}
    mxfp4, sixteen = (predicted(catalog, weight_dtype=name, **change) for name in ("mxfp4", "bf16"))
    assert mxfp4 < sixteen / 2


def test_the_command_prints_every_figure(capsys):
    exit_code, document = run(
        capsys, "meta-llama/Llama-3.1-8B", *WORDS, "--output-tokens", "256", "--concurrency", "16"
    )
    data = document["data"]
    assert exit_code == 0
    assert data["concurrency"] == 16
    assert data["interconnect"] == "pcie"
    assert data["fits"] is True
    for name in ("ttft_ms", "tpot_ms", "tokens_per_s_per_user", "output_tokens_per_s"):
        assert 0 < data[name]["low"] < data[name]["median"] < data[name]["high"]


def test_saturated_is_the_default(capsys):
    _, document = run(capsys, "meta-llama/Llama-3.1-8B", *WORDS)
    assert document["data"]["concurrency"] == document["data"]["saturation_concurrency"] > 16


def test_what_does_not_fit_is_reported(capsys):
    exit_code, document = run(capsys, "meta-llama/Llama-3.1-70B", "--accelerator", "L4")
    assert exit_code == 0
    assert document["data"]["fits"] is False
    assert [item["code"] for item in document["warnings"]] == ["does_not_fit"]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((), "bad_usage"), (("llama3-8b",), "bad_usage"), (("llama3-8b", "--accelerator", "Z9"), "unknown_accelerator"),
        (("nobody", "--accelerator", "L4"), "unknown_model"), (("--cases", "missing.csv"), "unreadable_path"),
        (("llama3-8b", "--cases", "missing.csv"), "bad_usage"),
        (("llama3-8b", "--accelerator", "L4", "--concurrency", "0"), "bad_usage"),
        (("llama3-8b", "--accelerator", "L4", "--concurrency", "9" * 5000), "bad_usage"),
        (("llama3-8b", "--accelerator", "L4", "--weights", "fp3"), "bad_cases"),
    ],
)  # fmt: skip
def test_bad_usage_is_an_input_error(capsys, argv, code):
    exit_code, document = run(capsys, *argv)
    assert exit_code == 2
    assert document["errors"][0]["code"] == code


def test_a_file_of_cases_is_predicted(capsys, tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text("\ufeff" + cases({}, {"gpu": "?"}), encoding="utf-8")
    exit_code, document = run(capsys, "--cases", str(path))
    assert exit_code == 0
    assert ["error" in item for item in document["data"]["predictions"]] == [False, True]
    assert document["warnings"][0]["code"] == "bad_cases"


def test_text_shows_medians_and_intervals(capsys, tmp_path):
    assert frame.run(ROOT, ["predict", "meta-llama/Llama-3.1-8B", "--accelerator", "L4"]) == 0
    out = capsys.readouterr().out
    assert "Time to first token" in out
    assert "80%:" in out
    assert max(map(len, out.splitlines())) <= 110
    path = tmp_path / "cases.csv"
    path.write_text(cases({}, {"gpu": "?"}), encoding="utf-8")
    assert frame.run(ROOT, ["predict", "--cases", str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_single_case_and_a_file_row_get_the_same_result(catalog):
    asked = answer(
        PredictionRequest(
            model=ROW["hub_id"], accelerator="L4", weights="bf16", engine="vllm", engine_version="0.11.0",
            input_tokens=512, output_tokens=128, concurrency=4,
        ),
        catalog,
    )  # fmt: skip
    assert asked.tpot_ms.median == predicted(catalog)
