"""`plan --own`: the cost of an owned machine, computed by hand, and when it beats each rental."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from tgi_deploy.catalog.owned import owned_machine
from tgi_deploy.cli.main import main
from tgi_deploy.cli.views.own import own_text
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.own import plan_owned
from tgi_deploy.values.owned import Owned, OwnedMachine, break_even_months
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.values.plan import Plan

CASES = {path.stem: tomllib.loads(path.read_text()) for path in sorted(Path("tests/cases/own").glob("*.toml"))}
GOOD = [name for name, case in CASES.items() if "says" not in case["expect"]]
BAD = [name for name in CASES if name not in GOOD]
DGX = CASES["books-by-hand"]["own"]


def owned(
    folder: Path, content: str, model: str = "llama3-70b", *, profiles: Path | None = None, **options: Any
) -> tuple[Plan, Owned]:
    path = folder / "own.toml"
    path.write_text(content)
    outcome = plan_owned(OptionTexts(model=model, **options), owned_machine(path), open_catalog(profiles), {})
    assert isinstance(outcome, tuple)
    return outcome


@pytest.mark.parametrize("name", GOOD)
def test_owned_costs_match_hand_computed_values(tmp_path, name):
    case = CASES[name]
    made, found = owned(tmp_path, case["own"])
    assert [str(line.usd_per_hour) for line in found.lines] == case["expect"].pop("lines")
    for key, expected in case["expect"].items():
        assert str(getattr(found, key)) == str(expected), key
    assert made.chosen.cost.usd_per_hour == sum(line.usd_per_hour for line in made.chosen.cost.lines)


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_file_error_names_the_key(tmp_path, name):
    with pytest.raises(InputError) as caught:
        owned(tmp_path, CASES[name]["own"])
    assert caught.value.code == "bad_profile"
    assert CASES[name]["expect"]["says"] in caught.value.message
    assert "own.toml" in caught.value.message


def test_token_price_is_hourly_cost_over_tokens_per_hour(tmp_path):
    made, found = owned(tmp_path, DGX, utilization="0.5")
    million = made.chosen.cost.usd_per_hour / Decimal(made.chosen.performance.output_tokens_per_s * 0.5 * 3600) * 10**6
    assert found.usd_per_million_output_tokens == pytest.approx(million, rel=Decimal("0.001"))


def test_saved_rent_pays_for_the_purchase() -> None:
    assert break_even_months(Decimal(100_000), Decimal(2_000), Decimal(12_000)) == 10
    assert break_even_months(Decimal(100_000), Decimal(12_000), Decimal(12_000)) is None


def test_every_rental_breaks_even_at_its_own_price(tmp_path):
    _, found = owned(tmp_path, DGX, utilization="0.5")
    assert {rental.market for rental in found.rentals} == {"on-demand", "spot"}
    for rental in found.rentals:
        for months, share in ((rental.break_even_months, 1), (rental.break_even_months_if_switched_off, 0.5)):
            saved = rental.usd_per_hour * Decimal(share) * 730 - found.running_usd_per_month
            assert (months is None) == (saved <= 0)
            assert months is None or float(months * saved) == pytest.approx(292_000, rel=0.02)


def test_rentals_with_the_same_hardware_are_marked(tmp_path):
    _, found = owned(tmp_path, DGX)
    same = [rental.instance_type for rental in found.rentals if rental.same_hardware]
    assert set(same) == {"p5.48xlarge"}


def test_a_private_price_changes_the_break_even(tmp_path):
    (tmp_path / "prices.toml").write_text(
        'source = "EDP"\ndate = "2026-11-22"\n[usd_per_hour."us-east-1"]\n"p5.48xlarge" = "20"\n'
    )
    _, found = owned(tmp_path, DGX, profiles=tmp_path)
    rental = next(item for item in found.rentals if item.same_hardware and item.market == "on-demand")
    assert rental.price_source == "prices.toml: EDP"
    assert rental.usd_per_hour < 21
    assert rental.break_even_months > 20


def test_two_machines_cost_twice_as_much(tmp_path):
    _, one = owned(tmp_path, DGX)
    made, two = owned(tmp_path, f"{DGX}machines = 2\n", replicas="2", num_shard="8")
    assert made.chosen.machines == 2
    assert two.usd_per_hour == 2 * one.usd_per_hour
    assert two.purchase_usd == 2 * one.purchase_usd
    assert two.running_usd_per_month == pytest.approx(2 * one.running_usd_per_month, abs=Decimal("0.01"))


def test_a_slower_link_makes_tokens_more_expensive(tmp_path):
    _, fast = owned(tmp_path, DGX)
    _, slow = owned(tmp_path, f'{DGX}interconnect = "pcie"\n')
    assert slow.usd_per_million_output_tokens > fast.usd_per_million_output_tokens


def test_a_budget_limits_the_rentals(tmp_path):
    _, found = owned(tmp_path, DGX, budget="10")
    assert found.rentals
    assert all(rental.usd_per_hour <= Decimal("10.5") for rental in found.rentals), "billed, and what interruptions add"
    assert found.usd_per_hour > 10, "what is owned is paid for already"


def test_the_environment_overrides_the_file():
    machine = OwnedMachine(
        hardware="8xH100-80GB", purchase_usd=Decimal(1), useful_life_years=Decimal(1), board_w=Decimal(0),
        host_w=Decimal(0), pue=Decimal(1), usd_per_kwh=Decimal(0), utilization=Decimal("0.5"),
    )  # fmt: skip
    environ = {"TGI_DEPLOY_UTILIZATION": "0.25"}
    outcome = plan_owned(OptionTexts(model="llama3-8b"), machine, open_catalog(), environ)
    assert isinstance(outcome, tuple)
    assert outcome[1].utilization == Decimal("0.25")


def test_a_named_market_excludes_the_other(tmp_path):
    _, found = owned(tmp_path, DGX, market="spot")
    assert {rental.market for rental in found.rentals} == {"spot"}


@pytest.mark.parametrize("option", [{"hardware": "1xL4"}, {"instance": "g6.xlarge"}, {"disk": "100"}])
def test_hardware_options_conflict_with_the_file(tmp_path, option):
    with pytest.raises(InputError, match="--own and --") as caught:
        owned(tmp_path, DGX, **option)
    assert caught.value.code == "conflicting_options"


def test_the_owned_page_has_every_line_within_the_width(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, found = owned(tmp_path, f'{DGX}source = "a quote of 2026"\n', utilization="0.3")
    text = click.unstyle(own_text(found))
    assert "$292,000.00 to buy" in text
    assert "a quote of 2026" in text
    assert "p5.48xlarge (8 x H100-80GB)*" in text
    words = " ".join(text.split())
    assert "* The same hardware." in words
    assert "IF SWITCHED OFF" in words
    assert max(map(len, text.splitlines())) <= 100


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        main([*args, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_command_prints_the_owned_costs(tmp_path, capsys):
    (tmp_path / "own.toml").write_text(DGX)
    data = printed(capsys, "plan", "llama3-70b", "--own", str(tmp_path / "own.toml"))["data"]
    assert data["own"]["usd_per_hour"] == data["plan"]["cost"]["usd_per_hour"] == 10.8633
    assert data["own"]["rentals"][0]["break_even_months"] > 0


def test_a_model_that_does_not_fit_has_no_costs(tmp_path, capsys):
    (tmp_path / "own.toml").write_text(DGX.replace("8xH100-80GB", "1xL4"))
    document = printed(capsys, "plan", "llama3-70b", "--own", str(tmp_path / "own.toml"))
    assert document["errors"][0]["code"] == "no_feasible_plan"
    assert "own" not in document["data"]


def test_lock_and_own_exclude_each_other(tmp_path, capsys):
    (tmp_path / "own.toml").write_text(DGX)
    document = printed(capsys, "plan", "llama3-70b", "--own", str(tmp_path / "own.toml"), "--lock", "x.json")
    assert document["errors"][0]["code"] == "conflicting_options"


EXAMPLES = [
    block.partition("\n```")[0]
    for block in Path("docs/money.md").read_text().split("```toml\n")[1:]
    if "purchase_usd" in block
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_documented_examples_produce_a_comparison(tmp_path, example):
    _, found = owned(tmp_path, example)
    same = next(item for item in found.rentals if item.same_hardware and item.market == "on-demand")
    assert same.break_even_months < found.useful_life_years * 12
