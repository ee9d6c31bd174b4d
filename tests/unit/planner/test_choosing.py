"""What must hold for every choice, over seeded requests; and that the search over replicas loses nothing."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

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
    from tgi_deploy.values.supply import Supply

MODELS = ("llama3.1-8b", "llama3-13b", "qwen2.5-32b", "llama3.1-70b", "mixtral-8x7b", "gemma2-9b", "qwen2.5-72b")
SEEDS = range(2000)
REPLICAS = Replicas(least=1, most=16)


def drawn(seed: int, make_request: Callable[..., Request], **changes: Any) -> Request:
    """A request with limits that somebody typed."""
    random = Random(seed)  # noqa: S311 -- a seed makes a failure come again
    values: dict[str, Any] = {
        "concurrency": random.choice([1, 4, 8, 16, 40, 100, 250]),
        "input_tokens": random.choice([128, 1024, 3000]),
        "output_tokens": random.choice([64, 256, 800]),
        "ttft_ms": random.choice([300.0, 1000.0, 2500.0]),
        "tpot_ms": random.choice([30.0, 60.0, 120.0]),
        "confidence": random.choice([0.3, 0.5, 0.9]),
        "quality": random.choice(["auto", "exact", "near-lossless", "any"]),
        "slo": random.choice(["default", "none"]),
        "replicas": random.choice([Replicas(), REPLICAS]),
        "regions": ("us-east-1",),
    }
    return make_request(random.choice(MODELS), **(values | changes))


@pytest.fixture(scope="module")
def supply(catalog: Catalog) -> Supply:
    return catalog.supply(release="3.3.7", regions=("us-east-1",), markets=("on-demand",))


@pytest.fixture
def best(catalog: Catalog, supply: Supply) -> Callable[[Request], Configuration | None]:
    def found(request: Request) -> Configuration | None:
        ranked = Search(request, supply, catalog.engine).run().configurations
        return ranked[0] if ranked else None

    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", SEEDS)
def test_more_budget_never_gives_a_worse_plan(
    seed: int, make_request: Callable[..., Request], best: Callable[[Request], Configuration | None]
) -> None:
    request = drawn(seed, make_request, prefer=("cost", "quality", "speed", "value")[seed % 4])
    before = None
    for budget in ("0.9", "2", "5", "8", "25", "70"):
        after = best(replaced(request, budget_usd_per_hour=Decimal(budget)))
        assert before is None or (after is not None and after.key <= before.key)
        before = after


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", SEEDS)
def test_more_load_never_gives_a_cheaper_plan(
    seed: int, make_request: Callable[..., Request], best: Callable[[Request], Configuration | None]
) -> None:
    request = drawn(seed, make_request, slo="none")
    cheapest = Decimal(0)
    for concurrency in (1, 5, 30, 90, 200):
        found = best(replaced(request, concurrency=concurrency))
        if found is None:
            cheapest = Decimal("Infinity")
        else:
            assert found.cost.usd_per_hour >= cheapest
            cheapest = found.cost.usd_per_hour


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_looser_limit_never_costs_more(
    seed: int, make_request: Callable[..., Request], best: Callable[[Request], Configuration | None]
) -> None:
    request = drawn(seed, make_request, slo="none", quality="any")
    loosened = (
        {"ttft_ms": 2 * (request.ttft_ms or 0)}, {"tpot_ms": None}, {"confidence": 0.2}, {"ttft_ms": None},
    )  # fmt: skip
    tight = best(request)
    for change in loosened:
        loose = best(replaced(request, **change))
        assert tight is None or (loose is not None and loose.cost.usd_per_hour <= tight.cost.usd_per_hour), change


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_in_the_frontier_beats_another_point_or_the_choice(
    seed: int, make_request: Callable[..., Request], catalog: Catalog, supply: Supply
) -> None:
    made = make_plan(drawn(seed, make_request), supply, catalog.engine)
    if not isinstance(made, Plan):
        return
    assert sum(point.chosen for point in made.frontier) == 1
    assert sum(point.knee for point in made.frontier) <= 1
    classes = ("exact", "near-lossless", "4-bit")
    figures = [
        (
            point.total_usd_per_hour, -point.output_tokens_per_s, point.ttft_ms, point.tpot_ms,
            classes.index(point.quality_class),
        )
        for point in made.frontier
    ]  # fmt: skip
    for mine in figures:
        assert not any(
            other != mine and all(theirs <= ours for theirs, ours in zip(other, mine, strict=True)) for other in figures
        )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", SEEDS)
def test_counting_every_number_of_replicas_finds_nothing_cheaper(
    seed: int, make_request: Callable[..., Request], catalog: Catalog, supply: Supply
) -> None:
    """The search looks at few numbers, on machines that they fill; here each one is looked at."""
    request = drawn(seed, make_request, replicas=REPLICAS)
    search = Search(request, supply, catalog.engine)
    ranked = search.run().configurations
    counted = list(every_arrangement(search))
    enough = [item.cost.usd_per_hour for item in counted if not item.key[0].missed and not item.key[0].coarse]
    met = [item for item in ranked if not item.key[0].missed and not item.key[0].coarse]
    assert bool(enough) == bool(met)
    if enough:
        assert ranked[0].cost.usd_per_hour == min(enough)


def every_arrangement(search: Search) -> Iterator[Configuration]:
    evaluator = search.evaluator
    for offers in search.by_type().values():
        hardware = offers[0].instance_type
        for num_shard in evaluator.shard_counts(hardware):
            most = min(REPLICAS.most or 1, MOST_MACHINES * slots(hardware, num_shard))
            for scheme in evaluator.schemes:
                for replicas in range(1, most + 1):
                    evaluation = evaluator.evaluation(hardware, num_shard, scheme, replicas)
                    if not evaluation.problems:
                        found = search.configuration(offers[0], evaluation)
                        if found is not None:
                            yield found
