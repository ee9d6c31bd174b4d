"""The typed keyword arguments of the Python API match the options."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from tgi_deploy import Client, DeployError, wiring
from tgi_deploy.values.options import REMOVED_OPTIONS
from tgi_deploy.values.plan_options import PLAN_OPTIONS
from tgi_deploy.values.plan_request import PlanRequest, TargetOptions


def test_a_plan_has_an_argument_for_each_option_and_no_other():
    assert sorted(PlanRequest.__annotations__) == sorted(row.name for row in PLAN_OPTIONS)


@pytest.mark.parametrize("row", [row for row in PLAN_OPTIONS if row.choices], ids=lambda row: row.name)
def test_an_argument_with_choices_accepts_only_those(row):
    choices, nothing = get_args(get_type_hints(PlanRequest)[row.name])
    assert (get_args(choices), nothing) == (row.choices, type(None))


def test_an_up_has_an_argument_for_each_option_of_a_target():
    own = {name for target in wiring.targets() for name in target.options.__struct_fields__}
    assert set(TargetOptions.__annotations__) == own


@pytest.mark.parametrize("name", [row.name for row in PLAN_OPTIONS if not row.metavar])
def test_a_switch_is_a_boolean(name):
    assert get_type_hints(PlanRequest)[name] is bool


@pytest.mark.parametrize("row", REMOVED_OPTIONS, ids=lambda row: row.name)
def test_a_removed_argument_names_its_replacement(row):
    client = Client()
    method = getattr(client, row.command)
    values = {"plan": ("llama3-8b",), "diff": (Path("a"), Path("b")), "gc": ()}[row.command]
    with pytest.raises(DeployError) as caught:
        method(*values, **{row.name: "any"})
    assert (caught.value.code, caught.value.hint) == ("unknown_option", f"use {row.argument}")
    where, _, argument = row.argument.partition("=")[0].rpartition("(")
    assert argument in inspect.signature(Client if where else method).parameters


def test_the_nearest_option_of_a_plan_is_suggested():
    with pytest.raises(DeployError, match="'utilizations' is not an option") as caught:
        Client().plan("llama3-8b", utilizations=0.5)
    assert caught.value.hint.startswith("did you mean utilization?")
