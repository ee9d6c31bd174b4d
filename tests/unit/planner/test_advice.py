"""A near miss works: its option, pasted, gives a plan at the stated price."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.requests import shared_catalog
from builders.samples import quick, some

from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.plan import NearMiss

FOLDER = Path(__file__).parents[2] / "cases" / "plan"
FIELDS = {"--region": "regions"}

MORE: dict[str, tuple[OptionTexts, set[str]]] = {
    "context": (OptionTexts(model="llama3.1-8b", hardware="1xL4", context="131072", quantize="none"), {"context"}),
    "concurrency": (
        OptionTexts(model="llama2-13b", hardware="1xL40S", concurrency="40", quantize="none", ttft_ms="700"),
        {"concurrency", "ttft"},
    ),
    "speed": (OptionTexts(model="llama3-8b", ttft_ms="20", tpot_ms="500"), {"ttft"}),
    "elsewhere": (OptionTexts(model="llama3-8b", regions=("ap-east-1",)), {"region", "allow_turing"}),
    "two-limits-too-many": (OptionTexts(model="llama3-70b", budget="1", num_shard="3"), {"budget+num_shard"}),
    "everything-is-asked-for-already": (OptionTexts(model="llama3-8b", budget="0.01", regions=("all",)), {"budget"}),
}


@cache
def answered(name: str) -> tuple[OptionTexts, Mapping[str, str], Plan | NoFeasiblePlan]:
    if name in MORE:
        texts, environ, service = MORE[name][0], {}, ""
    else:
        case = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        raw: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in case["request"].items()
        }
        texts, environ, service = OptionTexts(**raw), case.get("env", {}), case.get("service", "")
    return texts, environ, plan(texts, shared_catalog(service), environ)


def cases_without_a_plan() -> tuple[str, ...]:
    return tuple(
        path.stem for path in sorted(FOLDER.glob("*.toml")) if 'outcome = "no_plan"' in path.read_text(encoding="utf-8")
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", some([*cases_without_a_plan(), *MORE], 6))
def test_every_suggested_option_works_when_pasted(name: str) -> None:
    texts, environ, made = answered(name)
    catalog = shared_catalog("sagemaker" if name.startswith("hosted") else "")
    assert isinstance(made, NoFeasiblePlan)
    for miss in made.near_misses:
        again = plan(pasted(texts, miss.option), catalog, environ)
        assert isinstance(again, Plan), miss.option
        cheapest = plan(replaced(pasted(texts, miss.option), prefer="cost"), catalog, environ)
        assert isinstance(cheapest, Plan)
        assert cheapest.chosen.cost.usd_per_hour <= miss.candidate.cost.usd_per_hour, miss.option
        assert miss.option in miss.message


def pasted(texts: OptionTexts, option: str) -> OptionTexts:
    """The texts with the words of an option added, as the command line would read them."""
    words = iter(option.split())
    changes: dict[str, Any] = {}
    for word in words:
        field = FIELDS.get(word, word.removeprefix("--").replace("-", "_"))
        if field == "allow_turing":
            changes[field] = True
        else:
            value = next(words)
            changes[field] = (value,) if field == "regions" else value
    return replaced(texts, **changes)


@pytest.mark.parametrize("name", quick(MORE, 2))
def test_the_expected_changes_are_suggested(name: str) -> None:
    made = answered(name)[2]
    assert isinstance(made, NoFeasiblePlan)
    codes = {miss.code for miss in made.near_misses}
    assert codes >= MORE[name][1]
    assert codes or not MORE[name][1]


def test_a_budget_is_rounded_up_to_the_cent() -> None:
    made = answered("budget-0.3")[2]
    assert isinstance(made, NoFeasiblePlan)
    miss: NearMiss = next(miss for miss in made.near_misses if miss.code == "budget")
    assert miss.option == "--budget 0.83"
    assert str(miss.candidate.cost.usd_per_hour) == "0.8206"


def test_no_smaller_set_is_enough() -> None:
    codes = {miss.code for miss in answered("two-limits-too-many")[2].near_misses}
    assert "budget" not in codes
    assert "num_shard" not in codes
