"""One shared sandbox, emptied before each test, with its call log; and tools that validate files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.aws_profiles import profile_data
from builders.sandboxed import Sandboxed
from fakes.computer import FakeClock

from tgi_deploy.sandbox import api, control
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.errors import ErrorTable
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.aws.session import SessionFactory
from tgi_deploy.targets.ec2.cloud import Ec2Cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

TAGS = {"Name": "tgi-deploy-demo", "tgi-deploy:deployment": "demo", "tgi-deploy:id": "abc", "tgi-deploy:spec": "s1"}


@dataclass
class Bench(Sandboxed):
    clock: FakeClock = field(default_factory=FakeClock)
    sessions: SessionFactory = field(init=False)

    def __post_init__(self) -> None:
        table = ErrorTable.of(profile_data("errors.json"))
        self.sessions = SessionFactory(table=table, endpoint_url=self.url, access_key=self.access_key)

    def cloud(self, region: str = "us-east-1") -> Ec2Cloud:
        made = Api(region=region, sessions=self.sessions, retrier=Retrier(self.clock))
        return Ec2Cloud(api=made, image_parameters=profile_data("amis.json")["parameters"])

    def calls(self, action: str) -> list[dict[str, Any]]:
        """Return the parameters of each call."""
        return [call["params"] for call in super().calls(action)]

    def group(self, **changes: Any) -> Any:
        place = self.cloud().placements("g6e.xlarge", subnet=None)[0]
        wanted = {
            "name": "tgi-deploy-demo-abc",
            "description": "endpoint",
            "network": place.network,
            "port": 8080,
            "cidrs": ["203.0.113.7/32", "2001:db8::7/128"],
        } | changes
        handler = self.cloud().handler("security-group")
        tags = {**TAGS, "tgi-deploy:key": "security-group"}
        found = handler.create(wanted, tags=tags, token="t")
        handler.update(found.attributes, wanted)
        return found

    def template(self) -> Any:
        image = self.cloud().image(architecture="x86_64", wanted=None)
        disk = {"VolumeType": "gp3", "VolumeSize": 95, "Encrypted": True, "DeleteOnTermination": True}
        data = {
            "ImageId": image.id,
            "InstanceType": "g6e.xlarge",
            "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        }
        handler = self.cloud().handler("launch-template")
        tags = {**TAGS, "tgi-deploy:key": "launch-template"}
        return handler.create({"name": "tgi-deploy-demo-abc-1", "data": data}, tags=tags, token="t-template")

    def request(self, *, spot: bool = False) -> dict[str, Any]:
        place = self.cloud().placements("g6e.xlarge", subnet=None)[0]
        template = self.template()
        market = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
        return {
            "spot": spot,
            "request": {
                "LaunchTemplate": {
                    "LaunchTemplateId": template.id,
                    "Version": template.attributes["version"],
                },
                "InstanceType": "g6e.xlarge",
                "Placement": {"AvailabilityZone": place.zone},
                "NetworkInterfaces": [
                    {
                        "DeviceIndex": 0,
                        "SubnetId": place.subnet,
                        "Groups": [self.group().id],
                        "DeleteOnTermination": True,
                    }
                ],
                "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
                "InstanceInitiatedShutdownBehavior": "terminate",
                **market,
            },
        }

    def launch(self, *, token: str = "t", **changes: Any) -> Any:  # noqa: S107 -- a request token
        tags = {**TAGS, "tgi-deploy:key": "instance"}
        return self.cloud().handler("instance").create(self.request(**changes), tags=tags, token=token)


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[control.SandboxInfo]:
    home = tmp_path_factory.mktemp("adapters") / "sandbox"
    yield control.start(home, speed=600.0)
    control.stop(home)


@pytest.fixture
def bench(sandbox: control.SandboxInfo) -> Bench:
    api.control(sandbox.endpoint, "POST", "/_sandbox/reset")
    return Bench(url=sandbox.endpoint_url, access_key=sandbox.access_key)


@pytest.fixture(scope="session")
def shellcheck() -> str:
    beside = Path(sys.executable).with_name("shellcheck")
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert found, "shellcheck is part of the dev extra"
    return found


@pytest.fixture(scope="session")
def cloud_init() -> str:
    return shutil.which("cloud-init") or pytest.skip("cloud-init is not installed")


@pytest.fixture(scope="session")
def docker_compose() -> tuple[str, ...]:
    """`docker compose`, the plugin: the older docker-compose knows no `name`."""
    command = ("docker", "compose")
    if not shutil.which("docker") or subprocess.run([*command, "version"], check=False, capture_output=True).returncode:
        pytest.skip("docker's compose plugin is not installed")
    return command
