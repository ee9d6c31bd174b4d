"""The price of tokens and months, and when a more expensive machine pays off, with numbers computed by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from builders.plans import candidate, offer

from tgi_deploy.operations.planning.documents import interruptions
from tgi_deploy.planner.breakeven import breakeven, breakevens
from tgi_deploy.planner.cost import served_usd_per_hour
from tgi_deploy.planner.performance import usd_per_million, with_prices
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Cost, Performance, Plan, Span, UsdSpan
from tgi_deploy.values.supply import CostLine, usd_per_month

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer

HUNDRED_A_SECOND = Performance(
    ttft_ms=100, tpot_ms=10, output_tokens_per_s=100, output_tokens_per_s_span=Span(low=80, high=125)
)  # fmt: skip


def machine(usd_per_hour: str, tokens_per_s: float) -> Candidate:
    return candidate(
        offer=offer(usd_per_hour=Decimal(usd_per_hour)),
        cost=Cost(lines=(CostLine(item="instance", usd_per_hour=Decimal(usd_per_hour)),)),
        performance=replaced(HUNDRED_A_SECOND, output_tokens_per_s=tokens_per_s),
    )


def test_a_month_has_730_hours() -> None:
    assert usd_per_month(Decimal("1.8768")) == Decimal("1370.06")


def test_a_million_tokens() -> None:
    """100 tokens a second are 360,000 an hour: at $0.36 an hour a million cost a dollar."""
    assert usd_per_million(Decimal("0.36"), 100) == Decimal(1)
    assert usd_per_million(Decimal("0.36"), 100, 0.25) == Decimal(4)


def test_the_fast_end_of_an_interval_is_the_cheap_one(make_request: Callable[..., Request]) -> None:
    request = make_request("llama3-8b", input_tokens=300, output_tokens=100)
    priced = with_prices(HUNDRED_A_SECOND, Decimal("0.36"), request)
    assert priced.usd_per_million_output_tokens == 1
    assert priced.usd_per_million_output_tokens_span == UsdSpan(low=Decimal("0.8"), high=Decimal("1.25"))
    assert priced.usd_per_million_blended_tokens == Decimal("0.25"), "four tokens in all for one that comes out"
    half = with_prices(HUNDRED_A_SECOND, Decimal("0.36"), replaced(request, utilization=0.5))
    assert (half.usd_per_million_output_tokens, half.utilization) == (2, 0.5)
    assert half.usd_per_million_blended_tokens == Decimal("0.5")


def test_an_hour_of_service_includes_restarts() -> None:
    """Ten interruptions of 730 h / 100 each cost a tenth of a month."""
    a_hundredth_of_a_month_s = 730 * 36
    assert served_usd_per_hour(Decimal(2), Decimal(10), a_hundredth_of_a_month_s) == Decimal("2.2")
    assert served_usd_per_hour(Decimal(2), Decimal(0), a_hundredth_of_a_month_s) == 2


def test_at_equal_spot_prices_fewer_interruptions_win(catalog: Catalog, make_request: Callable[..., Request]) -> None:
    request = make_request("llama3-8b", regions=("us-east-1",), markets=("spot",))
    supply = catalog.supply(release=request.engine_version, regions=request.regions, markets=request.markets)
    often = next(o.interruptions for o in supply.offers if o.interruptions and o.interruptions.band == ">20%")
    seldom = replaced(often, band="<5%", per_month=Decimal("0.025"))

    def offers(price: str) -> tuple[Offer, ...]:
        by_name = {item.instance_type.name: item for item in supply.offers}
        return (
            replaced(by_name["g6.4xlarge"], usd_per_hour=Decimal("0.5"), interruptions=often),
            replaced(by_name["g6.8xlarge"], usd_per_hour=Decimal(price), interruptions=seldom),
        )

    def chosen(price: str) -> str:
        made = make_plan(request, replaced(supply, offers=offers(price)), catalog.engine)
        assert isinstance(made, Plan)
        return made.chosen.offer.instance_type.name

    assert chosen("0.5") == "g6.8xlarge"
    assert chosen("0.5001") == "g6.8xlarge", "a start costs more than that"
    assert chosen("0.51") == "g6.4xlarge", "9 starts a month are not worth two per cent"


def test_interruptions_do_not_rank_configurations_of_one_machine(
    catalog: Catalog, make_request: Callable[..., Request]
) -> None:
    """A smaller download starts sooner, which is not a reason to take slower weights."""
    chosen = []
    for market in ("on-demand", "spot"):
        request = make_request(
            "llama3-70b", regions=("us-east-1",), markets=(market,), instance_type="p5.48xlarge", concurrency=8
        )
        supply = catalog.supply(release=request.engine_version, regions=request.regions, markets=request.markets)
        made = make_plan(request, supply, catalog.engine)
        assert isinstance(made, Plan)
        chosen.append((made.chosen.quantize, made.chosen.num_shard))
    assert chosen[0] == chosen[1]


def test_a_plan_on_demand_has_no_interruptions(catalog: Catalog, make_request: Callable[..., Request]) -> None:
    for market, band in (("on-demand", None), ("spot", ">20%")):
        request = make_request("llama3-8b", regions=("us-east-1",), markets=(market,))
        supply = catalog.supply(release=request.engine_version, regions=request.regions, markets=request.markets)
        made = make_plan(request, supply, catalog.engine)
        assert isinstance(made, Plan)
        found = interruptions(made.chosen)
        assert (found and found.band) == band
        if found is not None:
            low, likely, high = (
                found.served_usd_per_hour_low, found.served_usd_per_hour, found.served_usd_per_hour_high
            )  # fmt: skip
            assert made.chosen.cost.usd_per_hour <= low < likely < high


def test_without_an_hourly_price_tokens_have_none(make_request: Callable[..., Request]) -> None:
    bare = with_prices(HUNDRED_A_SECOND, Decimal(0), make_request("llama3-8b"))
    assert bare.usd_per_million_output_tokens is None
    assert bare.usd_per_million_output_tokens_span is None
    assert bare.usd_per_million_blended_tokens is None


@pytest.mark.parametrize(
    ("chosen", "fallback", "more_expensive", "utilization"),
    [
        (("1", 100), ("2", 400), "fallback", 0.5),  # four times the tokens for twice the money: pays when half busy
        (("2", 400), ("1", 100), "chosen", 0.5),
        (("1", 100), ("3", 200), "fallback", None),  # twice the tokens for three times the money never pays
        (("1", 100), ("2", 200), "fallback", 1.0),
        (("1", 100), ("1", 125), "fallback", 0.8),  # at one price the slower machine is the one to beat
        (("1", 125), ("1", 100), "chosen", 0.8),
    ],
)
def test_breakeven(
    chosen: tuple[str, float], fallback: tuple[str, float], more_expensive: str, utilization: float | None
) -> None:
    found = breakeven(machine(*chosen), machine(*fallback))
    assert (found.more_expensive, found.utilization) == (more_expensive, pytest.approx(utilization))


def test_both_cost_the_same_per_token_at_breakeven() -> None:
    cheap, dear = machine("0.8206", 104.9), machine("1.0208", 166.9)
    share = breakeven(cheap, dear).utilization
    assert share is not None
    at_best = usd_per_million(cheap.cost.usd_per_hour, cheap.performance.output_tokens_per_s)
    there = usd_per_million(dear.cost.usd_per_hour, dear.performance.output_tokens_per_s, share)
    assert float(there) == pytest.approx(float(at_best), abs=1e-3)


def test_each_fallback_has_one_and_owned_machines_have_none(
    catalog: Catalog, make_request: Callable[..., Request]
) -> None:
    request = make_request("llama3-8b")
    supply = catalog.supply(release=request.engine_version, regions=request.regions, markets=request.markets)
    rented = make_plan(request, supply, catalog.engine)
    assert isinstance(rented, Plan)
    assert [item.fallback for item in breakevens(rented)] == list(rented.fallbacks)
    free = machine("0", 100)
    assert list(breakevens(replaced(rented, chosen=free, fallbacks=(free,)))) == []


def test_utilization_prices_tokens_and_changes_nothing_else(
    catalog: Catalog, make_request: Callable[..., Request]
) -> None:
    request = make_request("llama3-8b", prefer="value")
    supply = catalog.supply(release=request.engine_version, regions=request.regions, markets=request.markets)
    busy, idle = (make_plan(item, supply, catalog.engine) for item in (request, replaced(request, utilization=0.25)))
    assert isinstance(busy, Plan)
    assert isinstance(idle, Plan)
    assert busy.chosen.engine == idle.chosen.engine
    assert busy.chosen.offer == idle.chosen.offer
    dear, cheap = (made.chosen.performance.usd_per_million_output_tokens for made in (idle, busy))
    assert dear is not None
    assert cheap is not None
    assert float(dear) == pytest.approx(4 * float(cheap), abs=1e-3)
    assert "token prices assume that load for 25 % of the time" in idle.assumptions
