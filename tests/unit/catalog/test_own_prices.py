"""`prices.toml`: the user's own prices affect everything that is computed from prices."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tgi_deploy.cli.views.plan import details_text
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from pathlib import Path

HEADER = 'source = "savings plan"\ndate = "2026-11-22"\n'


def price(folder: Path, content: str, name: str, *, market: str = "on-demand") -> Decimal | None:
    (folder / "prices.toml").write_text(HEADER + content)
    offers = open_catalog(folder).offers(("us-east-1",), (market,))
    return next(offer.usd_per_hour for offer in offers if offer.instance_type.name == name)


def listed(name: str, *, market: str = "on-demand") -> Decimal | None:
    offers = open_catalog().offers(("us-east-1",), (market,))
    return next(offer.usd_per_hour for offer in offers if offer.instance_type.name == name)


@pytest.mark.parametrize(
    ("content", "share"),
    [
        ('[percent_off]\n"*" = 25\n', Decimal("0.75")),
        ('[percent_off]\n"*" = 25\ng6e = 50\n', Decimal("0.5")),
        ('[percent_off]\ng6e = 50\n"g6e.xlarge" = 60\n', Decimal("0.4")),
        ("[percent_off]\np5 = 50\n", Decimal(1)),
    ],
)
def test_the_most_specific_percentage_applies(tmp_path, content, share):
    expected = (listed("g6e.xlarge") * share).quantize(Decimal("0.0001"))
    assert price(tmp_path, content, "g6e.xlarge") == expected


def test_a_private_price_wins(tmp_path):
    content = '[percent_off]\n"*" = 25\n[usd_per_hour."us-east-1"]\n"g6e.xlarge" = "1.1"\n'
    assert price(tmp_path, content, "g6e.xlarge") == Decimal("1.1")


def test_spot_prices_are_unchanged(tmp_path):
    assert price(tmp_path, '[percent_off]\n"*" = 25\n', "g6e.xlarge", market="spot") == listed(
        "g6e.xlarge", market="spot"
    )


def test_a_plan_names_the_source_of_its_price(tmp_path):
    (tmp_path / "prices.toml").write_text(HEADER + '[percent_off]\n"*" = 25\n')
    offer = open_catalog(tmp_path).offers(("us-east-1",), ("on-demand",))[0]
    assert (offer.price_source, offer.price_date) == ("prices.toml: savings plan", "2026-11-22")


def credited(folder: Path, content: str) -> Plan:
    (folder / "prices.toml").write_text(HEADER + content)
    made = plan(OptionTexts(model="llama3-13b", instance="g6e.xlarge"), open_catalog(folder), {})
    assert isinstance(made, Plan)
    return made


def test_credits_cover_hours_and_change_no_price(tmp_path):
    made = credited(tmp_path, '[credits]\nusd = "100"\nuntil = 2999-12-31\n')
    billed = credited(tmp_path, "")
    assert made.chosen.cost == billed.chosen.cost
    assert made.chosen.performance == billed.chosen.performance
    found = plan_document(made).cost.credits
    assert found.covers_hours == 53, "$100 at $1.8768 an hour"
    assert found.first_month_usd == Decimal("1270.06"), "$1,370.06 less $100"
    assert "covered by credits for 53 hours" in " ".join(details_text(made, plan_document(made)).split())


def test_more_credits_than_a_month_costs_leave_nothing_to_pay(tmp_path):
    made = credited(tmp_path, '[credits]\nusd = "5000"\nuntil = 2999-12-31\n')
    assert plan_document(made).cost.credits.first_month_usd == 0


def test_expired_credits_are_ignored(tmp_path):
    made = credited(tmp_path, '[credits]\nusd = "100"\nuntil = 2020-12-31\n')
    assert plan_document(made).cost.credits is None


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ('[credits]\nusd = "100"\n', "credits/until"),
        ('[credits]\nusd = "100"\nuntil = "soon"\n', "credits/until"),
        ("[credits]\nusd = -5\nuntil = 2999-12-31\n", "credits/usd"),
        ('[credits]\namount = "5"\n', "credits/amount"),
        ("credits = 5\n", "credits"),
        ('[percent_off]\n"*" = 100\n', "percent_off"),
        ("[percent_off]\ng6e = -1\n", "percent_off"),
        ('[usd_per_hour."us-east-1"]\n"g6e.xlarge" = 1.1\n', "usd_per_hour"),
        ("discount = 5\n", "discount"),
        ("[percent_off]\ng6x = 5\n", "percent_off/g6x"),
        ('[usd_per_hour."us-east-1"]\n"g6e.medium" = "1.1"\n', "usd_per_hour/us-east-1/g6e.medium"),
    ],
)
def test_an_invalid_file_error_names_the_key(tmp_path, content, key):
    with pytest.raises(InputError) as caught:
        price(tmp_path, content, "g6e.xlarge")
    assert caught.value.code == "bad_profile"
    assert f"prices.toml: {key}" in caught.value.message


def test_a_services_prices_have_a_file_of_their_own(tmp_path):
    def at(name: str) -> Decimal | None:
        offers = open_catalog(tmp_path, service="sagemaker").offers(("us-east-1",), ("on-demand",))
        return next(offer.usd_per_hour for offer in offers if offer.instance_type.name == name)

    (tmp_path / "prices.toml").write_text(HEADER + '[percent_off]\n"*" = 50\n')
    assert at("ml.g5.xlarge") == Decimal("1.4084")
    (tmp_path / "sagemaker").mkdir()
    (tmp_path / "sagemaker" / "prices.toml").write_text(HEADER + '[percent_off]\n"ml.g5" = 50\n"ml.g6.xlarge" = 25\n')
    assert at("ml.g5.xlarge") == Decimal("0.7042")
    assert at("ml.g6.xlarge") == Decimal("0.8453")
    assert at("ml.g6e.xlarge") == Decimal("2.61")
