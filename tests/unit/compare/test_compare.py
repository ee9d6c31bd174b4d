from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from tgi_deploy.cli.catalog import catalog_command, compare_text
from tgi_deploy.cli.main import main
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


@pytest.fixture
def compared(catalog):
    def compared(*names: str, region: str = "us-east-1", release: str = "3.3.7"):
        return compare(names, catalog, region=region, release=release)

    return compared


def text(entries) -> str:
    return click.unstyle(compare_text(entries, engine="TGI", region="us-east-1", release="3.3.7", date="2026-11-21"))


def test_a_card_is_priced_by_the_cheapest_machine_that_has_it_whole(compared):
    (entry,) = compared("L4")
    assert entry.price.instance_type == "g6.xlarge"  # g6f.large is cheaper, with an eighth of the card
    gib = Decimal(22888) / 1024
    assert entry.price.usd_per_gib_hour == round(entry.price.usd_per_hour / gib, 6)


def test_a_machine_is_priced_by_itself_over_all_its_cards(compared):
    (entry,) = compared("g5.12xlarge")
    assert (entry.cards, entry.interconnect, entry.price.instance_type) == (4, "pcie", "g5.12xlarge")
    assert entry.price.usd_per_gib_hour == round(entry.price.usd_per_hour / (4 * Decimal(22888) / 1024), 6)


@pytest.mark.parametrize("name", ["A10", "RTX-4090", "MI300X", "TPU-v5e", "p3.2xlarge"])
def test_what_nobody_rents_out_has_no_price(name, compared):
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
def test_what_runs_the_engine(name, verdict, backend, compared):
    running = compared(name)[0].running
    assert (running.verdict, running.backend) == (verdict, backend)
    assert running.reason or verdict == "runs"


def test_the_verdict_is_of_the_release_asked_for(compared):
    assert compared("T4", release="2.1.0")[0].running.verdict == "no"
    assert compared("A10G", release="2.1.0")[0].running.image.endswith(":2.1.0")


def test_names_may_be_mixed_misspelt_and_repeated(compared):
    assert [entry.name for entry in compared("nvidia a10g", "g5.xlarge", "A10G")] == ["A10G", "g5.xlarge"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("A10H", "unknown_accelerator"), ("A100", "ambiguous_accelerator"), ("g5.huge", "unknown_instance_type")],
)
def test_a_name_nobody_knows_is_refused_with_a_hint(name, code, compared):
    with pytest.raises(InputError) as caught:
        compared(name)
    assert caught.value.code == code
    assert caught.value.hint


def test_an_unknown_region_is_refused(compared):
    with pytest.raises(InputError, match="region"):
        compared("L4", region="us-east-9")


def test_every_accelerator_can_be_compared_in_a_hundred_columns(compared, catalog):
    entries = compared("all")
    assert len(entries) == len(catalog.accelerators()) >= 45
    lines = text(entries).splitlines()
    assert max(map(len, lines)) <= 100
    for name in catalog.accelerators():
        assert any(name in line for line in lines), name


def test_every_instance_type_can_be_compared(compared, catalog):
    entries = compared(*catalog.instance_types())
    assert len(entries) == len(catalog.instance_types())
    assert max(map(len, text(entries).splitlines())) <= 100


def test_the_text_flags_what_is_misquoted_and_names_sources(compared):
    shown = text(compared("A10G"))
    assert "FP16 TFLOPS is 70, not 125" in shown
    assert "NVIDIA A10G datasheet for AWS G5" in shown
    assert "Commonly misquoted" not in text(compared("RTX-PRO-4500"))


def test_columns_stand_under_each_other(compared):
    block = text(compared("A10G", "MI300X")).split("\n\n")[1].splitlines()
    assert len({len(line) for line in block}) == 1


def test_the_command_gives_one_json_object(monkeypatch, capsys):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(SystemExit) as end:
        main(["catalog", "compare", "L40S", "Gaudi3", "--json"])
    assert end.value.code == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["region"], data["engine_version"]) == ("eu-central-1", "3.3.7")
    l40s, gaudi3 = data["items"]
    assert l40s["fp16_tflops"] == 362.05
    assert set(l40s["price"]) == {"instance_type", "usd_per_hour", "usd_per_gib_hour", "source", "date"}
    assert gaudi3["price"] is None
    assert gaudi3["engine"]["verdict"] == "runs"
    assert {item["figure"] for item in gaudi3["misquoted"]} == {"fp16_tflops"}


def test_no_name_is_bad_usage():
    assert CliRunner().invoke(catalog_command, ["compare"]).exit_code == 2
