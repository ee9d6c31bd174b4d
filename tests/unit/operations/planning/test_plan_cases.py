"""Walks `tests/cases/plan/*.toml`: a request and an environment, and the expected parts of the answer. `service`: with
the catalog of one. Every key under
`expect` is a subset of the answer, so unrelated price changes affect no case. Amounts are strings, so that no digit is
lost.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.requests import shared_catalog
from builders.samples import quick

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.documents import choice, memory
from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.operations.planning.plan import plan, supply_for
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.values.base import Value, as_dict
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.plan import Rejection

CASES = sorted((Path(__file__).parents[3] / "cases" / "plan").glob("*.toml"))
_ADVICE = {"near_misses", "no_near_misses"}
SECTIONS = _ADVICE | {
    "outcome",
    "error",
    "requirements",
    "rejected",
    "every_code",
    "chosen",
    "cost",
    "memory",
    "image",
    "args",
    "without",
    "env",
    "secret_env",
    "fallbacks",
    "notices",
    "assumptions",
    "unsaid",
}


def answer(case: Mapping[str, Any]) -> Plan | NoFeasiblePlan:
    raw = dict(case["request"])
    for name in ("regions", "set"):
        raw[name] = tuple(raw.get(name, ()))
    texts, environ, catalog = OptionTexts(**raw), case.get("env", {}), shared_catalog(case.get("service", ""))
    if case["expect"]["outcome"] == "no_plan" and not _ADVICE & case["expect"].keys():
        request = resolve(texts, environ, catalog)
        return make_plan(request, supply_for(request, catalog), catalog.engine)  # advice takes longer than all else
    return plan(texts, catalog, environ)


@pytest.mark.parametrize("path", quick(CASES, 12), ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    expect = case["expect"]
    assert set(case) <= {"about", "service", "request", "env", "expect"}
    assert set(expect) <= SECTIONS
    if expect["outcome"] == "error":
        with pytest.raises(InputError) as refused:
            answer(case)
        check_error(refused.value, expect["error"])
        return
    made = answer(case)
    assert isinstance(made, {"plan": Plan, "no_plan": NoFeasiblePlan}[expect["outcome"]])
    check_what_both_have(made, expect)
    if isinstance(made, Plan):
        check_choice(made, expect)
        check_engine(made, expect)
    else:
        check_near_misses(made, expect)


def check_error(error: InputError, expect: Mapping[str, Any]) -> None:
    assert error.code == expect["code"]
    for fragment in expect.get("says", ()):
        assert fragment in error.message
    assert expect.get("hint", "") in (error.hint or "")


def check_what_both_have(made: Plan | NoFeasiblePlan, expect: Mapping[str, Any]) -> None:
    assert_within(expect.get("requirements", {}), shown(made.request.document))
    for wanted in expect.get("rejected", ()):
        assert any(matches(rejection, wanted) for rejection in made.rejections), wanted
    if "every_code" in expect:
        assert made.rejections
        assert {rejection.code for rejection in made.rejections} == {expect["every_code"]}


def matches(rejection: Rejection, wanted: Mapping[str, Any]) -> bool:
    """Return whether a rejection has everything expected; `codes` and `numbers` may have more."""
    own = dict(wanted)
    says, codes, numbers = own.pop("says", ""), own.pop("codes", ()), own.pop("numbers", {})
    return (
        all(str(getattr(rejection, name)) == str(value) for name, value in own.items())
        and says in rejection.message
        and set(codes) <= set(rejection.codes)
        and all(str(rejection.numbers.get(name)) == str(value) for name, value in numbers.items())
    )


def check_choice(made: Plan, expect: Mapping[str, Any]) -> None:
    chosen = made.chosen
    assert_within(expect.get("chosen", {}), shown(choice(chosen)))
    lines = {line.item: line.usd_per_hour for line in chosen.cost.lines} | {"total": chosen.cost.usd_per_hour}
    assert_within(expect.get("cost", {}), lines)
    planned = shown(memory(chosen.memory))
    assert_within(expect.get("memory", {}), planned | shown(planned["per_accelerator"]))
    fallbacks = [candidate.offer.instance_type.name for candidate in made.fallbacks]
    assert fallbacks[: len(expect.get("fallbacks", ()))] == expect.get("fallbacks", [])
    for name in ("notices", "assumptions"):
        for fragment in expect.get(name, ()):
            assert any(fragment in result for result in getattr(made, name)), fragment
    for fragment in expect.get("unsaid", ()):
        assert not any(fragment in result for result in (*made.notices, *made.assumptions)), fragment


def check_engine(made: Plan, expect: Mapping[str, Any]) -> None:
    container = made.chosen.engine.container
    args = dict(zip(container.args, (*container.args[1:], ""), strict=False))  # a service gives it variables only
    assert_within(expect.get("args", {}), args)
    assert not set(expect.get("without", ())) & set(container.args)
    assert container.image.reference.endswith(expect.get("image", ""))
    assert_within(expect.get("env", {}), dict(container.env))
    secrets = [secret.variable for secret in container.secrets]
    assert secrets == expect.get("secret_env", secrets)


def check_near_misses(made: NoFeasiblePlan, expect: Mapping[str, Any]) -> None:
    options = [miss.option for miss in made.near_misses]
    assert [option for option in expect.get("near_misses", ()) if option not in options] == []
    if expect.get("no_near_misses"):
        assert options == []


def shown(value: Value) -> dict[str, Any]:
    return {name: list(item) if isinstance(item, tuple) else item for name, item in as_dict(value).items()}


def assert_within(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    assert {name: str(value) for name, value in wanted.items()} == {
        name: str(found.get(name, "missing")) for name in wanted
    }
