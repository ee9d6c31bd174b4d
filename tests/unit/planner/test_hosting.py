"""Limits of a service that runs the engine on its own machines."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from builders.plans import instance_type, storage
from builders.requests import shared_catalog

from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.operations.planning.plan import supply_for
from tgi_deploy.planner.hosting import start_problem, storage_problems
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import StartupPhase
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from tgi_deploy.planner.evaluation import Evaluation
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Hosting, Supply

CATALOG = shared_catalog("sagemaker")


@cache
def asked(**texts: str) -> tuple[Request, Supply]:
    named = {"model": "llama3-8b", "instance": "ml.g6.xlarge", **texts}
    request = resolve(OptionTexts(regions=("us-east-1",), **named), {}, CATALOG)
    return request, supply_for(request, CATALOG)


def hosting() -> Hosting:
    found = asked()[1].hosting
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("nvme_gb", "weights_gib", "on_nvme", "volume_gib", "codes"),
    [
        (250, 140, True, 0, []),
        (250, 400, False, 0, ["nvme_too_small"]),
        (0, 140, False, 200, []),
        (0, 470, False, 540, ["volume_too_large"]),
        (0, 440, False, 512, []),
    ],
)
def test_weights_have_nvme_or_one_volume(
    nvme_gb: int,
    weights_gib: int,
    on_nvme: bool,  # noqa: FBT001 -- a case
    volume_gib: int,
    codes: list[str],
) -> None:
    hardware = instance_type(nvme_bytes=nvme_gb * 10**9, status="hosted")
    kept = storage(weights_bytes=weights_gib * GIB, weights_on_nvme=on_nvme, root_volume_gib=volume_gib)
    assert [item.code for item in storage_problems(hosting(), hardware, kept)] == codes


@pytest.mark.parametrize(("expected_s", "refused"), [(2400, False), (2401, True)])
def test_a_start_has_to_fit_with_half_as_much_again(expected_s: float, refused: bool) -> None:  # noqa: FBT001 -- a case
    phase = StartupPhase(phase="downloading", expected_s=expected_s, floor_s=0, silent_s=0)
    assert (start_problem(hosting(), [phase]) is not None) == refused


def evaluation(request: Request, supply: Supply) -> Evaluation:
    search = Search(request, supply, CATALOG.engine)
    return next(search.evaluations_of(search.by_type["ml.g6.xlarge"][0].instance_type))


def test_a_flag_without_a_variable_is_a_rejection() -> None:
    request, supply = asked()
    request = replaced(request, flags=(("max-waiting-tokens", "30"),))
    assert not evaluation(request, supply).problems
    flags = dict(supply.release.flags)
    flags["--max-waiting-tokens"] = replaced(flags["--max-waiting-tokens"], env=None)
    without = replaced(supply, release=replaced(supply.release, flags=flags))
    assert [item.code for item in evaluation(request, without).problems] == ["flag_without_variable"]
    elsewhere = replaced(without, hosting=None)
    assert not evaluation(request, elsewhere).problems


def test_every_argument_becomes_the_variable_of_its_flag() -> None:
    request, supply = asked()
    request = replaced(request, flags=(("trust-remote-code", "true"), ("max-waiting-tokens", "30")))
    fit = evaluation(request, supply).fit
    engine = CATALOG.engine
    hosted, rented = (
        engine.container(fit),
        engine.container(replaced(fit, case=replaced(fit.case, variables_only=False))),
    )
    assert hosted.args == ()
    names = [flag.env for name, flag in supply.release.flags.items() if name in rented.args]
    assert {*dict(hosted.env)} == {*dict(rented.env), *names}
    assert dict(hosted.env)["TRUST_REMOTE_CODE"] == "true"
    assert dict(hosted.env)["MAX_WAITING_TOKENS"] == "30"


def test_the_largest_size_is_what_a_budget_has_to_cover() -> None:
    request, supply = asked(replicas="1..4")
    search = Search(request, supply, CATALOG.engine, scales_to=4)
    (best, *_) = search.run().configurations
    assert best.most_usd_per_hour == 4 * best.usd_per_hour
    dear = replaced(request, budget_usd_per_hour=best.most_usd_per_hour - 1)
    assert not [
        item for item in Search(dear, supply, CATALOG.engine, scales_to=4).run().configurations
        if item.most_usd_per_hour > dear.budget_usd_per_hour
    ]  # fmt: skip
