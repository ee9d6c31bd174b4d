"""Whatever variable `up` takes a hub token from counts in the looks before it, too."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tgi_deploy import wiring
from tgi_deploy.cli import doctor
from tgi_deploy.operations.launching.secrets import TOKEN_VARIABLES


def survey():
    return wiring._survey(wiring.Setup(progress=None), sessions=None)


def doctors_token(**given):
    options = doctor.Options(**{**{item.name: None for item in fields(doctor.Options)}, **given})
    return doctor._settings(options).secrets.hub_token


@pytest.mark.parametrize("variable", TOKEN_VARIABLES)
def test_a_token_in_any_of_the_variables_is_one(monkeypatch, variable):
    monkeypatch.setenv(variable, "hf_made_up")
    assert survey().hub_token
    assert doctors_token().reference == f"env:{variable}"


def test_without_one_there_is_none():
    assert not survey().hub_token
    assert doctors_token() is None


def test_a_named_parameter_goes_before_the_variables(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLES[0], "hf_made_up")
    token = doctors_token(hub_token_parameter="/team/token")
    assert (token.parameter, token.reference) == ("/team/token", None)
