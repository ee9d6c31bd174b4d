"""Whatever variable `up` takes a hub token from counts in the looks before it, too."""

from __future__ import annotations

import os

import pytest

from tgi_deploy import wiring
from tgi_deploy.targets.ec2.doctor import settings_of
from tgi_deploy.targets.ec2.options import TOKEN_VARIABLES, Ec2Options


@pytest.fixture
def ec2():
    wiring.target_named.cache_clear()
    yield lambda: wiring.target_named("ec2")
    wiring.target_named.cache_clear()


def doctors_token(**given):
    return settings_of(Ec2Options(**given), os.environ).secrets.hub_token


@pytest.mark.parametrize("variable", TOKEN_VARIABLES)
def test_a_token_in_any_of_the_variables_is_one(monkeypatch, variable, ec2):
    monkeypatch.setenv(variable, "hf_made_up")
    assert ec2().survey.hub_token
    assert doctors_token().reference == f"env:{variable}"


def test_without_one_there_is_none(ec2):
    assert not ec2().survey.hub_token
    assert doctors_token() is None


def test_a_named_parameter_goes_before_the_variables(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLES[0], "hf_made_up")
    token = doctors_token(hub_token_parameter="/team/token")
    assert (token.parameter, token.reference) == ("/team/token", None)
