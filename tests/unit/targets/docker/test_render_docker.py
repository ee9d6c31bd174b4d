from __future__ import annotations

import csv
import itertools
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from builders import plans
from builders.hostile import HOSTILE

from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import written

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable


def argv(deployable: Deployable) -> list[str]:
    text = written("docker", deployable).text
    assert text.endswith("\n")
    return shlex.split(text.replace("\\\n", " "))


def values_of(words: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(words) if name == option]


def with_engine(**changes: object) -> Deployable:
    return plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes)))


def on_host_with(gpus: int, *, num_shard: int) -> Deployable:
    offer = plans.offer(instance_type=plans.instance_type(accelerator_count=gpus))
    return plans.deployable(candidate=plans.candidate(offer=offer, engine=plans.engine(num_shard=num_shard)))


def test_argv_is_exactly_the_plan():
    deployable = with_engine(env={"HF_HOME": "/data", "A": "1"})
    assert argv(deployable) == [
        *("docker", "run", "--detach", "--name", "example", "--restart", "on-failure:3", "--gpus", "all"),
        *("--stop-timeout", "120", "-p", "127.0.0.1:8080:80", "-v", "tgi-data:/data"),
        *("-e", "A=1", "-e", "HF_HOME=/data", plans.IMAGE),
        *deployable.candidate.engine.container.args,
    ]


def test_hostile_values_survive_the_shell_as_they_are(tmp_path: Path):
    args = tuple(word for value in HOSTILE for word in ("--x", value))
    env = {f"V{number}": value for number, value in enumerate(HOSTILE)}
    deployable = with_engine(args=args, env=env)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    docker.chmod(0o755)

    text = written("docker", deployable).text
    done = subprocess.run(
        ["/bin/sh"], input=text.encode(), capture_output=True, check=True, cwd=tmp_path, env={"PATH": str(tmp_path)}
    )

    words = done.stdout.decode().split("\0")[:-1]
    assert tuple(words[words.index(plans.IMAGE) + 1 :]) == deployable.candidate.engine.container.args
    assert sorted(values_of(words, "-e")[: len(env)]) == sorted(f"{key}={value}" for key, value in env.items())
    assert [path.name for path in tmp_path.iterdir()] == ["docker"]


@pytest.mark.parametrize(
    ("gpus", "num_shard", "wanted"),
    [(1, 1, "all"), (4, 4, "all"), (4, 1, '"device=0"'), (4, 2, '"device=0,1"'), (8, 4, '"device=0,1,2,3"')],
)
def test_gpus(gpus: int, num_shard: int, wanted: str):
    assert values_of(argv(on_host_with(gpus, num_shard=num_shard)), "--gpus") == [wanted]


def test_devices_are_one_csv_field_for_docker():
    option = values_of(argv(on_host_with(4, num_shard=2)), "--gpus")[0]
    assert next(csv.reader([option])) == ["device=0,1"]


def test_gpus_of_an_owned_host_are_always_named():
    candidate = plans.candidate(offer=plans.on_hardware(2, "RTX-4090"), engine=plans.engine(num_shard=2))
    assert values_of(argv(plans.deployable(candidate=candidate)), "--gpus") == ['"device=0,1"']


def test_shared_memory_only_for_shards():
    assert values_of(argv(on_host_with(2, num_shard=1)), "--shm-size") == []
    assert values_of(argv(on_host_with(2, num_shard=2)), "--shm-size") == ["1g"]


@pytest.mark.parametrize(("size_bytes", "wanted"), [(2 * 1024**3, "2g"), (256 * 1024**2, "256m"), (1000, "1000b")])
def test_shared_memory_in_its_largest_unit(size_bytes: int, wanted: str):
    engine = plans.engine(num_shard=2, shm_bytes=size_bytes)
    assert values_of(argv(plans.deployable(candidate=plans.candidate(engine=engine))), "--shm-size") == [wanted]


def test_port_is_published_on_loopback_only():
    assert values_of(argv(with_engine(port=9000)), "-p") == ["127.0.0.1:9000:80"]


def test_token_goes_by_name_when_the_model_is_gated():
    assert "HF_TOKEN" not in argv(plans.deployable())
    assert "HF_TOKEN" in values_of(argv(plans.deployable(model=plans.profile(gated=True))), "-e")


def test_secrets_of_the_engine_go_by_name():
    assert {"API_KEY", "HF_TOKEN"} <= set(values_of(argv(with_engine(secret_env=("HF_TOKEN", "API_KEY"))), "-e"))


def local(path: str) -> Deployable:
    engine = plans.engine(model_id=path)
    model = plans.profile(local_path=path, gated=True)
    return plans.deployable(candidate=plans.candidate(engine=engine), model=model)


def test_local_model_is_mounted_read_only_and_offline():
    words = argv(local("/srv/models/mine"))
    assert values_of(words, "--mount") == ["type=bind,source=/srv/models/mine,target=/model,readonly"]
    assert values_of(words, "--model-id") == ["/model"]
    assert "HF_HUB_OFFLINE=1" in words
    assert "HF_TOKEN" not in words


@pytest.mark.parametrize("path", ["/a,b", '/a"b', "/a b:c", "/a,target=/etc"])
def test_path_of_a_local_model_is_one_csv_field(path: str):
    option = values_of(argv(local(path)), "--mount")[0]
    assert next(csv.reader([option])) == ["type=bind", f"source={path}", "target=/model", "readonly"]


def test_relative_model_path_is_no_volume_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    option = values_of(argv(local("./mine")), "--mount")[0]
    assert f"source={tmp_path}/mine" in next(csv.reader([option]))


def test_one_command_and_nothing_else():
    lines = written("docker", replaced(plans.deployable(), name="other")).text.splitlines()
    assert lines[0] == "docker run \\"
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert not lines[-1].endswith("\\")
