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
def test_accepted_networks_are_sent_as_ec2_describes_them(case):
    assert list(networks(case["given"], expose_to_world=case.get("expose", False))) == case["sent"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["about"])
def test_rejected_networks_have_the_value_and_a_hint(case):
    with pytest.raises(InputError) as caught:
        networks(case["given"], expose_to_world=False)
    assert caught.value.code == case["code"]
    assert case.get("hint", "") in caught.value.hint
    assert any(given in caught.value.message for given in case["given"])


def test_every_case_is_accepted_or_rejected():
    assert len(TAKEN) + len(REFUSED) == len(CASES)


def test_forms_that_ec2_rejects_are_always_rejected():
    with pytest.raises(InputError, match="not a network"):
        networks(["203.0.113.7"], expose_to_world=True)
