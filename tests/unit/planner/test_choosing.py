"""Laws for every choice, over seeded requests; scripts/choosing.py runs thousands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from builders.requests import drawn, supply_of
from builders.samples import quick
from naive.laws import broken, regret

from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.replicas import MOST_MACHINES, slots
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan
from tgi_deploy.values.request import Replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.request import Request

ONCE_BROKEN = (
    513, 1181, 1353, 1387, 1787, 2317, 2487, 2871, 3008, 3046, 3067, 3143, 3391, 4030, 4133, 4519, 4631, 4717, 6787,
)  # fmt: skip
REPLICAS = Replicas(least=1, most=16)


@pytest.mark.parametrize("seed", quick(range(5), 2))
def test_the_laws_of_choosing_hold(seed: int) -> None:
    assert list(broken(seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_requests_that_once_broke_a_law_keep_it(seed: int) -> None:
    assert list(broken(seed)) == []


@pytest.mark.parametrize("seed", quick(range(100, 110), 4))
def test_brute_force_finds_the_same(seed: int) -> None:
    assert list(regret(seed)) == []


@pytest.mark.parametrize("seed", quick(range(100, 110), 3))
def test_brute_force_finds_the_same_among_the_machines_of_a_service(seed: int) -> None:
    assert list(regret(seed, "sagemaker")) == []


def test_idle_replicas_do_not_hide_arrivals(make_request: Callable[..., Request], catalog: Catalog) -> None:
    """With so few requests that some replicas are mostly idle, all tokens are still counted."""
    request = make_request(
        "llama3.1-8b", arrivals_per_s=0.05, concurrency=2, replicas=Replicas(least=8, most=8), regions=("us-east-1",)
    )
    made = make_plan(request, supply_of(request), catalog.engine)
    assert isinstance(made, Plan)
    assert made.chosen.performance.output_tokens_per_s == pytest.approx(0.05 * request.output_tokens)


def test_alternatives_start_with_the_cheaper_ones(make_request: Callable[..., Request], catalog: Catalog) -> None:
    """Four bits on one H100 for a third of the price are worth knowing, before further cards for more money."""
    request = make_request("llama3.1-70b", regions=("us-east-1",))
    made = make_plan(request, supply_of(request), catalog.engine)
    assert isinstance(made, Plan)
    first = made.alternatives[0]
    assert (made.chosen.quality, first.quality) == ("exact", "4-bit")
    assert first.cost.usd_per_hour < made.chosen.cost.usd_per_hour / 3


def test_a_median_within_the_goal_shows_its_probability(make_request: Callable[..., Request], catalog: Catalog) -> None:
    request = make_request("llama3.1-8b", concurrency=85, confidence=0.9, instance_type="g6e.xlarge")
    made = make_plan(request, supply_of(request), catalog.engine)
    assert isinstance(made, Plan)
    (missed,) = (text for text in made.notices if "default service level" in text)
    assert re.search(r"about \d\d ms, default limit 80, met with a chance of \d\d% \(--tpot-ms\)", missed)


def test_a_load_too_high_for_any_machine_gets_the_nearest(
    make_request: Callable[..., Request], catalog: Catalog
) -> None:
    """No cheaper machine than a smaller load has, on which each of the requests would wait longer."""
    request = make_request("llama3.1-8b", input_tokens=1024, output_tokens=256, regions=("us-east-1",))
    prices = []
    for concurrency in (64, 16384):
        made = make_plan(replaced(request, concurrency=concurrency), supply_of(request), catalog.engine)
        assert isinstance(made, Plan)
        prices.append(made.chosen.cost.usd_per_hour)
    assert prices == sorted(prices)


def test_a_rented_machine_is_fully_used(make_request: Callable[..., Request], catalog: Catalog) -> None:
    """NodeLabels that are left idle cost as much, up to one for each of the requests in flight."""
    request = make_request("llama3.1-8b", concurrency=6, replicas=REPLICAS, instance_type="g6.48xlarge", num_shard=1)
    made = make_plan(request, supply_of(request), catalog.engine)
    assert isinstance(made, Plan)
    assert (made.chosen.replicas, made.chosen.machines) == (6, 1)


@pytest.mark.parametrize("arrivals_per_s", [0.5, 1, 2, 4])
def test_arrivals_equal_their_requests_in_flight(
    arrivals_per_s: float, make_request: Callable[..., Request], catalog: Catalog
) -> None:
    """Little's law: those in flight are those that arrive in the time of one, and are served as fast."""
    load = {"instance_type": "p5.4xlarge", "quantize": "fp8", "slo": "none", "regions": ("us-east-1",)}
    arriving = make_request("qwen2.5-32b", arrivals_per_s=arrivals_per_s, concurrency=64, **load)
    opened = make_plan(arriving, supply_of(arriving), catalog.engine)
    assert isinstance(opened, Plan)
    speed = opened.chosen.performance
    seconds = (speed.ttft_ms + arriving.output_tokens * speed.tpot_ms) / 1000
    in_flight = make_request("qwen2.5-32b", concurrency=round(arrivals_per_s * seconds), **load)
    closed = make_plan(in_flight, supply_of(in_flight), catalog.engine)
    assert isinstance(closed, Plan)
    assert closed.chosen.performance.output_tokens_per_s == pytest.approx(speed.output_tokens_per_s, rel=0.1)
    assert closed.chosen.performance.tpot_ms == pytest.approx(speed.tpot_ms, rel=0.1)


def test_the_fewest_equally_near_replicas_are_chosen(make_request: Callable[..., Request], catalog: Catalog) -> None:
    """More replicas would not make it faster."""
    request = make_request(
        "qwen3-30b-a3b", input_tokens=1024, output_tokens=256, concurrency=2, replicas=REPLICAS, regions=("us-east-1",)
    )
    made = make_plan(request, supply_of(request), catalog.engine)
    assert isinstance(made, Plan)
    assert made.chosen.replicas == 1
    assert any("not even for a single request" in notice for notice in made.notices)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 208))
def test_no_other_number_of_replicas_is_cheaper(seed: int, catalog: Catalog) -> None:
    """The search looks at few numbers, on machines that they fill; here each one is looked at."""
    request = replaced(drawn(seed), replicas=REPLICAS, prefer="cost", budget_usd_per_hour=None, max_machines=None)
    search = Search(request, supply_of(request), catalog.engine)
    ranked = search.run().configurations
    counted = list(every_arrangement(search))
    enough = [item.cost.usd_per_hour for item in counted if not item.key[0].missed and not item.key[0].coarse]
    met = [item for item in ranked if not item.key[0].missed and not item.key[0].coarse]
    assert bool(enough) == bool(met)
    if enough:
        assert ranked[0].cost.usd_per_hour == min(enough)


def every_arrangement(search: Search) -> Iterator[Configuration]:
    evaluator = search.evaluator
    for offers in search.by_type.values():
        hardware = offers[0].instance_type
        machines = 1 if search.request.hardware else MOST_MACHINES
        for num_shard in evaluator.shard_counts(hardware):
            most = min(REPLICAS.most or 1, machines * slots(hardware, num_shard))
            for scheme in evaluator.schemes:
                for replicas in range(1, most + 1):
                    evaluation = evaluator.evaluation(hardware, num_shard, scheme, replicas)
                    if not evaluation.problems:
                        for offer in offers:
                            found = search.configuration(offer, evaluation)
                            if found is not None:
                                yield found
