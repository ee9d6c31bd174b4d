"""Other clouds' list prices: for comparison only, sorted, and validated like every table."""

from __future__ import annotations

import json
from decimal import Decimal

import click
import pytest

from tgi_deploy.cli.main import main
from tgi_deploy.cli.views.plan import elsewhere_text
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.wiring import open_catalog


def test_only_the_same_number_of_the_same_gpu_is_compared():
    found = open_catalog().elsewhere("A100-40GB", 8)
    assert [(item.cloud, item.machine, item.usd_per_hour) for item in found] == [
        ("Azure", "Standard_ND96asr_v4", Decimal("27.197")),
        ("GCP", "a2-highgpu-8g", Decimal("29.38708")),
    ]
    assert open_catalog().elsewhere("L40S", 1) == ()


@pytest.mark.parametrize(
    ("card", "count", "least", "most"),
    [("L4", 1, 0.6, 0.8), ("A100-40GB", 1, 3.6, 3.8), ("A100-80GB-PCIe", 1, 3.6, 3.8), ("H100-80GB", 8, 85, 100)],
)
def test_prices_are_near_published_ones(card, count, least, most):
    found = open_catalog().elsewhere(card, count)
    assert found
    assert all(least <= item.usd_per_hour <= most for item in found)


def test_every_price_has_source_date_and_confidence():
    document = json.loads((profiles_dir() / "elsewhere.json").read_text())
    for row in document["machines"]:
        assert row["source"] in document["sources"]
        assert row["confidence"] in {"low", "medium", "high"}
        assert row["date"] <= document["collected_at"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("accelerator", "H1000", "machines/0/accelerator: is not an accelerator"),
        ("source", "hearsay", "machines/0/source: is not among the sources"),
        ("usd_per_hour", "free", "machines/0/usd_per_hour"),
    ],
)
def test_an_invalid_row_error_names_the_key(tmp_path, key, value, says):
    document = json.loads((profiles_dir() / "elsewhere.json").read_text())
    document["machines"][0][key] = value
    (tmp_path / "elsewhere.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        open_catalog(tmp_path).elsewhere("L4", 1)
    assert caught.value.code == "bad_profile"
    assert says in caught.value.message


def test_the_comparison_is_labeled_and_fits_the_width():
    catalog = open_catalog()
    hardware = catalog.instance_type("g6.xlarge")
    text = click.unstyle(elsewhere_text(hardware, catalog.elsewhere("L4", 1)))
    assert "for comparison only" in text
    assert "g2-standard-4" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "No list price" in elsewhere_text(hardware, ())


def test_only_an_explained_plan_compares(capsys):
    found = []
    for extra in ((), ("--explain",)):
        with pytest.raises(SystemExit):
            main(["plan", "llama3-8b", "--budget", "1", "--json", *extra])
        found.append(json.loads(capsys.readouterr().out)["data"].get("elsewhere"))
    assert found[0] is None
    assert found[1][0]["machine"] == "g2-standard-4"
