"""A machine without the image pulls it from a registry, reports progress, and retries a failed pull."""

from __future__ import annotations

import re

import pytest
from builders.boot import boot
from builders.boot_kinds import KINDS
from builders.plans import altered
from builders.registry import saved_image, serving

from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import render_artifact

# Longer than the pause between two progress reports.
PULL_S = 15

pytestmark = [pytest.mark.boot, pytest.mark.docker_engine, pytest.mark.slow]


@pytest.fixture
def registry(docker_engine, tmp_path):
    gateway = "{{(index .IPAM.Config 0).Gateway}}"
    host = docker_engine.docker("network", "inspect", "bridge", "--format", gateway).strip()
    docker_engine.docker("save", "--output", str(tmp_path / "image.tar"), docker_engine.image)
    image = saved_image(tmp_path / "image.tar", tmp_path / "registry")
    with serving(image, host=host, tag="3.3.7", refusals=1, bytes_per_s=max(image.layer_sizes) / PULL_S) as registry:
        yield registry


def test_a_failed_pull_is_retried(docker_engine, registry):
    deployable = KINDS["bare"].deployable()
    engine = altered(deployable.candidate.engine, image=registry.reference())
    deployable = replaced(deployable, candidate=replaced(deployable.candidate, engine=engine))
    with boot(docker_engine, render_artifact("user-data", deployable).text, with_images=False) as machine:
        machine.check_boot()
        machine.until("the engine to answer", machine.healthy)
        result = machine.markers()
        pulling = result[
            result.index(f"phase=pulling image={registry.reference()}") : result.index("phase=starting-engine")
        ]
        assert [mb for mb in pulling if re.fullmatch(r"received mb=[1-9]\d*", mb)], result
        assert not any(marker.startswith("received") for marker in result[result.index("phase=starting-engine") :])
        assert registry.refusals == 0
        assert any("/manifests/3.3.7" in path for path in registry.asked)
        assert machine.units("failed") == []
