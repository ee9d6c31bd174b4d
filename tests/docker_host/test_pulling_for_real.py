"""Pulls through the real engine, from a registry on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.registry import noise_image, serving
from fakes.computer import FakeClock

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable, HostRefusedError
from tgi_deploy.targets.docker.pull import pull

pytestmark = [pytest.mark.docker_engine, pytest.mark.xdist_group("docker_host")]
TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))


class RecordingListener:
    def __init__(self):
        self.phases, self.lines = [], []

    def phase(self, phase, detail, elapsed_s, expected_s):
        self.phases.append((phase, detail))

    def line(self, text):
        self.lines.append(text)


class EagerClock(FakeClock):
    """Time enough passes between two looks for every message to be reported."""

    def monotonic(self):
        self.seconds += 1
        return self.seconds


@pytest.fixture
def api(docker_engine, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    api = Api(endpoint=Endpoint(url=docker_engine.host), table=TABLE, environ={})
    yield api
    api.client.close()


@pytest.fixture
def noise(tmp_path):
    return noise_image(tmp_path)


def test_a_pull_reports_its_megabytes_and_happens_once(api, noise):
    reported = RecordingListener()
    with serving(noise) as registry:
        image = registry.reference()
        try:
            assert pull(api, image, listener=reported, clock=EagerClock())
            assert len(registry.fetched) >= len(noise.layers)
            fetched = len(registry.fetched)
            assert not pull(api, image, listener=reported, clock=EagerClock())
            assert len(registry.fetched) == fetched
        finally:
            api.look("cleaning up", lambda client: client.remove_image(image, force=True), lambda _reply: None)
    assert {phase for phase, _ in reported.phases} == {"pulling"}
    megabytes = f"{sum(noise.layer_sizes) / 10**6:,.0f} MB"
    assert reported.phases[-1][1].startswith(f"{megabytes.removesuffix(' MB')} of {megabytes}")
    assert reported.lines[0].startswith(f"pulled {image}: {megabytes} in ")


def test_a_registry_that_requires_a_login_is_explained(api, noise):
    with serving(noise, locked=True) as registry, pytest.raises(HostRefusedError) as caught:
        pull(api, registry.reference(), listener=RecordingListener(), clock=EagerClock())
    assert caught.value.code == "image_access_denied"
    assert "docker login" in caught.value.hint


def test_an_image_that_does_not_exist_is_explained(api, noise):
    with serving(noise) as registry, pytest.raises(HostRefusedError) as caught:
        pull(api, registry.reference("9"), listener=RecordingListener(), clock=EagerClock())
    assert caught.value.code == "image_not_found"


def test_an_unreachable_registry_is_explained(api, noise):
    with serving(noise) as registry:
        image = registry.reference()
    with pytest.raises(HostRefusedError) as caught:
        pull(api, image, listener=RecordingListener(), clock=EagerClock())
    assert caught.value.code == "registry_unreachable"
