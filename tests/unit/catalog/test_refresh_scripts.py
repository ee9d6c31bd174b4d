"""The scripts that refresh the catalog, on recorded answers of public sources."""

from __future__ import annotations

import importlib
import json
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from moto.utilities.utils import load_resource

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.wiring import open_catalog

REPOSITORY = Path(__file__).parents[3]
HELP = (REPOSITORY / "tests" / "cases" / "catalog" / "launcher-help.txt").read_text()
CATALOG = open_catalog()


sys.path.insert(0, str(REPOSITORY / "scripts"))
refresh_common, refresh_flags, refresh_instances, refresh_model, refresh_prices = (
    importlib.import_module(f"refresh_{name}") for name in ("common", "flags", "instances", "model", "prices")
)


def raw(name: str) -> dict:
    return json.loads((profiles_dir() / name).read_text())


class FakeSession:
    """A boto3 session whose clients page through canned answers: {(service, operation): pages}."""

    def __init__(self, pages: dict[tuple[str, str], list[dict]]) -> None:
        self.pages = pages
        self.asked: list[tuple[str, dict]] = []

    def client(self, service: str, region_name: str) -> SimpleNamespace:
        def paginator(operation: str) -> SimpleNamespace:
            def paginate(**parameters: object) -> list[dict]:
                self.asked.append((operation, parameters))
                return self.pages[service, operation]

            return SimpleNamespace(paginate=paginate)

        return SimpleNamespace(get_paginator=paginator, region_name=region_name)


def test_layout_keeps_the_shipped_files_byte_for_byte():
    layout = refresh_common.layout
    for name, table in (
        ("accelerators.json", "accelerators"),
        ("aws/instance_types.json", "instance_types"),
        ("aws/prices/us-east-1.json", "prices"),
        ("sagemaker/prices/us-east-1.json", "prices"),
        ("models/shapes.json", "shapes"),
        ("engines/tgi/releases/2.0.4.json", "flags"),
    ):
        tables = (table, "architectures")
        assert layout(raw(name), by_entry=tables) == (profiles_dir() / name).read_text(), name


def test_report_says_what_changed_and_writes_only_when_asked(tmp_path, capsys):
    report = refresh_common.report
    path = tmp_path / "x.json"
    path.write_text("old\n")
    report(path, "old\n", "new\n", write=False)
    assert path.read_text() == "old\n"
    assert "+ new" in capsys.readouterr().out
    report(path, "old\n", "new\n", write=True)
    assert path.read_text() == "new\n"


@pytest.fixture(scope="module")
def described() -> dict[str, dict]:
    """What EC2 says about its accelerated types, as the moto library ships it."""
    return load_resource("ec2/resources/instance_types.json")


NAMES = ("g4dn.xlarge", "g5.xlarge", "g6e.48xlarge", "g6f.large", "g7e.2xlarge", "p4de.24xlarge", "p5.48xlarge")


@pytest.mark.parametrize(
    "name", [*NAMES, "inf2.48xlarge", "trn2.48xlarge", "p3dn.24xlarge", "g5g.metal", "dl2q.24xlarge"]
)
def test_the_entry_of_an_instance_type_matches_the_packaged_one(name, described):
    known = raw("aws/instance_types.json")["instance_types"]
    assert refresh_instances.entry(described[name], known[name]["regions"], known, CATALOG) == known[name]


def test_a_new_size_inherits_from_its_family(described):
    known = raw("aws/instance_types.json")["instance_types"]
    expected = known.pop("g6e.12xlarge")
    found = refresh_instances.entry(described["g6e.12xlarge"], expected["regions"], known, CATALOG)
    assert found["quota_on_demand"] == "L-DB2E81BA"
    assert found["memory_mib"] == expected["memory_mib"]


def test_types_that_no_region_offers_are_retired_and_unknown_chips_skipped(described, capsys):
    known = raw("aws/instance_types.json")["instance_types"]
    strange = {**described["g5.xlarge"], "InstanceType": "z9.xlarge", "GpuInfo": {"Gpus": [{"Name": "Z9"}]}}
    plain = {"InstanceType": "m5.large"}
    page = {"InstanceTypes": [described["g5.xlarge"], strange, plain]}
    session = FakeSession({("ec2", "describe_instance_types"): [page]})
    entries = refresh_instances.refreshed(known, ["us-east-1"], session, CATALOG)
    assert entries["g5.xlarge"]["status"] == "offered"
    assert entries["g5.xlarge"]["regions"] == ["us-east-1"]
    assert entries["g6.xlarge"]["status"] == "retired"
    assert entries["p6e-gb200.36xlarge"]["status"] == "bundled"
    assert "z9.xlarge" not in entries
    assert "m5.large" not in entries
    assert "z9.xlarge is left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("Up to 25 Gigabit", 25),
        ("4x 100 Gigabit", 400),
        ("Up to 12.5 Gigabit", 12.5),
        ("High", None),
        ("3200 Gigabit", 3200),
    ],
)
def test_network_text(text, gbps):
    assert refresh_instances.network_gbps(text) == gbps


def product(unit: str = "Hrs", usd: str = "1.8610000000") -> dict:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return {"terms": {"OnDemand": {"A": {"priceDimensions": {"A.1": dimension}}}}}


@pytest.mark.parametrize(
    ("answer", "amount"),
    [
        (product(), Decimal("1.861")),
        (product(usd="0.0000000000"), None),
        (product(unit="Quantity"), None),
        ({"terms": {}}, None),
        ({}, None),
    ],
)
def test_a_product_has_one_price(answer, amount):
    assert refresh_prices.on_demand_usd(answer) == amount


def spot(zone: str, price: str, at: int, name: str = "g6e.xlarge") -> dict:
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": at}


def test_spot_range_takes_the_newest_of_each_zone():
    history = [spot("a", "0.90", 2), spot("a", "9.99", 1), spot("b", "0.70", 2), spot("c", "1.10", 3)]
    assert refresh_prices.spot_range(history) == {"g6e.xlarge": (Decimal("0.70"), Decimal("1.10"))}


def test_price_file_of_a_region(tmp_path):
    session = FakeSession(
        {
            ("ec2", "describe_instance_type_offerings"): [
                {"InstanceTypeOfferings": [{"InstanceType": "g6e.xlarge"}, {"InstanceType": "m5.large"}]}
            ],
            ("ec2", "describe_spot_price_history"): [{"SpotPriceHistory": [spot("a", "0.9", 1), spot("b", "0.8", 1)]}],
            ("pricing", "get_products"): [
                {"PriceList": [json.dumps(product(usd="0")), json.dumps(product(usd="2.5"))]}
            ],
        }
    )
    fresh = refresh_prices.refreshed(
        raw("aws/prices/us-east-1.json"), "us-east-1", ["g6e.xlarge", "g5.xlarge"], session
    )
    assert fresh["prices"]["g6e.xlarge"]["on_demand"]["usd_per_hour"] == "2.5"
    assert fresh["prices"]["g6e.xlarge"]["spot"]["high_usd_per_hour"] == "0.9"
    assert fresh["prices"]["g5.xlarge"]["offered"] is False
    assert fresh["prices"]["g5.xlarge"]["on_demand"]["usd_per_hour"] == "1.006"
    asked = next(parameters for operation, parameters in session.asked if operation == "get_products")
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"} in asked["Filters"]
    path = tmp_path / "aws" / "prices" / "us-east-1.json"
    path.parent.mkdir(parents=True)
    path.write_text(refresh_common.layout(fresh, by_entry=("prices",)))
    supply = open_catalog(tmp_path).supply(release="3.3.7", regions=("us-east-1",), markets=("on-demand",))
    assert [(offer.instance_type.name, offer.usd_per_hour) for offer in supply.offers] == [
        ("g6e.xlarge", Decimal("2.5"))
    ]


def test_price_file_of_a_service(tmp_path):
    session = FakeSession({("pricing", "get_products"): [{"PriceList": [json.dumps(product(usd="1.4100000000"))]}]})
    fresh = refresh_prices.of_service({"source": "x"}, "eu-west-1", ["ml.g5.xlarge"], session, "sagemaker")
    ((_, asked),) = session.asked
    assert asked["ServiceCode"] == "AmazonSageMaker"
    assert {"Type": "TERM_MATCH", "Field": "instanceName", "Value": "ml.g5.xlarge"} in asked["Filters"]
    nothing = FakeSession({("pricing", "get_products"): [{"PriceList": []}]})
    missing = refresh_prices.of_service({}, "eu-west-1", ["ml.g5.2xlarge"], nothing, "sagemaker")
    path = tmp_path / "sagemaker" / "prices" / "eu-west-1.json"
    path.parent.mkdir(parents=True)
    rows = {**fresh, "prices": fresh["prices"] | missing["prices"]}
    path.write_text(refresh_common.layout(rows, by_entry=("prices",)))
    offers = open_catalog(tmp_path, service="sagemaker").offers(("eu-west-1",), ("on-demand",))
    prices = {offer.instance_type.name: (offer.usd_per_hour, offer.estimated) for offer in offers}
    assert prices["ml.g5.xlarge"] == (Decimal("1.41"), False)
    assert "ml.g5.2xlarge" not in prices, "not offered"
    assert prices["ml.g5.4xlarge"][1], "still derived"


def test_flags_of_a_help_text():
    known = CATALOG.release("3.3.7").flags
    found = refresh_flags.flags_of(HELP, known)
    assert "--help" not in found
    assert found["--model-id"] == known["--model-id"]
    assert found["--port"] == known["--port"]
    assert found["--env"] == known["--env"]
    assert found["--trust-remote-code"] == known["--trust-remote-code"]
    assert found["--quantize"].values == ("awq", "fp8", "int2")
    assert found["--dtype"] == known["--dtype"]
    assert (found["--new-count"].kind, found["--new-count"].default) == ("uint", 7)
    assert (found["--new-share"].kind, found["--new-share"].default) == ("float", 0.5)
    assert (found["--new-choice"].kind, found["--new-choice"].values) == ("enum", ("red", "green"))
    assert found["--new-switch"].switch is True


def test_a_flag_difference_becomes_a_readable_release(tmp_path):
    known = CATALOG.release("3.3.7").flags
    found = refresh_flags.flags_of(HELP, known)
    own = {"version": "9.0.0", "released": "2026-02-01", "extends": "3.3.7", "image": "example/tgi:9.0.0"}
    own |= refresh_flags.difference(known, found)
    assert set(own["flags"]) == {"--quantize", "--new-count", "--new-share", "--new-choice", "--new-switch"}
    assert "--num-shard" in own["flags_removed"]
    path = tmp_path / "engines" / "tgi" / "releases" / "9.0.0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(own))
    assert open_catalog(tmp_path).release("9.0.0").flags == found
    assert refresh_flags.difference(known, known) == {}


def test_shape_of_a_config_reads_back(tmp_path):
    config = json.loads((REPOSITORY / "tests" / "cases" / "catalog" / "configs" / "awq.json").read_text())["config"]
    entry = refresh_model.shape_of(config, "acme/tiny", source="a test", license="mit", gated=None)
    assert entry["parameters"] == 8_030_261_248
    assert entry["quantization"] == {"method": "awq", "bits": 4, "group_size": 128}
    assert "sliding_window" not in entry
    path = tmp_path / "models" / "shapes.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"source": "a test", "collected_at": "2026-01-01", "shapes": {"acme/tiny": entry}}))
    model = open_catalog(tmp_path).resolve("acme/tiny").model
    assert model.license == "mit"
    assert model.quantization is not None
    assert model.quantization.group_size == 128


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-2-7b-hf", "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen2.5-7B-Instruct"]
)
def test_entry_of_a_shape_loses_nothing(name):
    shipped = raw("models/shapes.json")["shapes"][name]
    assert refresh_model.shape_table(CATALOG.resolve(name).model) == shipped
