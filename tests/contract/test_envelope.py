"""The JSON contract: the exact keys of the envelope and of each document, and the exit codes, of real commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tgi_deploy import __version__, errors
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT

SCHEMAS = json.loads((Path(__file__).parents[2] / "docs" / "schemas.json").read_text(encoding="utf-8"))
ENVELOPE = ["schema", "command", "status", "exit_code", "data", "warnings", "errors"]
CHOICE = {
    "instance_type", "region", "market", "accelerator", "accelerator_count", "num_shard", "quantize", "dtype",
    "usd_per_hour", "total_usd_per_hour", "quality_class", "replicas", "machines", "engine",
    "output_tokens_per_s", "price_date", "estimated", "streaming_only",
}  # fmt: skip


def run(capsys, *argv):
    exit_code = frame.run(ROOT, [*argv, "--json"])
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert list(document) == ENVELOPE
    assert document["schema"] == 2
    assert document["exit_code"] == exit_code
    assert document["status"] == ("error" if exit_code else "ok")
    assert bool(document["errors"]) is bool(exit_code)
    assert all(item.keys() == {"code", "message"} for item in document["warnings"])
    assert all(item.keys() == {"code", "message", "hint"} for item in document["errors"])
    return document


def test_version(capsys):
    assert run(capsys, "--version")["data"] == {"version": __version__}


def test_plan(capsys):
    document = run(capsys, "plan", "llama3-13b", "--budget", "5")
    assert document["command"] == "plan"
    assert document["data"].keys() == {"plan"}
    plan = document["data"]["plan"]
    assert plan.keys() == {
        "model", "requirements", "chosen", "cost", "memory", "performance", "storage", "time_to_ready", "engine",
        "quality_class", "slo", "frontier", "alternatives", "fallbacks", "breakeven", "rejections",
        "considered", "assumptions", "notices", "catalog_date", "interruptions",
    }  # fmt: skip
    assert plan["chosen"].keys() == CHOICE
    assert all(item.keys() == CHOICE for item in plan["fallbacks"])
    assert plan["model"].keys() >= {"id", "params", "weights_bytes"}
    assert plan["cost"].keys() == {"usd_per_hour", "usd_per_month", "lines", "credits"}
    assert all(line.keys() == {"item", "usd_per_hour"} for line in plan["cost"]["lines"])
    assert plan["memory"].keys() >= {"per_accelerator", "kv_capacity_tokens", "required_kv_tokens"}
    assert plan["memory"]["per_accelerator"].keys() >= {
        "total_bytes", "weights_bytes", "kv_cache_bytes", "activation_bytes", "overhead_bytes",
    }  # fmt: skip
    assert plan["performance"].keys() == {
        "ttft_ms", "tpot_ms", "output_tokens_per_s", "usd_per_million_output_tokens",
        "ttft_ms_low", "ttft_ms_high", "tpot_ms_low", "tpot_ms_high", "output_tokens_per_s_low",
        "output_tokens_per_s_high", "usd_per_million_output_tokens_low", "usd_per_million_output_tokens_high",
        "usd_per_million_blended_tokens", "utilization", "ttft_ms_p95", "tpot_ms_p95",
    }  # fmt: skip
    assert all(
        item.keys() == {
            "instance_type", "region", "market", "num_shard", "quantize", "usd_per_million_output_tokens",
            "more_expensive", "utilization",
        } for item in plan["breakeven"]
    )  # fmt: skip
    assert len(plan["breakeven"]) == len(plan["fallbacks"]) > 0
    assert plan["engine"].keys() >= {"name", "version", "image", "args", "env"}
    assert all(
        item.keys() >= {"instance_type", "num_shard", "quantize", "code", "message"} for item in plan["rejections"]
    )


def test_the_example_of_the_readme_is_planned(capsys):
    plan = run(capsys, "plan", "llama3-13b", "--budget", "5")["data"]["plan"]
    chosen = plan["chosen"]
    assert (chosen["instance_type"], chosen["accelerator"], chosen["accelerator_count"]) == ("g5.xlarge", "A10G", 1)
    assert (chosen["num_shard"], chosen["quantize"], chosen["dtype"]) == (1, "fp8", "bfloat16")
    assert chosen["usd_per_hour"] == 1.006
    assert sum(line["usd_per_hour"] for line in plan["cost"]["lines"]) == pytest.approx(plan["cost"]["usd_per_hour"])
    refused = {(item["instance_type"], code) for item in plan["rejections"] for code in item["codes"]}
    assert ("g5.12xlarge", "over_budget") in refused
    assert ("g4dn.xlarge", "arch_flash_attention") in refused
    assert any(name.startswith("g7e.") and code == "arch_no_kernels" for name, code in refused)
    assert ("g5.xlarge", "memory_weights") in refused


def test_a_tight_budget_quantizes(capsys):
    chosen = run(capsys, "plan", "llama3-13b", "--budget", "1.2")["data"]["plan"]["chosen"]
    assert chosen["accelerator"] in {"L4", "A10G"}
    assert chosen["quantize"] != "none"


def test_no_plan(capsys):
    document = run(capsys, "plan", "llama3-13b", "--budget", "0.3")
    assert document["exit_code"] == 3
    assert [item["code"] for item in document["errors"]] == ["no_feasible_plan"]
    data = document["data"]
    assert data.keys() == {"requirements", "near_misses", "rejections", "considered", "catalog_date"}
    assert all(miss.keys() == {"code", "message", "option", "chosen"} for miss in data["near_misses"])
    assert any(miss["option"].startswith("--budget ") for miss in data["near_misses"])
    assert data.keys() <= SCHEMAS["$defs"]["ErrorData"]["properties"].keys()
    Draft202012Validator({**SCHEMAS, **SCHEMAS["error"]}).validate(data)


def test_no_plan_on_turing(capsys):
    document = run(capsys, "plan", "llama3-8b", "--instance", "g4dn.12xlarge")
    assert document["exit_code"] == 3
    assert {item["code"] for item in document["data"]["rejections"]} == {"arch_flash_attention"}


def test_a_near_miss_is_ready_to_paste(capsys):
    """Whatever the hint offers is a command line that works."""
    argv = ["plan", "llama3-13b", "--budget", "0.3"]
    hint = run(capsys, *argv)["errors"][0]["hint"]
    words = shlex.split(hint[hint.index("tgi-deploy") :])
    assert run(capsys, *words[1:])["exit_code"] == 0


def test_an_owned_machine_has_no_price(capsys):
    plan = run(capsys, "plan", "llama3-13b", "--hardware", "2xRTX-4090")["data"]["plan"]
    assert plan["chosen"]["usd_per_hour"] is None
    assert plan["chosen"]["market"] == "owned"


@pytest.mark.parametrize("kind", ["docker", "compose", "user-data", "launch-template"])
def test_render(capsys, kind):
    argv = ["render", "llama3-13b", "--budget", "5", "--as", kind]
    document = run(capsys, *argv)
    assert document["data"].keys() == {"artifact"}
    artifact = document["data"]["artifact"]
    assert artifact.keys() == {"kind", "file_name", "text", "sha256", "out"}
    assert artifact["kind"] == kind
    assert frame.run(ROOT, argv) == 0
    assert capsys.readouterr().out == artifact["text"]


def test_render_to_a_file(capsys, tmp_path):
    target = tmp_path / "compose.yaml"
    argv = ["render", "llama3-13b", "--budget", "5", "--as", "compose"]
    text = run(capsys, *argv)["data"]["artifact"]["text"]
    assert frame.run(ROOT, [*argv, "--out", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert target.read_text() == text


@pytest.mark.parametrize("kind", ["accelerators", "instances", "regions", "engines", "models"])
def test_catalog_list(capsys, kind):
    data = run(capsys, "catalog", "list", kind)["data"]
    terms = {"region", "engine_version", "catalog_date"} if kind in {"accelerators", "instances"} else set()
    assert data.keys() == {"kind", "items"} | terms
    assert data["items"]
    assert len({tuple(item) for item in data["items"]}) == 1, "every item has the same keys"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("L40S", "accelerator"), ("g6e.xlarge", "instance"), ("3.3.7", "engine"), ("llama3-13b", "model")],
)
def test_catalog_show(capsys, name, kind):
    data = run(capsys, "catalog", "show", name)["data"]
    assert data.keys() == {"kind", "item"}
    assert data["kind"] == kind


def test_profile_list_and_show(capsys):
    profiles = run(capsys, "profile", "list")["data"]["profiles"]
    assert all(item.keys() == {"name", "hub_id", "summary"} for item in profiles)
    shown = run(capsys, "profile", "show", "llama3-13b")["data"]["profile"]
    assert shown.keys() == {"name", "model", "summary", "notice", "chat", "quantized", "defaults"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(capsys, shell):
    completion = run(capsys, "completion", shell)["data"]["completion"]
    assert "_TGI_DEPLOY_COMPLETE" in completion["script"]


def test_exit_codes_match_the_contract():
    classes = (
        errors.DeployError,
        errors.InputError,
        errors.NoFeasiblePlanError,
        errors.ConflictError,
        errors.NotHealthyError,
        errors.LeftBehindError,
        errors.InterruptedByUserError,
    )
    assert [error.exit_code for error in classes] == [1, 2, 3, 4, 5, 6, 130]
