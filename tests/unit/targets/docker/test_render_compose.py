from __future__ import annotations

import http.server
import re
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from builders import plans
from builders.hostile import HOSTILE

from tgi_deploy.wiring import written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.targets.protocol import Deployable

_TEXT = {"type": "string"}
_DURATION = {"type": "string", "pattern": r"^\d+s$"}
_DEVICE = {
    "type": "object",
    "required": ["driver", "capabilities"],
    "properties": {
        "driver": {"const": "nvidia"},
        "capabilities": {"const": ["gpu"]},
        "count": {"type": "integer", "minimum": 1},
        "device_ids": {"type": "array", "items": {"type": "string", "pattern": r"^\d+$"}, "uniqueItems": True},
    },
    "oneOf": [{"required": ["count"]}, {"required": ["device_ids"]}],
    "additionalProperties": False,
}
_SERVICE = {
    "type": "object",
    "required": ["image", "command", "ports", "volumes", "stop_grace_period", "restart", "healthcheck", "deploy"],
    "properties": {
        "image": _TEXT,
        "command": {"type": "array", "items": _TEXT, "minItems": 1},
        "environment": {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {"^[A-Za-z_][A-Za-z0-9_]*$": {"type": ["string", "null"]}},
            "additionalProperties": False,
        },
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
        "volumes": {"type": "array", "items": {"type": ["string", "object"]}},
        "shm_size": {"type": "string", "pattern": r"^\d+[bkmg]$"},
        "stop_grace_period": _DURATION,
        "restart": {"type": "string", "pattern": r"^on-failure:[1-9]\d*$"},
        "healthcheck": {
            "type": "object",
            "required": ["test", "interval", "timeout", "retries", "start_period"],
            "properties": {
                "test": {"type": "array", "items": _TEXT, "minItems": 2},
                "interval": _DURATION,
                "timeout": _DURATION,
                "retries": {"type": "integer"},
                "start_period": _DURATION,
            },
            "additionalProperties": False,
        },
        "deploy": {
            "type": "object",
            "properties": {
                "resources": {
                    "properties": {
                        "reservations": {
                            "properties": {"devices": {"type": "array", "items": _DEVICE, "minItems": 1}},
                            "additionalProperties": False,
                        }
                    },
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
# The parts of the Compose Specification's schema (compose-spec.json) that are used, made strict.
SCHEMA = {
    "type": "object",
    "required": ["name", "services", "volumes"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "properties": {"tgi": _SERVICE}, "additionalProperties": False},
        "volumes": {"type": "object"},
    },
    "additionalProperties": False,
}


def document(deployable: Deployable) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(written("compose", deployable).text)
    jsonschema.validate(loaded, SCHEMA)
    return loaded


def service(deployable: Deployable) -> dict[str, Any]:
    found: dict[str, Any] = document(deployable)["services"]["tgi"]
    return found


def with_engine(**changes: object) -> Deployable:
    return plans.deployable(candidate=plans.candidate(engine=plans.engine(**changes)))


def interpolated(text: str) -> str:
    """What compose makes of a value: `$$` is a dollar sign, and a lone one would be a variable."""
    assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", text), f"compose would interpolate {text!r}"
    return text.replace("$$", "$")


def test_schema_refuses_what_it_should():
    good = document(plans.deployable())
    for wrong in ({"ports": ["8080:80"]}, {"restart": "always"}, {"environment": {"A": 1}}, {"privileged": True}):
        changed = {**good, "services": {"tgi": {**good["services"]["tgi"], **wrong}}}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed, SCHEMA)


def test_values_are_the_plan():
    deployable = with_engine(num_shard=1)
    found = service(deployable)
    assert found["image"] == plans.IMAGE
    assert tuple(found["command"]) == deployable.candidate.engine.container.args
    assert found["environment"] == {"HF_HOME": "/data"}
    assert found["stop_grace_period"] == "120s"
    assert "shm_size" not in found


def test_hostile_values_survive():
    env = {f"V{number}": value for number, value in enumerate(HOSTILE)}
    found = service(with_engine(args=HOSTILE, env=env))
    assert tuple(map(interpolated, found["command"][-len(HOSTILE) :])) == HOSTILE
    assert {key: interpolated(value) for key, value in found["environment"].items()} == env


@pytest.mark.parametrize("name", ["NO", "Y", "ON", "null", "true"])
def test_names_that_yaml_would_convert_stay_names(name: str):
    assert service(with_engine(env={name: "1"}))["environment"] == {name: "1"}


def test_no_environment_is_no_key():
    assert "environment" not in service(with_engine(env={}))


def test_secret_is_taken_from_the_callers_environment():
    assert service(with_engine(secret_env=("HF_TOKEN",)))["environment"]["HF_TOKEN"] is None


@pytest.mark.parametrize(
    ("gpus", "num_shard", "wanted"),
    [(1, 1, {"count": 1}), (4, 4, {"count": 4}), (4, 2, {"device_ids": ["0", "1"]})],
)
def test_devices(gpus: int, num_shard: int, wanted: dict[str, Any]):
    offer = plans.offer(instance_type=plans.instance_type(accelerator_count=gpus))
    candidate = plans.candidate(offer=offer, engine=plans.engine(num_shard=num_shard))
    found = service(plans.deployable(candidate=candidate))
    devices = found["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "capabilities": ["gpu"], **wanted}]
    assert found.get("shm_size") == ("1g" if num_shard > 1 else None)


def test_local_model_is_mounted_read_only():
    path = "/models/my $model: 13b"
    deployable = plans.deployable(model=plans.profile(local_path=path))
    mount = service(deployable)["volumes"][1]
    assert interpolated(mount.pop("source")) == path
    assert mount == {"type": "bind", "target": "/model", "read_only": True}


def test_nothing_counts_as_sick_before_the_deadline_of_the_plan():
    assert service(plans.deployable(ready_deadline_s=900))["healthcheck"]["start_period"] == "900s"


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def health_status(port: int) -> int:
    marker, *command = service(plans.deployable())["healthcheck"]["test"]
    assert marker == "CMD"
    here = [interpolated(word).replace("127.0.0.1/80", f"127.0.0.1/{port}") for word in command]
    assert here != command
    return subprocess.run(here, check=False, capture_output=True, timeout=120).returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_health_check_judges_the_answer(status: int, healthy: bool):  # noqa: FBT001 -- a table
    with answering(status) as port:
        assert (health_status(port) == 0) is healthy


def test_health_check_fails_while_nothing_listens():
    with answering(200) as port:
        pass
    assert health_status(port) != 0
