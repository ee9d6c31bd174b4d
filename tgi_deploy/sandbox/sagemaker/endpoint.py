"""One endpoint: its instances, and what it is doing with them, step by step."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from moto.cloudwatch.models import cloudwatch_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.sandbox.engine.situation import Fault
from tgi_deploy.sandbox.hardware import release_bytes
from tgi_deploy.sandbox.sagemaker.node import Node, NodeSpec
from tgi_deploy.sandbox.sagemaker.rules import backend, release_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tgi_deploy.sandbox.faults import FaultTable
    from tgi_deploy.sandbox.guest.spawn import Spawner

# Measured by others on a ml.g6.2xlarge: 333 s to pull 17.7 GB, 525 s in all (the announcement of container image
# caching, 2026).
_PROVISION_S: Final = 60.0
_PULL_BYTES_PER_S: Final = 53e6
_RETRY_S: Final = 30.0
_ROLL_BACK_S: Final = 300.0
_DELETE_S: Final = 20.0
# Defaults and limits of the API's members (botocore).
_STARTUP_S: Final = 600.0
_LOOKING_S: Final = 300.0
_DEPLOYMENT_S: Final = 28800.0
_NO_CAPACITY: Final = "Server.InsufficientInstanceCapacity"
# As bug reports quote them.
_ICE: Final = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. Please retry using a "
    "different ML instance type or after some time. Consider configuring InstancePools in your EndpointConfig with "
    "multiple instance types for priority-based fallback to improve capacity availability."
)
_PING: Final = (
    "The primary container for production variant {variant} did not pass the ping health check. Please check "
    "CloudWatch logs for this endpoint."
)
# AWS does not document these two.
_ALARM: Final = "The deployment was rolled back because an alarm of its automatic rollback was in ALARM: {names}."
_LATE: Final = "The deployment did not finish within MaximumExecutionTimeoutInSeconds."
_ENGINE_FAULTS: Final = frozenset(map(str, Fault))
_BUSY: Final = frozenset({"Creating", "Updating", "RollingBack", "Deleting"})

Steps = Generator[None, None, None]


class DeploymentError(Exception):
    """A deployment that AWS would report as failed, with its reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxRegion:
    """The sandbox's region that an endpoint runs in. `line` writes a log line: log group, stream, text."""

    name: str
    faults: FaultTable
    spawner: Spawner
    speed: float
    line: Callable[[str, str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A variant of a configuration. `pools` are its instance types, best first, with the container for each."""

    name: str
    count: int
    weight: float
    pools: tuple[tuple[str, Mapping[str, Any]], ...]
    startup_s: float
    looking_s: float
    routing: str

    @classmethod
    def of(cls, region: str, item: Mapping[str, Any]) -> Variant:
        """Read a `ProductionVariant`. Raises KeyError for a model that was deleted."""
        models = backend(region)._models  # noqa: SLF001 -- moto has no public way that raises KeyError
        pools = sorted(item.get("InstancePools") or [{**item, "Priority": 1}], key=lambda pool: int(pool["Priority"]))
        found = [(pool["InstanceType"], models[pool.get("ModelNameOverride") or item["ModelName"]]) for pool in pools]
        return cls(
            name=item["VariantName"],
            count=item.get("InitialInstanceCount", 1),
            weight=item.get("InitialVariantWeight", 1.0),
            pools=tuple((kind, model.primary_container or model.containers[0]) for kind, model in found),
            startup_s=item.get("ContainerStartupHealthCheckTimeoutInSeconds", _STARTUP_S),
            looking_s=item.get("VariantInstanceProvisionTimeoutInSeconds", _LOOKING_S),
            routing=item.get("RoutingConfig", {}).get("RoutingStrategy", "RANDOM"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """A request to UpdateEndpoint: a configuration, its variants with their numbers of instances, and a policy."""

    config: str
    variants: tuple[Variant, ...]
    desired: dict[str, int]
    policy: Mapping[str, Any]

    @property
    def _chosen(self) -> Mapping[str, Any]:
        return self.policy.get("RollingUpdatePolicy") or self.policy.get("BlueGreenUpdatePolicy") or {}

    @property
    def limit_s(self) -> float:
        return float(self._chosen.get("MaximumExecutionTimeoutInSeconds", _DEPLOYMENT_S))

    @property
    def baking_s(self) -> float:
        """Return the seconds from a shift of traffic until the old instances are stopped."""
        routing = self._chosen.get("TrafficRoutingConfiguration") or self._chosen
        return float(routing.get("WaitIntervalInSeconds", 0) + self._chosen.get("TerminationWaitInSeconds", 0))

    def batch(self, variant: str) -> int:
        """Return how many instances are replaced at once: all, unless the policy is a rolling one."""
        size, total = self._chosen.get("MaximumBatchSize"), self.desired[variant]
        if size is None:
            return total
        return max(1, int(size["Value"]) if size["Type"] == "INSTANCE_COUNT" else total * int(size["Value"]) // 100)

    def alarms(self) -> list[str]:
        return [item["AlarmName"] for item in (self.policy.get("AutoRollbackConfiguration") or {}).get("Alarms", ())]


@dataclass(eq=False, slots=True)
class Endpoint:
    """`shown` is moto's endpoint, which answers the describing calls; `desired` the number of instances by variant.

    `scaled` are the activities of Application Auto Scaling.
    """

    shown: Any
    region: SandboxRegion
    variants: tuple[Variant, ...]
    nodes: list[Node] = field(default_factory=list)
    desired: dict[str, int] = field(default_factory=dict)
    scaled: list[dict[str, Any]] = field(default_factory=list)
    deleted: bool = False
    _steps: Steps | None = None

    @property
    def name(self) -> str:
        return str(self.shown.endpoint_name)

    @property
    def busy(self) -> bool:
        return self.shown.endpoint_status in _BUSY

    def serving(self, variant: str) -> list[Node]:
        return [node for node in self.nodes if node.in_service and node.spec.variant == variant]

    def step(self) -> None:
        """Advance the operation in progress, and restart failed instances."""
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        self.nodes = [node for node in self.nodes if not node.gone]
        for node in self.nodes:
            if node.in_service and node.failed:
                node.start()
        self.shown.production_variants = [self._summary(variant) for variant in self.variants]

    def create(self) -> None:
        self.desired = {variant.name: variant.count for variant in self.variants}
        self._pend(str(self.shown.endpoint_config_name), self.desired)
        self._begin("Creating", self._creating())

    def update(self, deployment: Deployment) -> None:
        self.shown.last_deployment_config = dict(deployment.policy) or None
        self._pend(deployment.config, deployment.desired)
        self._begin("Updating", self._updating(deployment))

    def scale(self, desired: Mapping[str, int]) -> None:
        before, self.desired = self.desired, {**self.desired, **desired}
        self._begin("Updating", self._scaling(before))

    def delete(self) -> None:
        self._begin("Deleting", self._deleting())

    def _pend(self, config: str, desired: Mapping[str, int]) -> None:
        variants = [{"VariantName": name, "DesiredInstanceCount": count} for name, count in desired.items()]
        self.shown.pending_deployment_summary = {
            "EndpointConfigName": config, "ProductionVariants": variants, "StartTime": datetime.now(UTC),
        }  # fmt: skip

    def _begin(self, status: str, steps: Steps) -> None:
        self._set(status)
        self._steps = steps
        self.step()

    def _set(self, status: str, reason: str | None = None) -> None:
        self.shown.endpoint_status, self.shown.failure_reason = status, reason
        self.shown.last_modified_time = datetime.now(UTC)
        if status not in _BUSY:
            self.shown.pending_deployment_summary = None

    def _creating(self) -> Steps:
        try:
            _turn((yield from self._launched(self.variants, self.desired)), on=True)
            self._set("InService")
        except DeploymentError as problem:
            self._set("Failed", str(problem))

    def _scaling(self, before: dict[str, int]) -> Steps:
        """Grow or shrink; RollingBack if it can't grow (API Reference, "DescribeEndpoint")."""
        now = {variant.name: self.serving(variant.name) for variant in self.variants}
        more = {name: self.desired[name] - len(nodes) for name, nodes in now.items()}
        reason = None
        try:
            _turn((yield from self._launched(self.variants, more)), on=True)
            yield from self._ended([node for name, nodes in now.items() for node in nodes[self.desired[name] :]])
        except DeploymentError as problem:
            reason, self.desired = str(problem), before
            self._set("RollingBack", reason)
            yield from self._pause(_ROLL_BACK_S)
        self._set("InService", reason)

    def _deleting(self) -> Steps:
        yield from self._ended(self.nodes)
        yield from self._pause(_DELETE_S)
        self.deleted = True

    def _updating(self, deployment: Deployment) -> Steps:
        """Deploy a configuration: AWS's guide, "Deployment guardrails for updating models in production"."""
        fresh: list[Node] = []
        status, reason = "InService", None
        try:
            yield from self._replaced(deployment, fresh)
            self.shown.endpoint_config_name = deployment.config
            self.variants, self.desired = deployment.variants, deployment.desired
        except DeploymentError as problem:
            reason = str(problem)
            self._set("RollingBack", reason)
            try:
                yield from self._restored(fresh)
            except DeploymentError:
                status = "UpdateRollbackFailed"
        self._set(status, reason)

    def _replaced(self, deployment: Deployment, fresh: list[Node]) -> Steps:
        """Replace the instances batch by batch, or all at once: blue/green. Adds the new ones to `fresh`."""
        old, left = [node for node in self.nodes if node.in_service], dict(deployment.desired)
        check = self._guard(deployment)
        while any(left.values()):
            batch = {name: min(count, deployment.batch(name)) for name, count in left.items()}
            left = {name: count - batch[name] for name, count in left.items()}
            new = yield from self._launched(deployment.variants, batch, check)
            fresh += new
            leaving = [node for node in old if node.in_service][: len(new) if any(left.values()) else None]
            _turn(new, on=True)
            _turn(leaving, on=False)
            yield from self._pause(deployment.baking_s, check)
            yield from self._ended(leaving)

    def _restored(self, fresh: Sequence[Node]) -> Steps:
        """Bring the old fleet back, and end the new one."""
        yield from self._pause(_ROLL_BACK_S)
        kept = [node for node in self.nodes if node not in fresh and not node.stopping]
        missing = {
            name: count - sum(node.spec.variant == name for node in kept) for name, count in self.desired.items()
        }
        _turn(kept, on=True)
        _turn((yield from self._launched(self.variants, missing)), on=True)
        yield from self._ended(fresh)

    def _guard(self, deployment: Deployment) -> Callable[[], None]:
        """Return what raises DeploymentError after the time limit, or when an alarm of the deployment is in ALARM."""
        until, names = time.monotonic() + deployment.limit_s / self.region.speed, deployment.alarms()

        def check() -> None:
            known = cloudwatch_backends[DEFAULT_ACCOUNT_ID][self.region.name].alarms if names else {}
            raised = [name for name in names if name in known and known[name].state_value == "ALARM"]
            if raised:
                raise DeploymentError(_ALARM.format(names=", ".join(raised)))
            if time.monotonic() > until:
                raise DeploymentError(_LATE)

        return check

    def _launched(
        self, variants: Iterable[Variant], counts: Mapping[str, int], check: Callable[[], None] = lambda: None
    ) -> Generator[None, None, list[Node]]:
        """Launch instances, and return them when all are healthy. Raises DeploymentError, with none left running."""
        new: list[Node] = []
        if all(count <= 0 for count in counts.values()):
            return new
        try:
            yield from self._pause(_PROVISION_S, check)
            for variant in variants:
                for _ in range(counts.get(variant.name, 0)):
                    node = yield from self._provisioned(variant)
                    new.append(node)
            while not all(map(_is_ready, new)):
                check()
                yield
        except DeploymentError:
            yield from self._ended(new)
            raise
        return new

    def _provisioned(self, variant: Variant) -> Generator[None, None, Node]:
        """Start an instance of the first pool with capacity. Raises DeploymentError when the time to look is over."""
        until = time.monotonic() + variant.looking_s / self.region.speed
        while True:
            for kind, container in variant.pools:
                spec = self._spec(variant, kind, container)
                if spec is not None:
                    node = Node(spec, self.region.spawner, self._line)
                    self.nodes.append(node)
                    node.start()
                    return node
            if time.monotonic() > until:
                raise DeploymentError(_ICE)
            yield from self._pause(_RETRY_S)

    def _spec(self, variant: Variant, kind: str, container: Mapping[str, Any]) -> NodeSpec | None:
        """Return what to start, with the injected faults; None without capacity."""
        facts = {"Region": self.region.name, "InstanceType": kind, "EndpointName": self.name}
        faults = self.region.faults.take_for_machine(facts)
        if any(fault.reason == _NO_CAPACITY for fault in faults):
            return None
        rates = [fault.pull_mb_per_s * 1e6 for fault in faults if fault.pull_mb_per_s] or [_PULL_BYTES_PER_S]
        pull_s = release_bytes(release_of(str(container["Image"]))) / rates[0] / self.region.speed
        return NodeSpec(
            variant=variant.name,
            instance_type=kind,
            container=container,
            startup_s=variant.startup_s,
            speed=self.region.speed,
            wait_s=max([pull_s, *(fault.boot_s for fault in faults if fault.boot_s is not None)]),
            faults=tuple(fault.engine for fault in faults if fault.engine in _ENGINE_FAULTS),
            dark=any(fault.dark for fault in faults),
        )

    def _line(self, stream: str, text: str) -> None:
        self.region.line(f"/aws/sagemaker/Endpoints/{self.name}", stream, text)

    def _ended(self, nodes: Iterable[Node]) -> Steps:
        leaving = list(nodes)
        for node in leaving:
            node.stop()
        while not all(node.gone for node in leaving):
            yield

    def _pause(self, seconds: float, check: Callable[[], None] = lambda: None) -> Steps:
        until = time.monotonic() + seconds / self.region.speed
        while time.monotonic() < until:
            check()
            yield

    def _summary(self, variant: Variant) -> dict[str, Any]:
        serving = self.serving(variant.name)
        counts = [
            {"InstanceType": kind, "CurrentInstanceCount": sum(node.spec.instance_type == kind for node in serving)}
            for kind, _ in variant.pools
        ]
        images = sorted({node.spec.image for node in serving})
        return {
            "VariantName": variant.name,
            "DeployedImages": [{"SpecifiedImage": image, "ResolvedImage": image} for image in images],
            "CurrentWeight": variant.weight,
            "DesiredWeight": variant.weight,
            "CurrentInstanceCount": len(serving),
            "DesiredInstanceCount": self.desired[variant.name],
            **({"InstancePools": counts} if len(counts) > 1 else {}),
        }


def _is_ready(node: Node) -> bool:
    """Raises DeploymentError if it won't be."""
    if node.failed:
        raise DeploymentError(_PING.format(variant=node.spec.variant))
    return node.ready


def _turn(nodes: Iterable[Node], *, on: bool) -> None:
    for node in nodes:
        node.in_service = on
