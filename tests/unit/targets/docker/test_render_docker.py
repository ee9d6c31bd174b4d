from __future__ import annotations

import csv
import itertools
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from builders import plans
from builders.hostile import HOSTILE

from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable


def argv(deployable: Deployable) -> list[str]:
    text = render_artifact("docker", deployable).text
    assert text.endswith("\n")
    return shlex.split(text.replace("\\\n", " "))


def values_of(words: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == option]


def with_engine(**changes: object) -> Deployable:
    return plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes)))


def on_host_with(gpus: int, *, num_shard: int) -> Deployable:
    offer = plans.offer(instance_type=plans.instance_type(accelerator_count=gpus))
    return plans.deployable(candidate=plans.candidate(offer=offer, engine=plans.engine(num_shard=num_shard)))


def test_hostile_values_survive_the_shell_as_they_are(tmp_path: Path):
    args = tuple(word for value in HOSTILE for word in ("--x", value))
    env = {f"V{number}": value for number, value in enumerate(HOSTILE)}
    deployable = with_engine(args=args, env=env)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    docker.chmod(0o755)

    text = render_artifact("docker", deployable).text
    done = subprocess.run(
        ["/bin/sh"], input=text.encode(), capture_output=True, check=True, cwd=tmp_path, env={"PATH": str(tmp_path)}
    )

    words = done.stdout.decode().split("\0")[:-1]
    assert tuple(words[words.index(plans.IMAGE) + 1 :]) == deployable.candidate.engine.container.args
    assert sorted(values_of(words, "-e")[: len(env)]) == sorted(f"{key}={value}" for key, value in env.items())
    assert [path.name for path in tmp_path.iterdir()] == ["docker"]


def test_devices_are_one_csv_field_for_docker():
    option = values_of(argv(on_host_with(4, num_shard=2)), "--gpus")[0]
    assert next(csv.reader([option])) == ["device=0,1"]


@pytest.mark.parametrize(("size_bytes", "wanted"), [(2 * 1024**3, "2g"), (256 * 1024**2, "256m"), (1000, "1000b")])
def test_shared_memory_in_its_largest_unit(size_bytes: int, wanted: str):
    engine = plans.engine(num_shard=2, shm_bytes=size_bytes)
    assert values_of(argv(plans.deployable(candidate=plans.candidate(engine=engine))), "--shm-size") == [wanted]


def local(path: str) -> Deployable:
    engine = plans.engine(model_id=path)
    model = plans.profile(local_path=path, gated=True)
    return plans.deployable(candidate=plans.candidate(engine=engine), model=model)


@pytest.mark.parametrize("path", ["/a,b", '/a"b', "/a b:c", "/a,target=/etc"])
def test_path_of_a_local_model_is_one_csv_field(path: str):
    option = values_of(argv(local(path)), "--mount")[0]
    assert next(csv.reader([option])) == ["type=bind", f"source={path}", "target=/model", "readonly"]


def test_relative_model_path_is_no_volume_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    option = values_of(argv(local("./mine")), "--mount")[0]
    assert f"source={tmp_path}/mine" in next(csv.reader([option]))
