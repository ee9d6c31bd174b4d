"""One endpoint: its instances, and what it is doing with them, step by step."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from moto.cloudwatch.models import cloudwatch_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.sandbox.hardware import release_bytes
from tgi_deploy.sandbox.sagemaker.node import Node, NodeSpec
from tgi_deploy.sandbox.sagemaker.rules import backend, release_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.sandbox.faults import FaultTable
    from tgi_deploy.sandbox.guest.spawn import Spawner

# Measured by others on a ml.g6.2xlarge: 333 s for an image of 17.7 GB, 525 s in all (the announcement of container
# image caching, 2026).
_PROVISION_S: Final = 60.0
_PULL_BYTES_PER_S: Final = 53e6
_RETRY_S: Final = 30.0
_ROLL_BACK_S: Final = 30.0
_DELETE_S: Final = 20.0
# Documented defaults and limits of the API's members.
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
_BUSY: Final = frozenset({"Creating", "Updating", "RollingBack", "Deleting", "SystemUpdating"})

Steps = Generator[None, None, None]


class DeploymentError(Exception):
    """A deployment that AWS would report as failed, with its reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What an endpoint needs of the sandbox. `line` takes the log group, the stream and the text."""

    region: str
    faults: FaultTable
    spawner: Spawner
    speed: float
    line: Callable[[str, str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A variant of a configuration. `pools` are its instance types, best first, with the container for each."""

    config: str
    name: str
    count: int
    weight: float
    pools: tuple[tuple[str, Mapping[str, Any]], ...]
    startup_s: float
    looking_s: float
    routing: str


def variants_of(region: str, config: str) -> tuple[Variant, ...]:
    """Return the variants of an existing configuration, whose models exist."""
    return tuple(
        _variant(region, config, item) for item in backend(region).endpoint_configs[config].production_variants
    )


def _variant(region: str, config: str, item: Mapping[str, Any]) -> Variant:
    pools = sorted(item.get("InstancePools", ()), key=lambda pool: int(pool["Priority"]))
    types = [(pool["InstanceType"], pool.get("ModelNameOverride") or item["ModelName"]) for pool in pools]
    return Variant(
        config=config,
        name=item["VariantName"],
        count=item.get("InitialInstanceCount", 1),
        weight=item.get("InitialVariantWeight", 1.0),
        pools=tuple(
            (kind, _container(region, model)) for kind, model in types or [(item["InstanceType"], item["ModelName"])]
        ),
        startup_s=item.get("ContainerStartupHealthCheckTimeoutInSeconds", _STARTUP_S),
        looking_s=item.get("VariantInstanceProvisionTimeoutInSeconds", _LOOKING_S),
        routing=item.get("RoutingConfig", {}).get("RoutingStrategy", "RANDOM"),
    )


def _container(region: str, model: str) -> Mapping[str, Any]:
    found = backend(region)._models[model]  # noqa: SLF001 -- moto has no public way that raises nothing
    container: Mapping[str, Any] = found.primary_container or found.containers[0]
    return container


@dataclass(eq=False, slots=True)
class Endpoint:
    """`shown` is moto's endpoint, which answers the describing calls; `desired` the number of instances by variant."""

    shown: Any
    around: Surroundings
    variants: tuple[Variant, ...]
    nodes: list[Node] = field(default_factory=list)
    desired: dict[str, int] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
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
        """Continue what it is doing."""
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        self.nodes = [node for node in self.nodes if not node.gone]
        self._show()

    def begin_creation(self) -> None:
        self.desired = {variant.name: variant.count for variant in self.variants}
        self.weights = {variant.name: variant.weight for variant in self.variants}
        self._begin("Creating", self._create())

    def begin_update(self, variants: tuple[Variant, ...], desired: dict[str, int], policy: Mapping[str, Any]) -> None:
        self.shown.last_deployment_config = dict(policy) or None
        pending = [{"VariantName": item.name, "DesiredInstanceCount": desired[item.name]} for item in variants]
        self.shown.pending_deployment_summary = {
            "EndpointConfigName": variants[0].config, "ProductionVariants": pending, "StartTime": datetime.now(UTC),
        }  # fmt: skip
        self._begin("Updating", self._update(variants, desired, policy))

    def begin_scaling(self, desired: Mapping[str, int]) -> None:
        before, self.desired = self.desired, {**self.desired, **desired}
        self._begin("Updating", self._scale(before))

    def begin_deletion(self) -> None:
        self._begin("Deleting", self._delete())

    def _begin(self, status: str, steps: Steps) -> None:
        self._steps = steps
        self._set(status)
        self._show()

    def _set(self, status: str, reason: str | None = None) -> None:
        self.shown.endpoint_status, self.shown.failure_reason = status, reason
        self.shown.last_modified_time = datetime.now(UTC)

    def _create(self) -> Steps:
        try:
            nodes = yield from self._launched(self.variants, self.desired)
        except DeploymentError as problem:
            self._set("Failed", str(problem))
            return
        _turn(nodes, on=True)
        self._set("InService")

    def _scale(self, before: dict[str, int]) -> Steps:
        """UpdateEndpointWeightsAndCapacities: RollingBack if it can't grow (API Reference, "DescribeEndpoint")."""
        now = {variant.name: self.serving(variant.name) for variant in self.variants}
        more = {name: max(0, self.desired[name] - len(nodes)) for name, nodes in now.items()}
        reason = None
        try:
            _turn((yield from self._launched(self.variants, more)), on=True)
            yield from self._ended([node for name, nodes in now.items() for node in nodes[self.desired[name] :]])
        except DeploymentError as problem:
            reason, self.desired = str(problem), before
            self._set("RollingBack", reason)
            yield from self._pause(_ROLL_BACK_S)
        self._set("InService", reason)

    def _delete(self) -> Steps:
        until = time.monotonic() + _DELETE_S / self.around.speed
        yield from self._ended(self.nodes)
        while time.monotonic() < until:
            yield
        self.deleted = True

    def _update(self, variants: tuple[Variant, ...], desired: dict[str, int], policy: Mapping[str, Any]) -> Steps:
        """Deploy a configuration: AWS's guide, "Deployment guardrails for updating models in production"."""
        old, fresh = [node for node in self.nodes if node.in_service], list[Node]()
        former, status, reason = (self.variants, self.desired), "InService", None
        guards = _Guards(policy, self.around)
        try:
            rolling = policy.get("RollingUpdatePolicy")
            if rolling:
                yield from self._roll(variants, desired, guards, rolling, (old, fresh))
            else:
                yield from self._swap(
                    variants, desired, guards, policy.get("BlueGreenUpdatePolicy") or {}, (old, fresh)
                )
            self.shown.endpoint_config_name, self.variants, self.desired = variants[0].config, variants, desired
        except DeploymentError as problem:
            reason = str(problem)
            self._set("RollingBack", reason)
            try:
                yield from self._restored(*former, fresh)
            except DeploymentError:
                status = "UpdateRollbackFailed"
        self.shown.pending_deployment_summary = None
        self._set(status, reason)

    def _swap(
        self,
        variants: tuple[Variant, ...],
        desired: Mapping[str, int],
        guards: _Guards,
        policy: Mapping[str, Any],
        fleets: tuple[list[Node], list[Node]],
    ) -> Steps:
        """Blue/green: the whole new fleet, then its traffic in steps, and the end of the old fleet."""
        old, fresh = fleets
        fresh += yield from self._launched(variants, desired, guards)
        routing = policy.get("TrafficRoutingConfiguration") or {}
        for share in _shares(routing, len(fresh)):
            _turn(fresh[: math.ceil(share * len(fresh))], on=True)
            _turn(old[: math.floor(share * len(old))], on=False)
            yield from self._pause(routing.get("WaitIntervalInSeconds", 0), guards)
        yield from self._pause(policy.get("TerminationWaitInSeconds", 0), guards)
        yield from self._ended(old)

    def _roll(
        self,
        variants: tuple[Variant, ...],
        desired: Mapping[str, int],
        guards: _Guards,
        policy: Mapping[str, Any],
        fleets: tuple[list[Node], list[Node]],
    ) -> Steps:
        """Rolling: a batch of new instances, then the end of as many old ones, until all are new."""
        old, fresh = fleets
        left = dict(desired)
        while any(left.values()):
            batch = {name: min(left[name], _batch(policy["MaximumBatchSize"], desired[name])) for name in left}
            left = {name: count - batch[name] for name, count in left.items()}
            new = yield from self._launched(variants, batch, guards)
            fresh += new
            leaving = [node for node in old if node.in_service][: len(new) if any(left.values()) else len(old)]
            _turn(new, on=True)
            _turn(leaving, on=False)
            yield from self._pause(policy["WaitIntervalInSeconds"], guards)
            yield from self._ended(leaving)

    def _restored(self, variants: tuple[Variant, ...], desired: Mapping[str, int], fresh: Sequence[Node]) -> Steps:
        """Bring the old fleet back, and end the new one."""
        yield from self._pause(_ROLL_BACK_S)
        kept = [node for node in self.nodes if node not in fresh and not node.stopping]
        missing = {name: count - sum(node.spec.variant == name for node in kept) for name, count in desired.items()}
        kept += yield from self._launched(variants, missing)
        _turn(kept, on=True)
        yield from self._ended(fresh)

    def _launched(
        self, variants: Sequence[Variant], counts: Mapping[str, int], guards: _Guards | None = None
    ) -> Generator[None, None, list[Node]]:
        """Launch instances, and return them when all are healthy. Raises DeploymentError, with none left running."""
        new: list[Node] = []
        if not any(count > 0 for count in counts.values()):
            return new
        try:
            yield from self._pause(_PROVISION_S)
            for variant in variants:
                for _ in range(counts.get(variant.name, 0)):
                    node = yield from self._provisioned(variant)
                    new.append(node)
            while not all(map(_is_ready, new)):
                if guards:
                    guards.check()
                yield
        except DeploymentError:
            yield from self._ended(new)
            raise
        return new

    def _provisioned(self, variant: Variant) -> Generator[None, None, Node]:
        """Start an instance of the first pool with capacity. Raises DeploymentError when the time to look is over."""
        until = time.monotonic() + variant.looking_s / self.around.speed
        while True:
            for kind, container in variant.pools:
                spec = self._spec(variant, kind, container)
                if spec is not None:
                    node = Node(spec, self.around.spawner, self._line)
                    self.nodes.append(node)
                    node.start()
                    return node
            if time.monotonic() > until:
                raise DeploymentError(_ICE)
            yield from self._pause(_RETRY_S)

    def _spec(self, variant: Variant, kind: str, container: Mapping[str, Any]) -> NodeSpec | None:
        """Return what to start, with the injected faults; None without capacity."""
        facts = {
            "Region": self.around.region, "InstanceType": kind, "EndpointName": self.name, "VariantName": variant.name,
        }  # fmt: skip
        faults = self.around.faults.take_for_machine(facts)
        if any(fault.reason == _NO_CAPACITY for fault in faults):
            return None
        pull_s = release_bytes(release_of(str(container["Image"]))) / _PULL_BYTES_PER_S / self.around.speed
        return NodeSpec(
            variant=variant.name,
            config=variant.config,
            instance_type=kind,
            container=container,
            startup_s=variant.startup_s,
            speed=self.around.speed,
            wait_s=max([pull_s, *(fault.boot_s for fault in faults if fault.boot_s is not None)]),
            faults=tuple(fault.engine for fault in faults if fault.engine),
            dark=any(fault.dark for fault in faults),
        )

    def _line(self, stream: str, text: str) -> None:
        self.around.line(f"/aws/sagemaker/Endpoints/{self.name}", stream, text)

    def _ended(self, nodes: Sequence[Node]) -> Steps:
        leaving = list(nodes)
        for node in leaving:
            node.stop()
        while not all(node.gone for node in leaving):
            yield

    def _pause(self, seconds: float, guards: _Guards | None = None) -> Steps:
        until = time.monotonic() + seconds / self.around.speed
        while True:
            if guards:
                guards.check()
            if time.monotonic() >= until:
                return
            yield

    def _show(self) -> None:
        self.shown.production_variants = [self._shown_variant(variant) for variant in self.variants]

    def _shown_variant(self, variant: Variant) -> dict[str, Any]:
        serving = self.serving(variant.name)
        kinds = [kind for kind, _ in variant.pools]
        counts = [
            {"InstanceType": kind, "CurrentInstanceCount": sum(node.spec.instance_type == kind for node in serving)}
            for kind in kinds
        ]
        images = {node.spec.image: node for node in serving}
        return {
            "VariantName": variant.name,
            "DeployedImages": [{"SpecifiedImage": image, "ResolvedImage": image} for image in images],
            "CurrentWeight": self.weights.get(variant.name, variant.weight),
            "DesiredWeight": self.weights.get(variant.name, variant.weight),
            "CurrentInstanceCount": len(serving),
            "DesiredInstanceCount": self.desired[variant.name],
            **({"InstancePools": counts} if len(kinds) > 1 else {}),
        }


class _Guards:
    """What ends a deployment early: an alarm of its automatic rollback, or its time limit."""

    def __init__(self, policy: Mapping[str, Any], around: Surroundings) -> None:
        chosen = policy.get("RollingUpdatePolicy") or policy.get("BlueGreenUpdatePolicy") or {}
        self._until = time.monotonic() + chosen.get("MaximumExecutionTimeoutInSeconds", _DEPLOYMENT_S) / around.speed
        alarms = (policy.get("AutoRollbackConfiguration") or {}).get("Alarms", ())
        self._alarms = [alarm["AlarmName"] for alarm in alarms]
        self._region = around.region

    def check(self) -> None:
        """Raises DeploymentError."""
        known = cloudwatch_backends[DEFAULT_ACCOUNT_ID][self._region].alarms if self._alarms else {}
        names = [name for name in self._alarms if name in known and known[name].state_value == "ALARM"]
        if names:
            raise DeploymentError(_ALARM.format(names=", ".join(names)))
        if time.monotonic() > self._until:
            raise DeploymentError(_LATE)


def _is_ready(node: Node) -> bool:
    """Raises DeploymentError if it won't be."""
    if node.failed:
        raise DeploymentError(_PING.format(variant=node.spec.variant))
    return node.ready


def _turn(nodes: Sequence[Node], *, on: bool) -> None:
    for node in nodes:
        node.in_service = on


def _batch(size: Mapping[str, Any], total: int) -> int:
    """Return the number of instances of a `CapacitySize`, at least one."""
    count = size["Value"] if size["Type"] == "INSTANCE_COUNT" else total * size["Value"] // 100
    return max(1, min(int(count), total))


def _shares(routing: Mapping[str, Any], total: int) -> list[float]:
    """Return the shares of traffic after each step of a blue/green deployment."""
    kind = routing.get("Type", "ALL_AT_ONCE")
    if kind == "CANARY":
        return [_batch(routing["CanarySize"], total) / total, 1.0]
    step = _batch(routing["LinearStepSize"], total) if kind == "LINEAR" else total
    return [min(1.0, done / total) for done in range(step, total + step, step)]
