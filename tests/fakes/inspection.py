"""A region and a computer without problems by default; an answer that is an error is raised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.catalog.quotas import read_quotas
from tgi_deploy.errors import DeployError
from tgi_deploy.targets.docker.host_checks import Engine
from tgi_deploy.targets.ec2.dry_run import OF_STATIC_IP, REQUESTS
from tgi_deploy.targets.ec2.inspection import AccountPolicy, Identity, RehearsedLaunch, Usage, Verdict
from tgi_deploy.targets.ec2.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARN = "arn:aws:iam::123456789012:user/somebody"
BOUNDARY = read_actions().boundary
BOUNDARY_ARN = BOUNDARY.arn("123456789012", "aws")


def answered(value: Any) -> Any:
    if isinstance(value, DeployError):
        raise value
    return value


@dataclass
class FakeInspector:
    region: str = "us-east-1"
    who: Any = field(default_factory=lambda: Identity(account="123456789012", arn=ARN, skew_s=0.4))
    status: Any = "opt-in-not-required"
    limit: Any = 768.0
    machines: Any = ()
    free: Any = 250
    addresses: Any = (0, 5)
    leads_to: Any = "internet gateway igw-1"
    boundary: Any = field(default_factory=lambda: AccountPolicy(arn=BOUNDARY_ARN, document=BOUNDARY.document()))
    verdicts: Mapping[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    launches: list[RehearsedLaunch] = field(default_factory=list)

    def identity(self) -> Identity:
        return self._answer("identity", self.who)

    def region_status(self) -> str:
        return self._answer("region", self.status)

    def quota(self, code: str) -> float:
        return self._answer(f"quota {code}", self.limit)

    def usage(self, patterns: Sequence[str], market: str) -> tuple[Usage, ...]:
        return self._answer(f"usage {' '.join(patterns)} {market}", self.machines)

    def free_addresses(self, subnet: str) -> int:
        return self._answer(f"addresses {subnet}", self.free)

    def elastic_addresses(self) -> tuple[int, int]:
        return self._answer("elastic addresses", self.addresses)

    def default_route(self, subnet: str, network: str) -> str | None:
        return self._answer(f"route {subnet} {network}", self.leads_to)

    def policy(self, name: str) -> AccountPolicy | None:
        return self._answer(f"policy {name}", self.boundary)

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(name for name in REQUESTS if name not in OF_STATIC_IP)

    def rehearse(self, action: str, launch: RehearsedLaunch) -> Verdict:
        self.launches.append(launch)
        return self._answer(action, self.verdicts.get(action, "allowed"))

    def _answer(self, what: str, value: Any) -> Any:
        self.asked.append(what)
        return answered(value)


@dataclass
class FakeWorkstation:
    python: str = "3.12.1"
    folder: Any = "/state"
    packages: tuple[str, ...] = ("huggingface_hub", "moto", "docker")

    def state_folder(self) -> str:
        return answered(self.folder)

    def has(self, package: str) -> bool:
        return package in self.packages


@dataclass
class FakeInstallation:
    docker: Any = field(default_factory=lambda: Engine(version="29.1.0", runtimes=("nvidia", "runc")))
    gpus: tuple[str, ...] = ("NVIDIA L40S, 46068 MiB",)

    def engine(self) -> Engine:
        return answered(self.docker)

    def cards(self) -> tuple[str, ...]:
        return self.gpus


def survey_of(inspector: FakeInspector, **changes: Any) -> Survey:
    values: dict[str, Any] = {
        "inspector": lambda _region: inspector,
        "quotas": read_quotas,
        "vcpus": {"g6e.xlarge": 4, "g6e.2xlarge": 8}.get,
    }
    return Survey(**(values | changes))
