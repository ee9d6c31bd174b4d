from __future__ import annotations

import os
from pathlib import Path

import pytest

from tgi_deploy.cli import smoke
from tgi_deploy.errors import InputError
from tgi_deploy.wiring import target_options

NOTHING = dict.fromkeys(("profiles_dir", "sandbox", *(item.name for item in target_options("smoke")))) | {
    "target": "ec2",
    "ready": "full",
}


def job(*plan_words, **given):
    return smoke._job("phi3-mini", plan_words, NOTHING | given)


def test_a_smoke_ends_itself_even_if_nobody_says_when():
    assert job().plan_words == ("--ttl", "1h", "--ready", "full")


@pytest.mark.parametrize("end", ["--ttl", "--max-spend", "--lease", "--idle-timeout"])
def test_an_end_of_ones_own_stands(end):
    assert job(end, "2").plan_words[:2] == (end, "2")
    assert "1h" not in job(end, "2").plan_words


def test_an_end_of_the_environment_stands(monkeypatch):
    monkeypatch.setenv("TGI_DEPLOY_TTL", "20m")
    assert "--ttl" not in job().plan_words


def test_a_host_of_ones_own_has_no_end():
    assert "--ttl" not in job(target="docker").plan_words


def test_every_run_looks_where_it_was_brought_up():
    """Without a record `down` and `diagnose` ask what they are reported to ask."""
    assert job().everywhere == ("--target", "ec2")
    assert job(target="docker").everywhere == ("--target", "docker")


def test_options_are_passed_on_as_they_were_given():
    words = job("--budget", "2", api_key_from_env="KEY", plaintext=True, external_ttl=True, sandbox=True)
    assert words.plan_words[:2] == ("--budget", "2")
    assert words.plan_words[-6:] == ("--api-key-from-env", "KEY", "--plaintext", "--external-ttl", "--ready", "full")
    assert words.everywhere == ("--target", "ec2", "--sandbox")


def test_a_profiles_folder_is_passed_on_as_a_word():
    assert job(profiles_dir=Path("mine")).plan_words[2:4] == ("--profiles-dir", "mine")


@pytest.mark.slow
def test_a_reader_that_has_gone_does_not_stop_the_output(monkeypatch):
    """Who no longer listens to a child lets it stand still, its pipe being full."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        smoke._print_line(("up", "phi3-mini"), "booting")
        smoke._print_line(("up", "phi3-mini"), "ready")


def test_a_line_has_the_name_of_its_run_once(capsys):
    smoke._print_line(("up", "phi3-mini", "--name", "smoke-1"), "smoke-1: g6.xlarge in us-east-1a (on-demand)")
    assert capsys.readouterr().err == "smoke-1: g6.xlarge in us-east-1a (on-demand)\n"


def test_every_model_is_known_before_the_first_is_brought_up():
    given = NOTHING | {"at_once": 1, "yes": True}
    with pytest.raises(InputError) as caught:
        smoke._bring_up(["phi3-mini", "nosuchmodel"], (), given, reports=None)
    assert caught.value.code == "unknown_model"
