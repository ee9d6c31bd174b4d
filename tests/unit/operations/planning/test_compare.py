from __future__ import annotations

import json
from decimal import Decimal

import pytest
from click.testing import CliRunner

from tgi_deploy.cli.catalog import catalog_command
from tgi_deploy.cli.frame import run
from tgi_deploy.cli.main import ROOT, main
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare


@pytest.fixture
def tool(capsys):
    """Run the program; return exit code and stdout."""

    def tool(*argv: str) -> tuple[int, str]:
        return run(ROOT, argv), capsys.readouterr().out

    return tool


@pytest.fixture
def compared(catalog):
    def compared(*names: str, region: str = "us-east-1", release: str = "3.3.7"):
        return compare(names, catalog, region=region, release=release)

    return compared


def test_a_gpu_is_priced_by_the_cheapest_machine_with_a_whole_one(compared):
    (entry,) = compared("L4")
    assert entry.price.instance_type == "g6.xlarge"  # g6f.large is cheaper, with an eighth of the card
    gib = Decimal(22888) / 1024
    assert entry.price.usd_per_gib_hour == round(entry.price.usd_per_hour / gib, 6)


def test_a_machine_price_covers_all_its_gpus(compared):
    (entry,) = compared("g5.12xlarge")
    assert (entry.accelerator_count, entry.interconnect, entry.price.instance_type) == (4, "pcie", "g5.12xlarge")
    assert entry.price.usd_per_gib_hour == round(entry.price.usd_per_hour / (4 * Decimal(22888) / 1024), 6)


@pytest.mark.parametrize("name", ["A10", "RTX-4090", "MI300X", "TPU-v5e", "p3.2xlarge"])
def test_unrentable_hardware_has_no_price(name, compared):
    assert compared(name)[0].price is None


@pytest.mark.parametrize(
    ("name", "verdict", "backend"),
    [
        ("A10G", "runs", "CUDA image"),
        ("H200-141GB", "runs", "CUDA image"),
        ("T4", "override", "CUDA image"),
        ("B200", "no", None),
        ("V100-32GB", "no", None),
        ("GH200-96GB", "no", None),
        ("g5g.xlarge", "no", None),
        ("g6f.large", "by_hand", "CUDA image"),
        ("MI300X", "runs", "ROCm image"),
        ("MI325X", "by_hand", "ROCm image"),
        ("Radeon-Pro-V520", "no", None),
        ("Gaudi2", "runs", "Gaudi image"),
        ("Gaudi", "by_hand", "Gaudi image"),
        ("inf2.xlarge", "by_hand", "Neuron image"),
        ("Inferentia", "no", None),
        ("TPU-v6e", "by_hand", "image of optimum-tpu"),
        ("Qualcomm-AI100", "no", None),
    ],
)
def test_supported_hardware_runs_the_engine(name, verdict, backend, compared):
    running = compared(name)[0].engine
    assert (running.verdict, running.backend) == (verdict, backend)
    assert running.reason or verdict == "runs"


def test_the_verdict_is_for_the_requested_release(compared):
    assert compared("T4", release="2.1.0")[0].engine.verdict == "no"
    assert compared("A10G", release="2.1.0")[0].engine.image.endswith(":2.1.0")


def test_names_may_be_mixed_misspelt_and_repeated(compared):
    assert [entry.name for entry in compared("nvidia a10g", "g5.xlarge", "A10G")] == ["A10G", "g5.xlarge"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("A10H", "unknown_accelerator"), ("A100", "unknown_accelerator"), ("g5.huge", "unknown_instance_type")],
)
def test_an_unknown_name_is_rejected_with_a_hint(name, code, compared):
    with pytest.raises(InputError) as caught:
        compared(name)
    assert caught.value.code == code
    assert caught.value.hint


def test_an_unknown_region_is_refused(compared):
    with pytest.raises(InputError, match="region"):
        compared("L4", region="us-east-9")


@pytest.mark.parametrize(("kind", "dates"), [("accelerators", "2026-07-20"), ("instances", "2026-07-20 to 2026-09-27")])
def test_every_entry_of_a_kind_is_listed_in_a_hundred_columns(kind, dates, tool, catalog):
    exit_code, out = tool("catalog", "list", kind)
    header, *lines, prices = out.splitlines()
    assert (exit_code, prices) == (0, f"Prices: listed {dates}.")
    assert header.split()[-2:] == ["$/H", "ENGINE"]
    own = [*getattr(catalog, {"instances": "instance_types"}.get(kind, kind))()]
    listed = [line.split()[0] for line in lines]
    assert listed[: len(own)] == own
    assert all(name.startswith("ml.") for name in listed[len(own) :]), "then those of services"
    assert max(map(len, [header, *lines])) <= 100


def test_named_hardware_is_one_table_in_the_order_of_the_names(tool):
    *lines, _ = tool("catalog", "list", "MI300X", "g5.12xlarge", "a10g")[1].splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["MI300X", "MI300X", "1"],
        ["g5.12xlarge", "A10G", "4"],
        ["A10G", "A10G", "1"],
    ]
    assert len({line.rindex(line.split()[-1]) for line in lines}) == 1, "the last column stands under its title"


def test_a_hardware_page_has_price_verdict_source_and_misquoted_figures(tool):
    shown = " ".join(tool("catalog", "show", "A10G")[1].split())
    assert "instance_type g5.xlarge" in shown
    assert "verdict runs" in shown
    assert "FP16 TFLOPS is 70, not 125" in shown
    assert "NVIDIA A10G datasheet for AWS G5" in shown
    assert "Commonly misquoted" not in tool("catalog", "show", "RTX-PRO-4500")[1]


def test_the_command_gives_one_json_object(monkeypatch, capsys):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(SystemExit) as end:
        main(["catalog", "list", "L40S", "Gaudi3", "--json"])
    assert end.value.code == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["region"], data["engine_version"]) == ("eu-central-1", "3.3.7")
    l40s, gaudi3 = data["items"]
    assert l40s["fp16_tflops"] == 362.05
    assert set(l40s["price"]) == {
        "instance_type", "usd_per_hour", "usd_per_gib_hour", "source", "date", "estimated"
    }  # fmt: skip
    assert gaudi3["price"] is None
    assert gaudi3["engine"]["verdict"] == "runs"
    assert {item["figure"] for item in gaudi3["misquoted"]} == {"fp16_tflops"}


def test_a_missing_name_is_bad_usage():
    assert CliRunner().invoke(catalog_command, ["list"]).exit_code == 2
