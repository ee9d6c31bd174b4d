"""Deployments in a Kubernetes cluster: the one of a context of the kubeconfig, or the one that this runs in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import InputError, error
from tgi_deploy.targets.kubernetes.connection import Clusters
from tgi_deploy.targets.kubernetes.options import NAME, KubernetesOptions
from tgi_deploy.targets.protocol import Supplied, TargetFacts, UnsupportedOptions, no_spending
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan_options import MOST_REPLICAS
from tgi_deploy.values.supply import Headroom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
    from tgi_deploy.targets.kubernetes.launch import KubernetesLaunch
    from tgi_deploy.targets.kubernetes.nodes import Node
    from tgi_deploy.targets.kubernetes.placement import Room
    from tgi_deploy.targets.kubernetes.pods import Pod
    from tgi_deploy.targets.kubernetes.pools import Growth
    from tgi_deploy.targets.protocol import (
        AccountRequest,
        Artifact,
        Deployable,
        Front,
        LaunchRequest,
        ManualCommands,
        TargetContext,
    )
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment, ResourceRecord, Revision
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.request import Replicas
    from tgi_deploy.values.resource import AutoscalerState, ChangeSet
    from tgi_deploy.values.serving import TunnelEnd

FACTS: Final = TargetFacts(
    begins="starting a pod",
    machine_kind="deployment",
    state_label="the pod",
    who_connects="its Service is reachable inside the cluster, and 'open' prints the command for a port-forward",
    shows_at_once=True,
    regions=False,
    stops=False,
    unsupported=(
        UnsupportedOptions(
            options=("max_spend",),
            code="limits_unsupported",
            why="nothing counts what the cluster's nodes cost",
            hint="set its end with --ttl, --idle-timeout or --lease",
        ),
    ),
    not_changed=frozenset({"--ami", "--disk", "--hub-token-parameter", "--instance", "--market", "--region"}),
    one_at_a_time="deployments in one cluster would compete for its GPUs",
    unpriced="in your own cluster",
    extra="websockets",
    most_replicas=MOST_REPLICAS,
)

_NO_OPTIONS: Final = KubernetesOptions()
FORMS: Final = {"kubernetes": "Kubernetes manifests"}


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesTarget:
    """`chosen` returns the place that options choose, `cloud` that of a place, `forward` opens a tunnel."""

    chosen: Callable[[KubernetesOptions], str]
    cloud: Callable[[str], KubernetesCloud]
    catalog: Callable[[], Catalog]
    forward: Callable[[TunnelEnd], int]
    given: KubernetesOptions = _NO_OPTIONS
    name: ClassVar = NAME
    facts: ClassVar = FACTS
    options: ClassVar[type[Value]] = KubernetesOptions
    forms: ClassVar[Mapping[str, str]] = FORMS

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        if named:
            raise InputError(
                "conflicting_options", "--region can't be combined with --target kubernetes", hint="omit one of them"
            )
        return (self.chosen(self.given),)

    def at(self, options: KubernetesOptions, place: str = "") -> KubernetesTarget:
        from tgi_deploy.targets.kubernetes.place import Place  # noqa: PLC0415 -- startup time

        there = Place.of(place)
        if place and options.kube_context in {None, there.context}:
            namespace = options.namespace or there.namespace
            options = replaced(options, kube_context=there.context or None, namespace=namespace)
        return replace(self, given=options)

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:  # noqa: ARG002 -- the protocol's
        """Return the namespace and, unless hardware is named, the GPUs that nodes have left or that it may add.

        Raises InputError `no_kubeconfig`, `no_gpu_nodes`, `no_free_gpus`, `unknown_card`.
        """
        place = self.chosen(self.given)
        if hardware:
            return Supplied(place=place, machines=MOST_REPLICAS)
        from tgi_deploy.targets.kubernetes.nodes import is_any_deployment, supplied  # noqa: PLC0415 -- startup time

        return supplied(self._nodes(place, catalog, is_any_deployment), place, catalog, self._growth(place, catalog))

    def running(self, deployment: Deployment) -> int:
        machine = deployment.machine
        return self.cloud(machine.place).replicas(machine.attributes["id"]) if machine else 0

    def _room(self, deployment: Deployment, revision: Revision, replicas: int) -> Room:
        """Return the room for so many more replicas of a revision, beside everything that runs."""
        return self._room_on(self._nodes_now(deployment.region), deployment, revision, replicas)

    def _room_on(self, nodes: Sequence[Node], deployment: Deployment, revision: Revision, replicas: int) -> Room:
        from tgi_deploy.targets.kubernetes.node_labels import NodeLabels  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.kubernetes.placement import Placement, used_selectors  # noqa: PLC0415

        place, table, plan = deployment.region, NodeLabels.packaged(), revision.plan
        if plan is None:
            raise ValueError("the record has no plan")
        catalog, asked = self.catalog(), plan.requirements
        placement = Placement(
            nodes=nodes,
            growth=lambda: self._growth(place, catalog),
            used=used_selectors(self.cloud(place).api, deployment.name, table),
            types=catalog.instance_types(),
            labels=table,
        )
        accelerator, gpus = plan.chosen.accelerator, plan.chosen.num_shard
        most, budget = asked.replicas.most or 0, asked.budget_usd_per_hour
        selector = placement.selector(revision.number, accelerator, gpus, replicas=replicas, most=most, budget=budget)
        return placement.room(selector, accelerator, gpus)

    def follow(self, deployment: Deployment, replicas: Replicas, options: KubernetesOptions) -> ChangeSet:
        from tgi_deploy.targets.kubernetes.autoscalers import steps  # noqa: PLC0415 -- planning loads nothing that acts

        engine, plan = self.catalog().engine, deployment.plan
        gauges = () if plan is None else engine.metrics(self.catalog().release(plan.engine.version)).load
        return steps(self.cloud(deployment.region), deployment, replicas, gauges, options.prometheus or "")

    def autoscaler(self, deployment: Deployment) -> AutoscalerState | None:
        from tgi_deploy.targets.kubernetes.autoscalers import autoscaler_state  # noqa: PLC0415 -- as above

        machine = deployment.machine
        if machine is None or "id" not in machine.attributes:
            return None
        return autoscaler_state(self.cloud(machine.place).api, machine.attributes["id"])

    def headroom(self, deployment: Deployment, running: int, replicas: Replicas) -> Headroom:
        from tgi_deploy.targets.kubernetes.quotas import short_of_quota  # noqa: PLC0415 -- startup time

        machine, plan = deployment.machine, deployment.plan
        found = self.cloud(machine.place).live(machine.attributes["id"]) if machine else None
        if machine is None or plan is None or found is None:
            hint = f"'tgi-deploy status {deployment.name}' shows why"
            return Headroom(problems=(error("no_pod", f"'{deployment.name}' does not run", hint=hint),))
        nodes, pods = self._nodes_now(machine.place), [pod for pod in found[1] if pod.counts]
        room = self._room_on(nodes, deployment, deployment.current, replicas.most or replicas.least)
        added = self._added_usd_per_hour(nodes, pods, room)
        billed = max(plan.cost.usd_per_hour * len(pods) / plan.chosen.replicas, added)
        room = replaced(room, there=room.there + running)
        headroom = room.headroom(replicas, budget=plan.requirements.budget_usd_per_hour, billed=billed)
        api, most = self.cloud(machine.place).api, (replicas.most or replicas.least) - running
        quotas = short_of_quota(api, found[0].pod_needs, replicas.least - running, most=most, running=running)
        return replaced(headroom, problems=(*headroom.problems, *quotas))

    def _billed(self, machine: ResourceRecord, room: Room) -> Decimal:
        """Return the price of the nodes that were added for a Deployment's pods, or that they wait for."""
        found = self.cloud(machine.place).live(machine.attributes["id"]) if room.new is not None else None
        pods = [] if found is None else [pod for pod in found[1] if pod.counts]
        return self._added_usd_per_hour(self._nodes_now(machine.place), pods, room) if pods else Decimal(0)

    def _added_usd_per_hour(self, nodes: Sequence[Node], pods: Sequence[Pod], room: Room) -> Decimal:
        from tgi_deploy.targets.kubernetes.placement import added_usd_per_hour  # noqa: PLC0415 -- startup time

        pending = 0 if room.new is None else room.new.usd_per_hour * sum(not pod.node for pod in pods)
        return added_usd_per_hour(nodes, {pod.node for pod in pods}, self.catalog()) + pending

    def rejection(self, plan: Plan) -> InputError | None:
        if plan.chosen.offer.market == "owned":
            return None
        return InputError(
            "not_for_a_cluster",
            "the plan is for a rented machine, and a cluster has its own nodes",
            hint="plan with --target kubernetes, or with --hardware NxGPU",
        )

    def launch(
        self,
        context: TargetContext,
        request: LaunchRequest,
        *,
        spent: Callable[[Deployment], Spent] = no_spending,  # noqa: ARG002 -- the nodes are billed, not the deployment
    ) -> KubernetesLaunch:
        from tgi_deploy.targets.kubernetes.launch import KubernetesLaunch  # noqa: PLC0415 -- planning loads nothing that acts
        from tgi_deploy.targets.kubernetes.nodes import is_deployment_of  # noqa: PLC0415

        return KubernetesLaunch(
            context=context,
            request=request,
            cloud=self.cloud,
            nodes=cache(lambda name: self._nodes(request.supplied.place, self.catalog(), is_deployment_of(name))),
            growth=cache(lambda: self._growth(request.supplied.place, self.catalog())),
            types=lambda: self.catalog().instance_types(),
        )

    def _growth(self, place: str, catalog: Catalog) -> Growth:
        from tgi_deploy.targets.kubernetes.node_labels import NodeLabels  # noqa: PLC0415 -- only planning for a cluster asks
        from tgi_deploy.targets.kubernetes.pools import growth  # noqa: PLC0415

        return growth(self.cloud(place).api, NodeLabels.packaged(), catalog)

    def _nodes_now(self, place: str) -> Sequence[Node]:
        """Return the nodes with what all pods leave, this tool's included."""
        return self._nodes(place, self.catalog(), lambda _labels: False)

    def _nodes(self, place: str, catalog: Catalog, ours: Callable[[Mapping[str, str]], bool]) -> Sequence[Node]:
        from tgi_deploy.targets.kubernetes.node_labels import NodeLabels  # noqa: PLC0415 -- only planning for a cluster asks
        from tgi_deploy.targets.kubernetes.nodes import read_nodes  # noqa: PLC0415

        return read_nodes(self.cloud(place).api, NodeLabels.packaged(), catalog, ours=ours)

    def front(self, context: TargetContext, deployment: Deployment) -> Front | None:  # noqa: ARG002 -- the protocol's
        """Return the Service; None inside the cluster, where a revision can be reached only once the Service has it."""
        from tgi_deploy.targets.kubernetes.front import ServiceFront  # noqa: PLC0415 -- planning loads nothing that acts
        from tgi_deploy.targets.kubernetes.place import Place  # noqa: PLC0415

        place = deployment.region
        if not Place.of(place).context:
            return None
        return ServiceFront(api=self.cloud(place).api, room=self._room, billed=self._billed, running=self.running)

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:  # noqa: ARG002 -- it has no template
        from tgi_deploy.targets.kubernetes.artifacts import render_artifact  # noqa: PLC0415 -- startup time

        return render_artifact(form, deployable)

    def examine(self, context: TargetContext, request: AccountRequest) -> tuple[Problem, ...]:  # noqa: ARG002 -- the protocol's
        from tgi_deploy.targets.kubernetes.doctor import examined  # noqa: PLC0415 -- only `doctor` examines

        api = self.cloud(self.chosen(request.options)).api
        return tuple(map(api.place.problem, examined(api, request.options, self.catalog())))

    @property
    def manual_commands(self) -> ManualCommands:
        from tgi_deploy.targets.kubernetes import commands  # noqa: PLC0415 -- startup time

        return commands

    def local_port(self, end: TunnelEnd) -> int:
        return self.forward(end)

    def child(self, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
        from tgi_deploy.targets.kubernetes.commands import exec_words  # noqa: PLC0415 -- startup time

        return exec_words(place, machine_id, words, terminal=terminal)


def kubernetes_target(
    environ: Callable[[], Mapping[str, str]],
    catalog: Callable[[], Catalog],
    unsearched: dict[tuple[str, str], str],
) -> KubernetesTarget:
    """Return the target without contacting any cluster. `environ` returns the variables at the first contact."""
    clusters = Clusters(environ, unsearched)
    return KubernetesTarget(
        chosen=clusters.place,
        cloud=clusters.cloud,
        catalog=catalog,
        forward=lambda end: clusters.forwards.local_port(end),  # noqa: PLW0108 -- forwards on first use
    )
