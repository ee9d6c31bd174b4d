"""The preflight uses the same variable for the hub token as `up`."""

from __future__ import annotations

import pytest

from tgi_deploy import wiring
from tgi_deploy.targets.ec2.options import TOKEN_VARIABLES


@pytest.fixture
def ec2():
    wiring.target_named.cache_clear()
    yield lambda: wiring.target_named("ec2")
    wiring.target_named.cache_clear()


@pytest.mark.parametrize("variable", TOKEN_VARIABLES)
def test_a_token_in_any_of_the_variables_is_found(monkeypatch, variable, ec2):
    monkeypatch.setenv(variable, "hf_made_up")
    assert ec2().survey.hub_token


def test_without_a_variable_there_is_no_token(ec2):
    assert not ec2().survey.hub_token
