"""The packaged facts about accelerators, machines and prices are consistent."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from tgi_deploy.catalog.names import folded_card
from tgi_deploy.data_files import profiles_dir

PROFILES = profiles_dir()
DATE = re.compile(r"20\d\d-\d\d-\d\d")
PRICE_FILES = sorted((PROFILES / "aws" / "prices").glob("*.json"))


def raw(name: str) -> dict:
    return json.loads((PROFILES / name).read_text())


def test_every_generated_file_has_date_and_source():
    for path in PROFILES.rglob("*.json"):
        content = json.loads(path.read_text())
        assert content.get("source") or content.get("sources"), path
        day = content.get("collected_at") or content.get("date") or content.get("released")
        assert DATE.fullmatch(day), path


def test_packaged_files_contain_no_local_paths():
    for path in PROFILES.rglob("*"):
        if path.is_file():
            content = path.read_text()
            for foreign in ("/work/", "facts/", "shared/"):
                assert foreign not in content, f"{path}: {foreign}"


def test_accelerators_have_memory_bandwidth_and_a_source(catalog):
    known_bases = set(raw("accelerators.json")["memory_basis"])
    for name, entry in raw("accelerators.json")["accelerators"].items():
        chip = catalog.accelerator(name)
        assert 2**32 <= chip.memory_bytes <= 2**39, name
        assert chip.bandwidth_gb_s > 0, name
        assert entry["memory_basis"] in known_bases, name
        assert len(chip.source) > 3, name
        assert chip.confidence in {"high", "medium", "low"}, name


def test_only_nvidia_gpus_have_a_compute_capability(catalog):
    for chip in catalog.accelerators().values():
        assert (chip.compute_capability is not None) == (chip.vendor == "nvidia"), chip.name


def test_no_spelling_matches_two_gpus(catalog):
    owner: dict[str, str] = {}
    for chip in catalog.accelerators().values():
        for spelling in (chip.name, *chip.aliases):
            assert owner.setdefault(folded_card(spelling), chip.name) == chip.name, spelling


def test_every_ec2_gpu_has_its_driver_name(catalog):
    chips = {machine.accelerator.name: machine.accelerator for machine in catalog.instance_types().values()}
    named = {chip.driver_name: name for name, chip in chips.items() if chip.vendor == "nvidia"}
    assert None not in named
    assert {text: catalog.accelerator(text).name for text in named} == named
    assert (named["Tesla T4"], named["NVIDIA H100 80GB HBM3"]) == ("T4", "H100-80GB")


def test_ambiguous_names_match_nothing_but_list_choices(catalog):
    spellings = {folded_card(text) for chip in catalog.accelerators().values() for text in (chip.name, *chip.aliases)}
    for short, choices in raw("accelerators.json")["ambiguous"].items():
        assert folded_card(short) not in spellings, short
        assert len(choices) > 1
        assert set(choices) <= set(catalog.accelerators())


def test_instance_types_are_complete(catalog):
    for machine in catalog.instance_types().values():
        assert machine.accelerator_count >= 1, machine.name
        assert 0 < machine.partition <= 1, machine.name
        assert machine.vcpus > 0, machine.name
        assert machine.ram_bytes >= 2**30, machine.name
        whole = machine.accelerator.memory_bytes
        assert 2**31 <= machine.memory_bytes_per_accelerator <= whole * machine.partition * 1.001, machine.name


def test_quota_codes_look_like_quota_codes(catalog):
    for machine in catalog.instance_types().values():
        for code in (machine.quota_on_demand, machine.quota_spot):
            assert code is None or re.fullmatch(r"L-[0-9A-F]{8}", code), machine.name
        assert machine.quota_on_demand, machine.name


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("g4dn.xlarge", 15360),
        ("g5.xlarge", 22888),
        ("g6.xlarge", 22888),
        ("g6e.xlarge", 45776),
        ("g6f.large", 2861),
        ("g6f.4xlarge", 11444),
        ("g7e.2xlarge", 97887),
        ("p4d.24xlarge", 40960),
        ("p5.48xlarge", 81559),
        ("p5en.48xlarge", 143771),
        ("p6-b200.48xlarge", 183359),
        ("trn2.48xlarge", 98304),
        ("trn2u.48xlarge", 98304),
    ],
)
def test_memory_is_the_usable_amount(catalog, name, mib):
    assert catalog.instance_type(name).memory_bytes_per_accelerator == mib * 2**20


def test_a_fractional_gpu_counts_as_one(catalog):
    fractional = {m.name: m.partition for m in catalog.instance_types().values() if m.partition < 1}
    assert fractional == {
        "g6f.large": 0.125,
        "g6f.xlarge": 0.125,
        "g6f.2xlarge": 0.25,
        "g6f.4xlarge": 0.5,
        "gr6f.4xlarge": 0.5,
    }
    assert all(catalog.instance_type(name).accelerator_count == 1 for name in fractional)


@pytest.mark.parametrize(
    ("name", "interconnect", "network_gbps"),
    [
        ("g6e.xlarge", "none", 20),
        ("g5.12xlarge", "pcie", 40),
        ("g7e.48xlarge", "pcie-p2p", 1600),
        ("g6e.48xlarge", "pcie", 400),
        ("p5.48xlarge", "nvlink", 3200),
        ("p6-b300.48xlarge", "nvlink", 6400),
        ("inf2.48xlarge", "neuronlink", 100),
        ("dl1.24xlarge", "ethernet", 400),
    ],
)
def test_interconnects_have_their_bandwidth(catalog, name, interconnect, network_gbps):
    machine = catalog.instance_type(name)
    assert machine.interconnect == interconnect
    assert machine.network_gbps == network_gbps


def test_only_several_gpus_have_an_interconnect(catalog):
    for machine in catalog.instance_types().values():
        if machine.status != "bundled":
            assert (machine.interconnect == "none") == (machine.accelerator_count == 1), machine.name


def test_capacity_blocks_are_marked(catalog):
    blocks = {m.name for m in catalog.instance_types().values() if m.capacity_block_only}
    assert {"p5e.48xlarge", "trn2.48xlarge", "trn2u.48xlarge", "p6e-gb200.36xlarge"} <= blocks
    assert "p5.48xlarge" not in blocks


def figures():
    for path in PRICE_FILES:
        content = json.loads(path.read_text())
        assert content["region"] == path.stem
        for name, row in content["prices"].items():
            assert isinstance(row["offered"], bool)
            for market in {"on_demand", "spot"} & row.keys():
                if row[market] is not None:
                    yield f"{name} in {path.stem}", name, market, row[market], content["sources"]


def test_every_price_is_positive_and_has_date_and_source(catalog):
    known = catalog.instance_types()
    for where, name, market, figure, sources in figures():
        assert name in known, where
        assert figure["source"] in sources, where
        assert DATE.fullmatch(figure["date"]), where
        amounts = [Decimal(value) for key, value in figure.items() if key.endswith("usd_per_hour")]
        assert amounts
        assert all(0 < amount < 500 for amount in amounts), where
        if market == "spot":
            assert Decimal(figure["low_usd_per_hour"]) <= Decimal(figure["high_usd_per_hour"])
            assert figure["estimated"] is True


def test_every_region_has_prices_and_extras(catalog):
    regions = catalog.regions()
    assert "us-east-1" in regions
    assert set(raw("aws/extras.json")["regions"]) == set(regions)


def test_offers_match_the_files(catalog):
    expected = {
        (name, path.stem)
        for path in PRICE_FILES
        for name, row in json.loads(path.read_text())["prices"].items()
        if row["offered"] and catalog.instance_type(name).status == "offered"
    }
    supply = catalog.supply(release="3.3.7", regions=(), markets=("on-demand",))
    assert {(offer.instance_type.name, offer.region) for offer in supply.offers} == expected
    assert len(supply.offers) == len(expected)


def test_an_unknown_price_is_none_not_zero(catalog):
    offers = catalog.supply(release="3.3.7", regions=(), markets=("on-demand", "spot")).offers
    by_type = {
        offer.usd_per_hour
        for offer in offers
        if offer.instance_type.name == "p5e.48xlarge" and offer.market == "on-demand"
    }
    assert by_type == {None}
    assert all(offer.usd_per_hour is None or offer.usd_per_hour > 0 for offer in offers)
    assert all(offer.price_source and offer.price_date for offer in offers if offer.usd_per_hour)


def test_spot_uses_the_most_expensive_zone(catalog):
    row = raw("aws/prices/us-east-1.json")["prices"]["p4d.24xlarge"]["spot"]
    supply = catalog.supply(release="3.3.7", regions=("us-east-1",), markets=("spot",))
    offer = next(offer for offer in supply.offers if offer.instance_type.name == "p4d.24xlarge")
    assert offer.usd_per_hour == Decimal(row["high_usd_per_hour"]) > Decimal(row["low_usd_per_hour"])
    assert offer.estimated


def test_error_classes_have_unique_codes_and_advice():
    classes = raw("aws/errors.json")["classes"]
    codes = [code for entry in classes.values() for code in entry["codes"]]
    assert len(codes) == len(set(codes))
    assert all(entry["advice"] and entry["action"] for entry in classes.values())


def test_every_early_termination_reason_has_a_class():
    document = raw("aws/errors.json")
    assert document["dead_after_accept"].keys() >= {
        "Server.InsufficientInstanceCapacity", "Server.SpotInstanceTermination", "Client.VolumeLimitExceeded",
    }  # fmt: skip
    assert set(document["dead_after_accept"].values()) <= set(document["classes"])


def test_image_parameters_are_public_and_ordered():
    parameters = raw("aws/amis.json")["parameters"]
    assert parameters[0]["name"].endswith("base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id")
    assert all(entry["name"].startswith("/aws/service/") for entry in parameters)
    assert {entry["root_device"] for entry in parameters} == {"/dev/sda1", "/dev/xvda"}
