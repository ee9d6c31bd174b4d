from __future__ import annotations

import http.server
import re
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from builders import plans
from builders.hostile import HOSTILE

from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.targets.protocol import Deployable


def document(deployable: Deployable) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(render_artifact("compose", deployable).text)
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


def test_hostile_values_survive():
    env = {f"V{number}": value for number, value in enumerate(HOSTILE)}
    found = service(with_engine(args=HOSTILE, env=env))
    assert tuple(map(interpolated, found["command"][-len(HOSTILE) :])) == HOSTILE
    assert {key: interpolated(value) for key, value in found["environment"].items()} == env


@pytest.mark.parametrize("name", ["NO", "Y", "ON", "null", "true"])
def test_names_that_yaml_would_convert_stay_names(name: str):
    assert service(with_engine(env={name: "1"}))["environment"] == {name: "1"}


def test_local_model_is_mounted_read_only():
    path = "/models/my $model: 13b"
    deployable = plans.deployable(model=plans.profile(local_path=path))
    mount = service(deployable)["volumes"][1]
    assert interpolated(mount.pop("source")) == path
    assert mount == {"type": "bind", "target": "/model", "read_only": True}


def test_the_health_check_waits_until_the_planned_deadline():
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
def test_the_health_check_evaluates_the_answer(status: int, healthy: bool):  # noqa: FBT001 -- a table
    with answering(status) as port:
        assert (health_status(port) == 0) is healthy


def test_health_check_fails_while_nothing_listens():
    with answering(200) as port:
        pass
    assert health_status(port) != 0
