"""Zero regret: the planner's choice is the exhaustive search's choice, for everything that is shipped."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, get_args

import pytest
from builders.requests import shared_catalog
from naive import search as naive

from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.operations.planning.plan import supply_for
from tgi_deploy.planner import plan as plan_module
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan, Rejection
from tgi_deploy.values.request import Preference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.errors import Problem
    from tgi_deploy.planner.evaluation import Evaluation, Evaluator
    from tgi_deploy.values.plan import Candidate, NoFeasiblePlan
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer, Supply

BUDGETS = (Decimal("0.3"), Decimal("0.9"), Decimal("1.2"), Decimal("2.5"), Decimal(25), None)
PREFERENCES: tuple[Preference, ...] = get_args(Preference)
REACHES = (("us-east-1",), ("all",))
UNTOLD = Rejection(
    instance_type="", num_shard=0, quantize="", code="untold", message="", numbers={}, codes=(), region=None,
    market="spot", usd_per_hour=None,
)  # fmt: skip
PRICE_CODES = frozenset({"over_budget", "price_unknown", "capacity_block_only"})


def requested(profile: str, regions: tuple[str, ...]) -> tuple[Request, Supply]:
    catalog = shared_catalog()
    request = resolve(OptionTexts(model=profile, regions=regions), {}, catalog)
    return request, supply_for(request, catalog)


def identity(candidate: Candidate) -> tuple[object, ...]:
    offer = candidate.offer
    return (
        offer.instance_type.name, offer.region, offer.market, candidate.num_shard, candidate.quantize,
        candidate.engine.settings.model_id, candidate.replicas, candidate.cost.usd_per_hour,
    )  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("regions", REACHES, ids=lambda regions: regions[0])
@pytest.mark.parametrize("profile", shared_catalog().profile_names())
def test_the_plan_is_what_exhaustive_search_finds(
    profile: str, regions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, supply = requested(profile, regions)
    share_what_no_budget_changes(monkeypatch, base, supply)
    judged = tuple(naive.verdicts(base, supply))
    found = tuple(naive.choices(base, supply, judged))
    for budget in BUDGETS:
        within = naive.reach(base, supply, judged, budget)
        for prefer in PREFERENCES:
            made = make_plan(replaced(base, budget_usd_per_hour=budget, prefer=prefer), supply, shared_catalog().engine)
            expected = naive.best(found, prefer, budget, within)
            chosen = identity(made.chosen) if isinstance(made, Plan) else None
            assert chosen == (expected.identity if expected else None), (profile, regions, budget, prefer)
        agrees_on_every_configuration(made, judged, found, budget)


class ResumedSearch(Search):
    """One search for the 24 plans of a case: its evaluations and bills know neither budget nor preference.

    Refusals know no preference either, so they are written down for the last one of each budget alone.
    """

    def _rejection(self, offers: list[Offer], evaluation: Evaluation, problems: tuple[Problem, ...] = ()) -> Rejection:
        return super()._rejection(offers, evaluation, problems) if self.request.prefer == PREFERENCES[-1] else UNTOLD


def share_what_no_budget_changes(monkeypatch: pytest.MonkeyPatch, base: Request, supply: Supply) -> None:
    search = ResumedSearch(base, supply, shared_catalog().engine)

    def resumed(request: Request, supply: Supply, engine: Engine, evaluator: Evaluator | None = None) -> Search:
        if evaluator is not None:
            return Search(request, supply, engine, evaluator)
        search.request = request
        search.__dict__.pop("reach", None)
        return search

    monkeypatch.setattr(plan_module, "Search", resumed)


@pytest.mark.parametrize("profile", ["llama3-13b", "qwen2.5-7b"])
def test_sharing_a_search_changes_no_plan(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, supply = requested(profile, ("us-east-1",))
    requests = [
        replaced(base, budget_usd_per_hour=budget, prefer=prefer) for budget in BUDGETS[::2] for prefer in PREFERENCES
    ]
    fresh = [make_plan(request, supply, shared_catalog().engine) for request in requests]
    share_what_no_budget_changes(monkeypatch, base, supply)
    for request, expected in zip(requests, fresh, strict=True):
        made = make_plan(request, supply, shared_catalog().engine)
        told = made if request.prefer == PREFERENCES[-1] else replaced(made, rejections=expected.rejections)
        assert told == expected


def agrees_on_every_configuration(
    made: Plan | NoFeasiblePlan,
    judged: tuple[naive.Verdict, ...],
    found: tuple[naive.Choice, ...],
    budget: Decimal | None,
) -> None:
    """Nothing is refused that works and is affordable, nothing else is taken; and the reasons are the same."""
    assert technical(made.rejections) == Counter((*key_of(v), v.codes) for v in judged if v.codes)
    assert refused_for_their_price(made.rejections) == too_dear(found, budget)
    assert made.considered == sum(rejection.offers for rejection in made.rejections) + sum(
        1 for choice in found if price_code(choice, budget) is None
    )


def key_of(verdict: naive.Verdict) -> tuple[str, int, str]:
    return verdict.instance_type, verdict.num_shard, verdict.way.name


def technical(rejections: tuple[Rejection, ...]) -> Counter[tuple[str, int, str, frozenset[str]]]:
    return Counter(
        (rejection.instance_type, rejection.num_shard, rejection.quantize, codes)
        for rejection in rejections
        if (codes := frozenset(rejection.codes) - PRICE_CODES)
    )


def refused_for_their_price(rejections: tuple[Rejection, ...]) -> Counter[tuple[str, int, str, str]]:
    counts: Counter[tuple[str, int, str, str]] = Counter()
    for rejection in rejections:
        if PRICE_CODES.issuperset(rejection.codes):
            where = (rejection.instance_type, rejection.num_shard, rejection.quantize)
            counts[*where, rejection.code] += rejection.offers
    return counts


def too_dear(found: tuple[naive.Choice, ...], budget: Decimal | None) -> Counter[tuple[str, int, str, str]]:
    return Counter(_too_dear(found, budget))


def _too_dear(found: tuple[naive.Choice, ...], budget: Decimal | None) -> Iterator[tuple[str, int, str, str]]:
    for choice in found:
        code = price_code(choice, budget)
        if code is not None:
            yield choice.instance_type, choice.num_shard, choice.quantize, code


def price_code(choice: naive.Choice, budget: Decimal | None) -> str | None:
    if choice.total is None:
        return "capacity_block_only" if choice.needs_block else "price_unknown"
    return "over_budget" if budget is not None and choice.total > budget else None
