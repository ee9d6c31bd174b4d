"""One container in four forms: `docker run`, Compose, the user data of a machine, and the Docker API."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from builders import engines, plans
from builders.hostile import HOSTILE
from builders.machine import Machine
from fakes.docker_host import FakeDocker

from tgi_deploy.engines.vllm import Vllm
from tgi_deploy.targets.container import container_for
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.container import Containers
from tgi_deploy.targets.docker.endpoint import endpoint_of
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.resources import Host, resources
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable
    from tgi_deploy.values.plan import EngineRun


class Seen(NamedTuple):
    image: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    folders: frozenset[str]
    shm_size: str | None
    port: int
    stop_s: int


def of_words(words: Sequence[str], env: Mapping[str, str]) -> Seen:
    """What a `docker run` asks for, whose environment may come from a file."""
    image = (
        words.index(plans.IMAGE) if plans.IMAGE in words else next(at for at, word in enumerate(words) if ":v" in word)
    )
    options = list(itertools.pairwise(words[:image]))
    given = dict(pair.split("=", 1) for name, pair in options if name == "-e" and "=" in pair)
    only = dict(options)
    return Seen(
        image=words[image],
        args=tuple(words[image + 1 :]),
        env={**env, **given},
        folders=frozenset(volume.rpartition(":")[2] for name, volume in options if name == "-v"),
        shm_size=only.get("--shm-size"),
        port=int(only["-p"].rpartition(":")[2]),
        stop_s=int(only["--stop-timeout"]),
    )


def by_docker_run(deployable: Deployable, _folder: Path) -> Seen:
    return of_words(shlex.split(render_artifact("docker", deployable).text.replace("\\\n", " ")), {})


def by_user_data(deployable: Deployable, folder: Path) -> Seen:
    machine = Machine(folder=folder / "machine", user_data=render_artifact("user-data", deployable).text)
    machine.run("run-engine")
    lines = machine.at("/opt/tgi-deploy/engine.env").read_text(encoding="utf-8").splitlines()
    return of_words(machine.docker("run")[0], dict(line.split("=", 1) for line in lines))


def by_compose(deployable: Deployable, _folder: Path) -> Seen:
    (service,) = yaml.safe_load(render_artifact("compose", deployable).text)["services"].values()
    return Seen(
        image=service["image"],
        args=tuple(word.replace("$$", "$") for word in service["command"]),
        env={name: value.replace("$$", "$") for name, value in service["environment"].items()},
        folders=frozenset(volume.rpartition(":")[2] for volume in service["volumes"]),
        shm_size=service.get("shm_size"),
        port=int(service["ports"][0].rpartition(":")[2]),
        stop_s=int(service["stop_grace_period"].removesuffix("s")),
    )


def by_api(deployable: Deployable, _folder: Path) -> Seen:
    docker = FakeDocker()
    host = Host(
        name="demo", revision=1, place="docker", container=container_for(deployable), secrets={}, ready_deadline_s=900
    )
    wanted = resources(host)[-1].properties
    api = Api(endpoint=endpoint_of("docker", {}), table=ErrorTable(()), environ={}, connect=lambda _at: docker)
    Containers(api).create(wanted, tags={}, token="")
    (made,) = docker.containers_by_id.values()
    request: dict[str, Any] = made["request"]
    return Seen(
        image=request["image"],
        args=tuple(request["command"]),
        env=request["environment"],
        folders=frozenset(mount["Target"] for mount in request["host_config"]["mounts"]),
        shm_size=request["host_config"]["shm_size"],
        port=request["ports"][0],
        stop_s=request["stop_timeout"],
    )


def another_engine(num_shard: int) -> EngineRun:
    made = Vllm().container(engines.fit_of(engines.releases(Vllm())[-1], num_shard=num_shard))
    return replaced(plans.engine(num_shard=num_shard), name="vllm", container=made)


@pytest.mark.parametrize("view", [by_docker_run, by_user_data, by_compose, by_api])
@pytest.mark.parametrize(
    "engine",
    [
        plans.engine(args=HOSTILE, env={"HF_HOME": "/data", "B": 'it\'s $1 "or" `2`'}),
        plans.engine(num_shard=4, shm_bytes=3 * plans.GIB // 2, stop_timeout_s=7),
        another_engine(1),
        another_engine(2),
    ],
    ids=["hostile", "shards", "another-engine", "another-engine-shards"],
)
def test_every_artifact_describes_the_same_container(view: Any, engine: EngineRun, tmp_path: Path) -> None:
    offer = plans.offer(instance_type=plans.instance_type(accelerator_count=engine.container.accelerators))
    deployable = plans.deployable(candidate=plans.candidate(offer=offer, engine=engine))
    asked = engine.container
    assert view(deployable, tmp_path) == Seen(
        image=asked.image.reference,
        args=asked.args,
        env=dict(asked.env),
        folders=frozenset(mount.path for mount in asked.mounts),
        shm_size={0: None, plans.GIB: "1g", 3 * plans.GIB // 2: "1536m"}[asked.shm_bytes],
        port=asked.port,
        stop_s=asked.stop.grace_s,
    )
