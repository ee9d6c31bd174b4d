from __future__ import annotations

import pytest
import yaml
from builders.plans import altered, candidate, log_filter, profile

from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.engines.tgi.container import cache_layout
from tgi_deploy.targets.container import container_for
from tgi_deploy.targets.docker.commands import removal_command, tunnel
from tgi_deploy.targets.docker.resources import Host, cache_name, resources
from tgi_deploy.targets.protocol import Deployable
from tgi_deploy.values.base import replaced
from tgi_deploy.values.container import Mount
from tgi_deploy.values.resource import KEPT
from tgi_deploy.values.serving import TunnelEnd
from tgi_deploy.wiring import open_catalog, render_artifact


def deployable(**changes):
    there = candidate()
    changed = replaced(there, engine=altered(there.engine, **changes))
    return Deployable(name="demo", candidate=changed, model=profile(), log_filter=log_filter())


def made(place="docker", devices=None, **changes):
    container = container_for(deployable(**changes))
    host = Host(
        revision=1,
        name="demo",
        place=place,
        container=container,
        devices=devices,
        secrets={"A": "B"},
        ready_deadline_s=900,
    )
    return resources(host)


def test_the_cache_outlives_the_container():
    cache, container = made()
    assert cache.notes[KEPT]
    assert container.properties["volumes"] == {"/data": cache.properties["name"]}
    assert container.mutable == ("running",)
    assert "running" in container.properties


def test_restarting_keeps_the_container():
    _, container = made()
    stopped = replaced(container, properties={**container.properties, "running": False})
    assert stopped.spec == container.spec


@pytest.mark.parametrize(
    "changes", [{"args": ("--model-id", "other")}, {"port": 9}, {"image": "other"}, {"env": {"HF_HOME": "/other"}}]
)
def test_a_changed_command_port_or_image_replaces_the_container(changes):
    assert made(**changes)[1].spec != made()[1].spec


def test_the_resource_has_only_names_of_secrets():
    assert made()[1].properties["secret_env"] == {"A": "B"}


def test_it_uses_as_many_gpus_as_the_plan():
    assert made(gpus=1, devices=("GPU-a", "GPU-b"))[1].properties["devices"] == ["GPU-a"]


def test_the_health_check_is_the_one_of_the_compose_file():
    compose = yaml.safe_load(render_artifact("compose", deployable()).text)["services"]["tgi"]["healthcheck"]
    health = made()[1].properties["health"]
    assert health["command"] == [word.replace("$$", "$") for word in compose["test"][1:]]
    assert (f"{health['every_s']}s", health["tries"]) == (compose["interval"], compose["retries"])


def weights_of(version):
    release = open_catalog().release(version)
    return Mount(path=Tgi().cache_path, purpose="weights", layout=cache_layout(release))


def test_releases_with_another_cache_layout_use_another_volume():
    names = {version: cache_name(weights_of(version)) for version in ("2.2.0", "2.3.0", "3.3.7")}
    assert names["2.2.0"] != names["2.3.0"] == names["3.3.7"]


def test_every_release_caches_models_in_the_volume():
    names = {version: cache_name(weights_of(version)) for version in open_catalog().release_versions()}
    assert [version for version, name in names.items() if "default" in name] == []


def test_commands_name_a_remote_host():
    assert removal_command("container", "abc", "docker") == "docker rm --force abc"
    assert removal_command("volume", "v", "docker:tcp://h:1") == "docker --host tcp://h:1 volume rm v"
    assert removal_command("image", "x", "docker") is None
    end = TunnelEnd(place="docker:tcp://gpu-box:2376", machine_id="c1", port=8080)
    assert tunnel(end) == "ssh -N -L 8080:127.0.0.1:8080 gpu-box"
    assert tunnel(TunnelEnd(place="docker", machine_id="c1", port=8080)) == ""
