"""Bills that add up, a total order, and methods ordered by quality loss."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, get_args

import pytest
from builders.plans import accelerator, instance_type, offer
from builders.samples import quick
from msgspec.structs import replace

from tgi_deploy.engines.tgi.schemes import schemes, served_dtype
from tgi_deploy.planner.cost import hourly_cost, storage_for
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.rank import CRITERIA, Criteria, sort_key
from tgi_deploy.planner.search import Search
from tgi_deploy.planner.service_level import UNUSABLE
from tgi_deploy.values.base import replaced
from tgi_deploy.values.model import CheckpointQuantization
from tgi_deploy.values.request import Preference
from tgi_deploy.values.supply import ExtraPrices

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.request import Request

GIB = 2**30
EXTRAS = ExtraPrices(
    volume_usd_per_gib_month=Decimal("0.08"), public_ipv4_usd_per_hour=Decimal("0.005"),
    load_balancer_usd_per_hour=Decimal("0.03"), estimated=False, source="list",
    date="2026-01-01",
)  # fmt: skip


def bill(*, weights_bytes: int, nvme_bytes: int) -> dict[str, Decimal]:
    machine = offer(instance_type=instance_type(nvme_bytes=nvme_bytes))
    storage = storage_for(machine.instance_type, weights_bytes=weights_bytes, image_bytes=20 * GIB)
    cost = hourly_cost(machine, storage, EXTRAS)
    assert all(isinstance(line.usd_per_hour, Decimal) for line in cost.lines)
    assert cost.usd_per_hour == sum(line.usd_per_hour for line in cost.lines)
    return {line.item: line.usd_per_hour for line in cost.lines}


def test_lines_of_a_bill() -> None:
    assert bill(weights_bytes=30 * GIB, nvme_bytes=250 * GIB) == {
        "instance": Decimal("1.861"),
        "root volume, 100 GiB gp3": Decimal("0.0110"),
        "public IPv4 address": Decimal("0.005"),
    }


def test_without_nvme_the_weights_are_on_the_root_volume() -> None:
    assert "root volume, 133 GiB gp3" in bill(weights_bytes=30 * GIB, nvme_bytes=0)


@pytest.mark.parametrize(("nvme_gib", "on_nvme"), [(33, True), (32, False)])
def test_nvme_needs_10_percent_headroom_for_the_weights(nvme_gib: int, on_nvme: bool) -> None:  # noqa: FBT001 -- a case
    machine = offer(instance_type=instance_type(nvme_bytes=nvme_gib * GIB))
    assert storage_for(machine.instance_type, weights_bytes=30 * GIB, image_bytes=0).weights_on_nvme is on_nvme


@pytest.mark.parametrize(("least_gib", "root_gib"), [(0, 100), (100, 100), (500, 500)])
def test_the_root_volume_is_at_least_as_big_as_requested(least_gib: int, root_gib: int) -> None:
    storage = storage_for(offer().instance_type, weights_bytes=30 * GIB, image_bytes=20 * GIB, least_gib=least_gib)
    assert storage.root_volume_gib == root_gib


@pytest.mark.parametrize(("above", "works"), [("0", True), ("-0.0001", False)])
def test_the_budget_is_compared_with_the_whole_bill(
    catalog: Catalog,
    make_request: Callable[..., Request],
    above: str,
    works: bool,  # noqa: FBT001 -- a case
) -> None:
    supply = catalog.supply(release="3.3.7", regions=("us-east-1",), markets=("on-demand",))
    request = make_request("llama3-13b", instance_type="g6e.xlarge")
    total = make_plan(request, supply, catalog.engine).chosen.cost.usd_per_hour
    made = make_plan(replaced(request, budget_usd_per_hour=total + Decimal(above)), supply, catalog.engine)
    assert hasattr(made, "chosen") is works


@pytest.mark.parametrize("prefer", quick(["quality", "cost", "speed", "value"], 1))
def test_the_order_is_total_and_does_not_depend_on_the_order_of_offers(
    catalog: Catalog, make_request: Callable[..., Request], prefer: Preference
) -> None:
    supply = catalog.supply(release="3.3.7", regions=("us-east-1", "us-west-2"), markets=("on-demand", "spot"))
    request = make_request("llama3-8b", prefer=prefer)
    shuffled = list(supply.offers)
    Random(7).shuffle(shuffled)  # noqa: S311 -- any fixed order will do
    keys = [found.key for found in Search(request, supply, catalog.engine).run().configurations]
    assert all(one < other for one, other in pairwise(keys))
    again = Search(request, replaced(supply, offers=tuple(shuffled)), catalog.engine)
    assert [found.key for found in again.run().configurations] == keys


@pytest.mark.parametrize(
    ("prefer", "better", "worse"),
    [
        ("quality", (0, "9", 1), (1, "1", 9)),
        ("quality", (0, "1", 1), (0, "2", 9)),
        ("quality", (0, "1", 9), (0, "1", 1)),
        ("cost", (1, "1", 1), (0, "2", 9)),
        ("cost", (0, "1", 1), (1, "1", 9)),
        ("cost", (0, "1", 9), (0, "1", 1)),
        ("speed", (1, "9", 9), (0, "1", 8)),
        ("speed", (1, "1", 9), (0, "2", 9)),
        ("value", (1, "2", 9), (0, "1", 4)),
        ("value", (0, "1", 4), (1, "1", 4)),
    ],
)
def test_preferences(prefer: Preference, better: tuple[int, str, float], worse: tuple[int, str, float]) -> None:
    def key(loss: int, usd: str, speed: float) -> tuple[object, ...]:
        return sort_key(prefer, criteria(loss=loss, usd_per_hour=Decimal(usd), output_tokens_per_s=speed))

    assert key(*better) < key(*worse)


def test_at_the_same_price_headroom_ranks_before_quality() -> None:
    sure, tight = criteria(loss=1), criteria(loss=0, tight=True, output_tokens_per_s=101.0)
    assert sort_key("cost", sure) < sort_key("cost", tight) < sort_key("cost", replaced(sure, usd_per_hour=Decimal(2)))
    assert sort_key("quality", tight) < sort_key("quality", sure)


@pytest.mark.parametrize("prefer", get_args(Preference))
def test_defaults_come_before_every_preference(prefer: Preference) -> None:
    """First near-lossless ones that meet the goals, then slow but usable, then 4-bit, then unusable ones."""
    in_order = [
        criteria(),
        criteria(**missed(1.5)),
        criteria(coarse=True),
        criteria(coarse=True, **missed(1.5)),
        criteria(**missed(2.5)),
        criteria(**missed(3.0)),
        criteria(coarse=True, **missed(2.1)),
    ]
    worse_in_all_else = [
        replaced(item, loss=9 - number, usd_per_hour=Decimal(9 - number), output_tokens_per_s=1.0 + number)
        for number, item in enumerate(in_order)
    ]
    keys = [sort_key(prefer, item) for item in worse_in_all_else]
    assert keys == sorted(keys)


@pytest.mark.parametrize("prefer", get_args(Preference))
@pytest.mark.parametrize(
    ("worse", "name"),
    [
        ({"tight": True}, "memory margin"),
        ({"loss": 1}, "bits lost to quantization"),
        ({"tpot_ms": 11.0}, "latency"),
        ({"ttft_ms": 101.0}, "latency"),
        ({"names": ("z",)}, "name"),
    ],
)
def test_the_criterion_that_decides_is_named(prefer: Preference, worse: dict[str, object], name: str) -> None:
    one, other = sort_key(prefer, criteria()), sort_key(prefer, criteria(**worse))
    pairs = zip(CRITERIA[prefer], one[1:], other[1:], strict=True)
    assert [criterion for criterion, mine, theirs in pairs if mine != theirs] == [name]


def missed(times: float) -> dict[str, object]:
    return {"missed": True, "unusable": times > UNUSABLE, "times": times}


def criteria(**changes: object) -> Criteria:
    values = {
        "loss": 0, "tight": False, "coarse": False, "missed": False, "unusable": False, "times": 1.0,
        "usd_per_hour": Decimal(1), "output_tokens_per_s": 100.0, "ttft_ms": 100.0, "tpot_ms": 10.0, "names": ("same",),
    }  # fmt: skip
    return Criteria(**(values | changes))


def test_several_machines_are_billed_with_a_load_balancer() -> None:
    machine = offer()
    storage = storage_for(machine.instance_type, weights_bytes=GIB, image_bytes=20 * GIB)
    one = hourly_cost(machine, storage, EXTRAS)
    three = hourly_cost(machine, storage, EXTRAS, machines=3)
    assert three.usd_per_hour == 3 * one.usd_per_hour + EXTRAS.load_balancer_usd_per_hour
    assert [line.item for line in three.lines][-1] == "load balancer"


def test_methods_are_ordered_by_quality_loss(catalog: Catalog) -> None:
    for name in catalog.profile_names():
        lost = [scheme.lost_bits for scheme in schemes(catalog.resolve(name), catalog.release("3.3.7"), "auto")]
        assert lost == sorted(lost)
        assert lost[0] == 0


def test_a_quantized_checkpoint_is_served_only_as_it_is(catalog: Catalog) -> None:
    profile = catalog.resolve("llama3-8b")
    own = replace(profile.model, quantization=CheckpointQuantization(method="awq", bits=4, group_size=128))
    (only,) = schemes(replace(profile, model=own), catalog.release("3.3.7"), "auto")
    assert (only.name, only.lost_bits, only.prequantized, only.bits) == ("awq", 0, True, 4 + 20 / 128)


@pytest.mark.parametrize(("method", "known"), [("fbgemm_fp8", True), ("bitsandbytes", False), ("mxfp4", False)])
def test_unsupported_checkpoint_methods_are_rejected(catalog: Catalog, method: str, known: bool) -> None:  # noqa: FBT001 -- a case
    profile = catalog.resolve("llama3-8b")
    own = replace(profile.model, quantization=CheckpointQuantization(method=method, bits=8))
    (only,) = schemes(replace(profile, model=own), catalog.release("3.3.7"), "auto")
    assert only.known is known


@pytest.mark.parametrize(
    ("torch_dtype", "bf16", "quantize", "served"),
    [
        ("bfloat16", True, "none", "bfloat16"),
        ("bfloat16", False, "none", "float16"),
        ("float16", True, "none", "float16"),
        ("float32", True, "none", "float16"),
        ("bfloat16", True, "eetq", "float16"),
        ("bfloat16", True, "fp8", "bfloat16"),
    ],
)
def test_the_16_bit_type(catalog: Catalog, torch_dtype: str, bf16: bool, quantize: str, served: str) -> None:  # noqa: FBT001 -- a case
    profile, release = catalog.resolve("llama3-8b"), catalog.release("3.3.7")
    profile = replace(profile, model=replace(profile.model, torch_dtype=torch_dtype))
    (scheme,) = schemes(profile, release, quantize)
    rule = release.quantizations.get(scheme.name)
    found = served_dtype(profile.model, rule, release.model_classes["llama"], accelerator(bf16=bf16))
    assert found == served
