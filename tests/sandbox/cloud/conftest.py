"""One sandbox for the session, emptied before each test, and clients without retries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from builders.sandboxed import Sandboxed
from builders.waiting import eventually

from tgi_deploy.sandbox import control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPEED = 600.0
WAIT_S = 60.0
UBUNTU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@dataclass
class Cloud(Sandboxed):
    home: Path
    clients: dict[tuple[str, str], Any] = field(default_factory=dict)

    def client(self, service: str, region: str = "us-east-1", **_settings: Any) -> Any:
        """Return a client without retries, created once."""
        if (service, region) not in self.clients:
            once = Config(retries={"total_max_attempts": 1})
            self.clients[service, region] = super().client(service, region, config=once)
        return self.clients[service, region]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    def image(self, region: str = "us-east-1") -> str:
        return self.client("ssm", region).get_parameter(Name=UBUNTU)["Parameter"]["Value"]

    def run(self, user_data: str = "", **changes: Any) -> str:
        request = {"ImageId": self.image(), "InstanceType": "g6e.xlarge", "MinCount": 1, "MaxCount": 1, **changes}
        if user_data:
            request["UserData"] = user_data
        return self.ec2.run_instances(**request)["Instances"][0]["InstanceId"]

    def instance(self, instance_id: str, region: str = "us-east-1") -> dict[str, Any]:
        found = self.client("ec2", region).describe_instances(InstanceIds=[instance_id])
        return found["Reservations"][0]["Instances"][0]

    def state(self, instance_id: str) -> str:
        return self.instance(instance_id)["State"]["Name"]

    def console(self, instance_id: str) -> str:
        return self.ec2.get_console_output(InstanceId=instance_id, Latest=True).get("Output", "")

    def wait(self, condition: Callable[[], Any], *, within_s: float = WAIT_S) -> Any:
        return eventually(condition, within_s=within_s, pause_s=0.03)

    def wait_for_state(self, instance_id: str, state: str) -> dict[str, Any]:
        self.wait(lambda: self.state(instance_id) == state)
        return self.instance(instance_id)

    def wait_for_line(self, instance_id: str, text: str) -> str:
        def seen() -> str:
            console = self.console(instance_id)
            return console if text in console else ""

        return eventually(seen, lambda: f"{text!r} in:\n{self.console(instance_id)[-3000:]}", within_s=WAIT_S)

    def booted(self, user_data: str, **changes: Any) -> tuple[str, str]:
        """Return an instance whose user data has finished, and its console."""
        instance_id = self.run(user_data, **changes)
        return instance_id, self.wait_for_line(instance_id, "finished at")


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    home = tmp_path_factory.mktemp("state") / "sandbox"
    info = control.start(home, speed=SPEED)
    yield Cloud(url=info.endpoint_url, home=home, access_key=info.access_key)
    control.stop(home)


@pytest.fixture
def cloud(sandbox: Cloud) -> Cloud:
    sandbox.control("POST", "reset")
    return sandbox
