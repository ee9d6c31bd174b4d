from __future__ import annotations

import os

import pytest

from tgi_deploy.api import Client
from tgi_deploy.cli.progress import Progress
from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying import smoke as use_case
from tgi_deploy.operations.deploying.smoke import Job, named_line
from tgi_deploy.values.progress import NoteEvent


@pytest.fixture
def job(monkeypatch):
    """Return the job for a model without running it."""
    jobs: list[Job] = []
    monkeypatch.setattr(use_case, "smoke", lambda _programs, asked, **_: jobs.extend(asked) or ())
    monkeypatch.setattr("tgi_deploy.wiring.sandbox_start", lambda: None)

    def job(*, target="ec2", profiles_dir=None, sandbox=False, **options):
        Client(target=target, profiles_dir=profiles_dir, sandbox=sandbox).smoke("phi3-mini", **options)
        return jobs.pop()

    return job


def test_a_smoke_deployment_has_a_default_ttl(job):
    assert job().plan_words == ("--ttl", "1h", "--ready", "full")


@pytest.mark.parametrize("end", ["--ttl", "--max-spend", "--lease", "--idle-timeout"])
def test_an_explicit_limit_is_kept(end, job):
    words = job(**{end.removeprefix("--").replace("-", "_"): "2"}).plan_words
    assert words[:2] == (end, "2")
    assert "1h" not in words


def test_a_limit_from_the_environment_is_kept(monkeypatch, job):
    monkeypatch.setenv("TGI_DEPLOY_TTL", "20m")
    assert "--ttl" not in job().plan_words


def test_an_owned_host_has_no_limit(job):
    assert "--ttl" not in job(target="docker").plan_words


def test_every_run_uses_the_location_of_up(job):
    """Without a record, `down` and `diagnose` search the given locations."""
    assert job().everywhere == ("--target", "ec2")
    assert job(target="docker").everywhere == ("--target", "docker")


def test_options_are_passed_on_as_they_were_given(job):
    words = job(budget="2", ttl="1h", api_key_from_env="KEY", plaintext=True, external_ttl=True, sandbox=True)
    assert words.plan_words[:2] == ("--budget", "2")
    assert words.plan_words[-6:] == ("--api-key-from-env", "KEY", "--plaintext", "--external-ttl", "--ready", "full")
    assert words.everywhere == ("--target", "ec2", "--sandbox")


def test_a_profiles_folder_is_passed_as_an_argument(job, tmp_path):
    assert job(profiles_dir=tmp_path).plan_words[:2] == ("--profiles-dir", str(tmp_path))


@pytest.mark.slow
def test_a_closed_reader_does_not_stop_the_output(monkeypatch):
    """A child whose output is no longer read would block on a full pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        progress = Progress()
        progress(NoteEvent(text="booting"))
        progress(NoteEvent(text="ready"))


def test_each_line_is_prefixed_once():
    line = named_line(("up", "phi3-mini", "--name", "smoke-1"), "smoke-1: g6.xlarge in us-east-1a (on-demand)")
    assert line == "smoke-1: g6.xlarge in us-east-1a (on-demand)"


def test_every_model_is_resolved_before_the_first_launch():
    with pytest.raises(InputError) as caught:
        Client().smoke("phi3-mini", "nosuchmodel")
    assert caught.value.code == "unknown_model"
