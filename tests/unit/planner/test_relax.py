"""Minimal changes compared with brute force: every subset of axes, every amount."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from builders.requests import shared_catalog
from builders.samples import THOROUGH, quick, some

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.relax import AXES, in_order, minimal, relaxations
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan, Plan
from tgi_deploy.values.request import Replicas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.planner.relax import Relaxation
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

CENT = Decimal("0.01")

# A handful of machines in two regions: small enough to count every amount through.
SMALL = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g6.12xlarge")
SMALL_REGIONS = ("us-east-1", "eu-west-1")

SYNTHETIC: dict[str, dict[str, Any]] = {
    "dear": {"budget": "0.5", "context": "2048"},
    "dear-and-long": {"model": "llama3.1-8b", "budget": "0.9", "context": "40000", "quantize": "none"},
    "many-at-once": {"model": "mistral-7b", "budget": "1", "context": "2048", "concurrency": "90", "quantize": "none",
                     "ttft_ms": "2500"},
    "odd-shards": {"num_shard": "3", "budget": "0.6", "context": "2048"},
    "pinned-small": {"model": "llama2-13b", "instance": "g5.xlarge", "quantize": "none", "context": "2000"},
    "slow-and-dear": {"budget": "0.2", "concurrency": "1", "ttft_ms": "30", "market": "spot"},
    "old-card": {"instance": "g4dn.xlarge", "context": "2048", "concurrency": "2"},
    "wrong-size": {"model": "llama3-70b", "budget": "2", "context": "2000", "concurrency": "2"},
    "pinned-flags": {"model": "llama3.1-8b", "context": "60000", "set": ("max-input-tokens=1500",), "quantize": "none",
                     "budget": "0.9", "concurrency": "1"},
    "more-in-all": {"min_tokens_per_s": "900", "budget": "1.2", "context": "2048", "concurrency": "8"},
    "fewer-but-enough": {"model": "mistral-7b", "budget": "1", "context": "2048", "concurrency": "90",
                         "quantize": "none", "min_tokens_per_s": "250", "ttft_ms": "2500"},
    "quick-and-many": {"model": "mistral-7b", "budget": "1", "context": "2048", "concurrency": "60",
                       "quantize": "none", "min_tokens_per_s": "300", "tpot_ms": "90"},
    "coarse": {"model": "llama2-13b", "quality": "exact", "budget": "0.9", "context": "2048", "concurrency": "4"},
    "of-many-bits": {"model": "llama2-13b", "min_bits": "8", "instance": "g6.xlarge", "context": "4096",
                     "quantize": "bitsandbytes-nf4"},
    "arriving": {"model": "mistral-7b", "rps": "3", "budget": "0.9", "context": "2048"},
    "arriving-at-several": {"model": "mistral-7b", "rps": "5", "replicas": "2..4", "max_machines": "2",
                            "context": "2048", "instance": "g6.xlarge"},
    "too-slow-for-one": {"model": "mistral-7b", "ttft_ms": "400", "concurrency": "40", "context": "2048"},
    "short-of-slots": {"model": "llama2-13b", "instance": "g6.xlarge", "context": "4096", "concurrency": "8",
                       "quantize": "eetq", "num_shard": "1", "budget": "0.9", "ttft_ms": "2500"},
}  # fmt: skip

REAL: dict[str, dict[str, Any]] = {
    "three-shards": {"model": "llama3-70b", "budget": "1", "num_shard": "3"},
    "nowhere": {"model": "llama3-8b", "regions": ("ap-east-1",)},
    "owned": {"model": "llama3-70b", "hardware": "2xRTX-4090", "context": "8192"},
    "queueing": {"model": "llama3.1-8b", "hardware": "1xL4", "concurrency": "250", "tpot_ms": "5", "context": "4096",
                 "input_tokens": "64", "output_tokens": "128"},
}  # fmt: skip


@cache
def small_supply() -> Supply:
    every = shared_catalog().supply(
        release=shared_catalog().default_release, regions=SMALL_REGIONS, markets=("on-demand", "spot")
    )  # fmt: skip
    return replaced(every, offers=tuple(offer for offer in every.offers if offer.instance_type.name in SMALL))


def requested(given: dict[str, Any]) -> Request:
    return resolve(OptionTexts(**({"model": "llama3-8b", "regions": ("us-east-1",)} | given)), {}, shared_catalog())


@cache
def answered(name: str) -> tuple[Request, Supply, tuple[Relaxation, ...]]:
    request = requested(SYNTHETIC[name] if name in SYNTHETIC else REAL[name])
    supply = small_supply() if name in SYNTHETIC else everything(request)
    return request, supply, relaxations(request, supply, shared_catalog().engine)


def everything(request: Request) -> Supply:
    if request.hardware:
        return shared_catalog().owned_supply(release=request.engine_version, hardware=request.hardware)
    return shared_catalog().supply(
        release=request.engine_version, regions=shared_catalog().regions(), markets=("on-demand", "spot")
    )  # fmt: skip


def met(request: Request, supply: Supply) -> Plan | None:
    """The cheapest plan with the offers that the request admits, and no others."""
    offers = tuple(o for o in supply.offers if o.region in request.regions and o.market in request.markets)
    try:
        made = make_plan(replaced(request, prefer="cost"), replaced(supply, offers=offers), shared_catalog().engine)
    except InputError:
        return None
    return made if isinstance(made, Plan) else None


def lenient(request: Request, axes: frozenset[str], supply: Supply) -> Request:
    """The request with everything about these axes given up."""
    given_up: dict[str, dict[str, Any]] = {
        "budget": {"budget_usd_per_hour": None},
        "quantize": {"quantize": "auto"},
        "context": {"context_tokens": least_context(request, supply)},
        "concurrency": {"concurrency": 1},
        "region": {"regions": tuple({offer.region for offer in supply.offers})},
        "market": {"markets": tuple({offer.market for offer in supply.offers})},
        "num_shard": {"num_shard": None},
        "instance": {"instance_type": None},
        "allow_turing": {"allow_turing": True},
        "ttft": {"ttft_ms": None},
        "tpot": {"tpot_ms": None},
        "throughput": {"min_tokens_per_s": None},
        "quality": {} if request.quality == "auto" else {"quality": "any"},
        "min_bits": {"min_bits": None},
        "rps": {} if request.arrivals_per_s is None else {"arrivals_per_s": 0.01},
        "replicas": {"replicas": Replicas(least=1, most=64)},
        "max_machines": {"max_machines": None},
    }
    for axis in sorted(axes):
        request = replaced(request, **given_up[axis])
    return request


def least_context(request: Request, supply: Supply) -> int:
    """Counted up, as far as a pinned flag says that it is too short."""
    for context in range(request.input_tokens + request.output_tokens, request.context_tokens):
        try:
            make_plan(replaced(request, context_tokens=context), replaced(supply, offers=()), shared_catalog().engine)
        except InputError:
            continue
        return context
    return request.context_tokens


def brute_force(request: Request, supply: Supply) -> set[frozenset[str]]:
    """Every subset of axes, small before large, those with an enough subset left out."""
    enough: set[frozenset[str]] = set()
    axes = [axis for axis in AXES if lenient(request, frozenset({axis}), supply) != request]
    for size in range(1, len(axes) + 1):
        for subset in map(frozenset, combinations(axes, size)):
            if "replicas" in subset and subset & {"concurrency", "rps"}:
                continue  # more replicas are looked at for the whole load alone
            if not any(known <= subset for known in enough) and met_somewhere(request, subset, supply):
                enough.add(subset)
    return enough


def met_somewhere(request: Request, axes: frozenset[str], supply: Supply) -> bool:
    """With these axes given up; where few requests at once may be too few, every concurrency is tried."""
    given_up = lenient(request, axes, supply)
    if request.min_tokens_per_s is None or not {"concurrency"} <= axes <= set(AXES) - {"throughput"}:
        return met(given_up, supply) is not None
    return any(met(replaced(given_up, concurrency=value), supply) for value in range(1, request.concurrency))


def unhurried(names: Iterable[str], slowest: str) -> list[str]:
    """Return the names; `slowest` takes 5 s by brute force, and only THOROUGH=1 has them."""
    return [name for name in names if THOROUGH or name != slowest]


QUICK = ("dear", "odd-shards", "pinned-small", "old-card", "wrong-size", "too-slow-for-one", "arriving-at-several")
NAMES = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in (*SYNTHETIC, *REAL)]


@pytest.mark.parametrize("name", quick(unhurried(SYNTHETIC, "quick-and-many"), 3))
def test_the_sets_are_all_minimal_ones(name: str) -> None:
    request, supply, found = answered(name)
    assert met(request, supply) is None, "a case that needs no change shows nothing"
    assert {frozenset(item.axes) for item in found} == brute_force(request, supply)


@pytest.mark.slow
@pytest.mark.parametrize("name", unhurried(["owned", "nowhere", "three-shards"], "three-shards"))
def test_the_sets_are_all_minimal_ones_in_the_whole_catalog(name: str) -> None:
    request, supply, found = answered(name)
    assert {frozenset(item.axes) for item in found} == brute_force(request, supply)


@pytest.mark.parametrize("name", NAMES)
def test_each_set_is_enough_and_none_contains_another(name: str) -> None:
    request, supply, found = answered(name)
    assert found
    for item in found:
        made = met(item.request, supply)
        assert made is not None, item.axes
        assert made.chosen.cost.usd_per_hour == item.candidate.cost.usd_per_hour or limits_speed(item.axes)
        assert {axis for axis in AXES if changed(axis, request, item.request)} == set(item.axes)
        for other in found:
            assert other is item or not set(other.axes) <= set(item.axes)


def limits_speed(axes: tuple[str, ...]) -> bool:
    return bool({"ttft", "tpot", "throughput"} & set(axes))


FIELDS = {
    "budget": "budget_usd_per_hour", "quantize": "quantize", "context": "context_tokens", "concurrency": "concurrency",
    "region": "regions", "market": "markets", "num_shard": "num_shard", "instance": "instance_type",
    "allow_turing": "allow_turing", "ttft": "ttft_ms", "tpot": "tpot_ms",
    "throughput": "min_tokens_per_s", "quality": "quality", "min_bits": "min_bits", "rps": "arrivals_per_s",
    "replicas": "replicas", "max_machines": "max_machines",
}  # fmt: skip


def changed(axis: str, request: Request, relaxed: Request) -> bool:
    return bool(getattr(request, FIELDS[axis]) != getattr(relaxed, FIELDS[axis]))


def a_step_less(item: Relaxation) -> Iterator[tuple[str, Request]]:
    """The relaxed request with one amount a step nearer to what was asked for."""
    request = item.request
    if "budget" in item.axes and request.budget_usd_per_hour is not None:
        yield "budget", replaced(request, budget_usd_per_hour=request.budget_usd_per_hour - CENT)
    if "context" in item.axes:
        yield "context", replaced(request, context_tokens=request.context_tokens + 1)
    if "concurrency" in item.axes:
        yield "concurrency", replaced(request, concurrency=request.concurrency + 1)
    if "ttft" in item.axes and request.ttft_ms is not None:
        yield "ttft", replaced(request, ttft_ms=request.ttft_ms - 1)
    if "tpot" in item.axes and request.tpot_ms is not None:
        yield "tpot", replaced(request, tpot_ms=round(request.tpot_ms - 0.1, 1))
    if "throughput" in item.axes and request.min_tokens_per_s is not None:
        yield "throughput", replaced(request, min_tokens_per_s=round(request.min_tokens_per_s + 0.1, 1))


@pytest.mark.parametrize("name", NAMES)
def test_amounts_are_exact_to_the_step(name: str) -> None:
    _, supply, found = answered(name)
    for item in found:
        chosen = frozenset(item.axes) & {"quantize", "region", "market", "num_shard", "instance"}
        for axis, nearer in a_step_less(item):
            open_choices = lenient(nearer, chosen, supply)
            assert met(open_choices, supply) is None, (item.axes, axis)


COUNTED = (
    ("dear-and-long", "context"),
    ("fewer-but-enough", "concurrency"),
    ("many-at-once", "concurrency"),
    ("pinned-flags", "context"),
    ("owned", "context"),
    ("owned", "concurrency"),
    ("short-of-slots", "concurrency"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "axis"), some(COUNTED, 2))
def test_no_larger_amount_works_anywhere_in_the_range(name: str, axis: str) -> None:
    """Every value is tried, where bisection tries only some."""
    request, supply, found = answered(name)
    field = FIELDS[axis]
    given_up = [item for item in found if axis in item.axes]
    assert given_up
    for item in given_up:
        others = frozenset(item.axes) - {axis} - ({"context"} if axis == "concurrency" else frozenset())
        fixed = {"context_tokens": item.request.context_tokens} if axis == "concurrency" else {}
        open_choices = replaced(lenient(request, others, supply), **fixed)
        asked, amount = getattr(request, field), getattr(item.request, field)
        for value in range(amount + 1, asked, max(1, (asked - amount) // 200)):
            assert met(replaced(open_choices, **{field: value}), supply) is None, (item.axes, value)


CHOICES: dict[str, tuple[Any, ...]] = {
    "model": ("llama3-8b", "llama3.1-8b", "llama2-13b", "llama3-70b", "gemma2-9b"),
    "budget": ("0.2", "0.5", "0.9", "1.5", None),
    "quantize": ("none", "eetq", "awq", "fp8", None, None),
    "context": ("1500", "2048", "4096", "8192", None),
    "concurrency": ("1", "4", "16", "64", "200"),
    "num_shard": ("1", "3", "4", None, None, None),
    "instance": (*SMALL, None, None, None, None, None),
    "ttft_ms": ("30", "200", "1500", None, None, None, None),
    "tpot_ms": ("5", "30", "80", None, None, None, None),
    "min_tokens_per_s": ("100", "400", None, None, None, None, None),
    "market": ("spot", "any", None, None, None, None),
    "allow_turing": (True, False, False, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", some((0, 1, 2, 3, 5, 6, 7, 9), 4))
def test_random_requests_agree_with_brute_force(seed: int) -> None:
    random = Random(seed)  # noqa: S311 -- the same requests every time
    request, supply = None, small_supply()
    while request is None or met(request, supply):
        chosen = {name: random.choice(some) for name, some in CHOICES.items()}
        request = requested({name: value for name, value in chosen.items() if value is not None})
    found = relaxations(request, supply, shared_catalog().engine)
    assert {frozenset(item.axes) for item in found} == brute_force(request, supply)
    for item in found:
        assert met(item.request, supply) is not None, item.axes


@pytest.mark.parametrize("name", NAMES)
def test_the_order_is_fewest_changes_then_cheapest(name: str) -> None:
    keys = [(len(item.axes), item.candidate.cost.usd_per_hour) for item in answered(name)[2]]
    assert keys == sorted(keys)


def test_the_order_of_offers_does_not_matter() -> None:
    request, supply, found = answered("dear")
    assert (
        relaxations(request, replaced(supply, offers=tuple(reversed(supply.offers))), shared_catalog().engine) == found
    )


def test_a_request_that_can_be_met_needs_no_change() -> None:
    request = requested({"context": "2048"})
    assert isinstance(make_plan(request, small_supply(), shared_catalog().engine), Plan)
    assert relaxations(request, small_supply(), shared_catalog().engine) == ()


def test_an_unsupported_model_has_no_relaxation() -> None:
    request = requested({"context": "2048"})
    nowhere = replaced(small_supply(), release=replaced(small_supply().release, model_classes={}))
    assert isinstance(make_plan(request, nowhere, shared_catalog().engine), NoFeasiblePlan)
    assert relaxations(request, nowhere, shared_catalog().engine) == ()


def test_minimal_keeps_sets_without_subsets() -> None:
    sets = {frozenset(text) for text in ("ab", "abc", "c", "cd", "bd")}
    assert set(minimal(sets)) == {frozenset("ab"), frozenset("c"), frozenset("bd")}
    assert in_order(frozenset({"tpot", "budget", "region"})) == ("budget", "region", "tpot")


def test_replicas_suffice_for_the_requested_context() -> None:
    """Three g5.xlarge bear 32 users with the shortest context, five with all of it: less room is left for requests."""
    request = requested({"model": "qwen2.5-14b", "context": "8192", "concurrency": "32", "ttft_ms": "1500"})
    found = {item.axes: item.candidate for item in relaxations(request, small_supply(), shared_catalog().engine)}
    several = found["replicas",]
    assert (several.offer.instance_type.name, several.replicas) == ("g5.xlarge", 5)
