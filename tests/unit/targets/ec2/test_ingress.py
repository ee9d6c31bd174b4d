"""Allowed networks: EC2's notation, and sums that amount to the whole internet."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.targets.ec2.ingress import networks

FILE = Path(__file__).parents[3] / "cases" / "ingress" / "networks.toml"
CASES = tomllib.loads(FILE.read_text(encoding="utf-8"))["case"]
TAKEN = [case for case in CASES if "sent" in case]
REFUSED = [case for case in CASES if "code" in case]


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case["about"])
def test_what_is_taken_is_sent_as_ec2_describes_it(case):
    assert list(networks(case["given"], expose_to_world=case.get("expose", False))) == case["sent"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["about"])
def test_what_is_refused_names_what_was_given_and_what_to_write(case):
    with pytest.raises(InputError) as caught:
        networks(case["given"], expose_to_world=False)
    assert caught.value.code == case["code"]
    assert case.get("hint", "") in caught.value.hint
    assert any(given in caught.value.message for given in case["given"])


def test_every_case_is_taken_or_refused():
    assert len(TAKEN) + len(REFUSED) == len(CASES)


def test_a_form_that_ec2_refuses_is_refused_whoever_may_connect():
    with pytest.raises(InputError, match="not a network"):
        networks(["203.0.113.7"], expose_to_world=True)
