from __future__ import annotations

import pytest

from tgi_deploy.cli import smoke

NOTHING = dict.fromkeys((*smoke._PASSED_ON, "sandbox")) | {"target": "ec2", "ready": "full"}


def job(*wishes, **given):
    return smoke._job("phi3-mini", wishes, NOTHING | given)


def test_a_smoke_ends_itself_even_if_nobody_says_when():
    assert job().wishes == ("--ttl", "1h", "--target", "ec2", "--ready", "full")


@pytest.mark.parametrize("end", ["--ttl", "--max-spend", "--lease", "--idle-timeout"])
def test_an_end_of_ones_own_stands(end):
    assert job(end, "2").wishes[:2] == (end, "2")
    assert "1h" not in job(end, "2").wishes


def test_a_host_of_ones_own_has_no_end():
    assert "--ttl" not in job(target="docker").wishes


def test_options_are_passed_on_as_they_were_given():
    words = job("--budget", "2", api_key_from_env="KEY", external_ttl=True, sandbox=True)
    assert words.wishes[:2] == ("--budget", "2")
    assert words.wishes[-5:] == ("--api-key-from-env", "KEY", "--external-ttl", "--ready", "full")
    assert words.everywhere == ("--sandbox",)
