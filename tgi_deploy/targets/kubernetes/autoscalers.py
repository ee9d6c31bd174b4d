"""Autoscalers in a cluster: what they can read, the handler of their objects, and their state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.targets.kubernetes.autoscaling import Autoscaler, autoscaler_resource, requests_each
from tgi_deploy.targets.kubernetes.errors import ClusterRefusedError
from tgi_deploy.targets.kubernetes.manifests import REVISION, SHARED_NAME
from tgi_deploy.targets.kubernetes.objects import Dependents, selector_of
from tgi_deploy.targets.kubernetes.resources import AUTOSCALERS, DEPLOYMENT, HPA, name_of
from tgi_deploy.text import one_line
from tgi_deploy.values.resource import AutoscalerState, ChangeSet, Resource, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.autoscaling import Source
    from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.request import Replicas
    from tgi_deploy.values.resource import Found

# Groups of the APIs that a HorizontalPodAutoscaler reads, in order of preference, with the prefix of their metrics.
_METRICS_APIS: Final[Mapping[Source, tuple[str, str]]] = {
    "pods": ("custom.metrics.k8s.io", "pods/"),
    "external": ("external.metrics.k8s.io", ""),
}
_KEDA: Final = "/apis/keda.sh/v1alpha1"
_BOUNDS: Final = {HPA: ("minReplicas", "maxReplicas")}
_BOUNDS_OF_KEDA: Final = ("minReplicaCount", "maxReplicaCount")
# Of their specifications, what is applied; the rest are the cluster's defaults.
_APPLIED: Final = frozenset({
    "scaleTargetRef", "metrics", "behavior", "minReplicas", "maxReplicas",
    "minReplicaCount", "maxReplicaCount", "pollingInterval", "advanced", "triggers",
})  # fmt: skip
# Conditions that must be true: of the autoscaler, and of KEDA's object.
_NEEDED: Final = ("AbleToScale", "ScalingActive", "Ready")


@dataclass(frozen=True, kw_only=True, slots=True)
class Available:
    """What a cluster has. `serving` and `silent` are metrics APIs with and without the gauges; `keda`: KEDA exists."""

    serving: tuple[Source, ...] = ()
    silent: tuple[Source, ...] = ()
    keda: bool = False

    @property
    def source(self) -> Source | None:
        """The source that works without an address; None if there is none."""
        usable = () if self.keda else self.silent  # KEDA's own metrics API has nothing but KEDA's metrics
        return next(iter((*self.serving, *usable)), None)


def available(api: Api, gauges: tuple[str, ...]) -> Available:
    """Return what could change the number of replicas by these gauges."""
    found = {source: _metrics(api, *of) for source, of in _METRICS_APIS.items()}
    return Available(
        serving=tuple(source for source, names in found.items() if names is not None and names.issuperset(gauges)),
        silent=tuple(source for source, names in found.items() if names is not None and not names.issuperset(gauges)),
        keda=bool(api.get(_KEDA, "looking for KEDA", lambda _found: True)),
    )


def _metrics(api: Api, group: str, prefix: str) -> frozenset[str] | None:
    """Return the names of an API's metrics; None if the cluster has none of its kind, or it does not answer."""
    doing = f"looking for {group}"
    try:
        version = api.get(f"/apis/{group}", doing, lambda found: found.part("preferredVersion").text("groupVersion"))
        path = f"/apis/{version}"
        names = None if version is None else api.get(path, doing, _names)
    except DeployError:
        return None
    if names is None:
        return None
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _names(listed: Reply) -> tuple[str, ...]:
    return tuple(item.text("name") for item in listed.optional_parts("resources"))


def chosen_source(api: Api, gauges: tuple[str, ...], prometheus: str) -> tuple[Source, bool]:
    """Return what an autoscaler is to read, and whether the gauges are there. Raises `autoscaling_unavailable`."""
    if not gauges:
        raise _unavailable("the engine's release has no metrics of its load", "give one number: --replicas 2")
    found = available(api, gauges)
    if prometheus and found.keda:
        return "prometheus", True
    if prometheus:
        raise _unavailable(
            "--prometheus is for KEDA, which is not installed", "install KEDA, or leave --prometheus out"
        )
    if found.source is not None:
        return found.source, found.source in found.serving
    if found.keda:
        raise _unavailable(
            "KEDA is installed, but --prometheus is missing",
            "add --prometheus URL, the address of your Prometheus inside the cluster",
        )
    raise _unavailable(
        f"no metrics API serves {' and '.join(gauges)}, and KEDA is not installed",
        "install KEDA or an adapter such as prometheus-adapter ('tgi-deploy doctor --target kubernetes' looks for "
        "them), or give one number: --replicas 2",
    )


def _unavailable(why: str, hint: str) -> DeployError:
    return DeployError("autoscaling_unavailable", f"nothing in the cluster can change the replicas: {why}", hint=hint)


@dataclass(frozen=True, slots=True)
class Autoscalers(Dependents):
    """Autoscalers of one kind: HorizontalPodAutoscalers or ScaledObjects."""

    def bounds(self, item: Reply) -> tuple[int, int]:
        spec, (least, most) = item.part("spec"), self._members
        return spec.integer(least), spec.integer(most)

    def bounded(self, name: str, replicas: Replicas) -> Manifest | None:
        """Return the manifest of an existing autoscaler with other bounds; None if there is none."""
        least, most = self._members
        bounds = {least: replicas.least, most: replicas.most}

        def read(live: Reply) -> Manifest:
            spec = {member: value for member, value in live.part("spec").content.items() if member in _APPLIED}
            about = {"name": name, "labels": live.part("metadata").table("labels")}
            versioned = {member: live.text(member) for member in ("apiVersion", "kind")}
            return {**versioned, "metadata": about, "spec": {**spec, **bounds}}

        return self.api.get(self.path(name), f"reading the {self.kind}", read)

    @property
    def _members(self) -> tuple[str, str]:
        return _BOUNDS.get(self.kind, _BOUNDS_OF_KEDA)


def live_autoscaler(api: Api, deployment_id: str) -> tuple[Autoscalers, Found] | None:
    """Return the handler and the autoscaler of a Deployment; None without one."""
    for kind in AUTOSCALERS:
        handler = Autoscalers(api, kind)
        try:
            found = handler.read({"id": f"{kind}/{name_of(deployment_id)}"})
        except ClusterRefusedError:
            continue
        if found is not None:
            return handler, found
    return None


def set_bounds(api: Api, deployment_id: str, replicas: Replicas) -> None:
    """Give a Deployment's autoscaler these bounds. Until its revision serves, the least number is that of its start."""
    live = live_autoscaler(api, deployment_id)
    manifest = live and live[0].bounded(name_of(deployment_id), replicas)
    if live and manifest:
        live[0].update(live[1].attributes, {"manifest": manifest})


def steps(
    cloud: KubernetesCloud, deployment: Deployment, replicas: Replicas, gauges: tuple[str, ...], prometheus: str
) -> ChangeSet:
    """Return the steps from one number of replicas to a range, to another range, or back.

    Raises DeployError `autoscaling_unavailable`.
    """
    api, machine, plan = cloud.api, deployment.machine, deployment.plan
    if machine is None or plan is None:
        return ChangeSet(steps=())
    path = cloud.handler(DEPLOYMENT).path(machine.attributes["id"])
    engine = api.get(path, "reading the deployment", _scaled)
    if engine is None:
        return ChangeSet(steps=())
    live = live_autoscaler(api, machine.attributes["id"])
    if not replicas.varies:
        return ChangeSet(steps=(Step.deletion(live[1], "the number of replicas is fixed"),) if live else ())
    if live is None or (prometheus and live[1].kind == HPA):
        source, _ = chosen_source(api, gauges, prometheus)
        made = Autoscaler(
            source=source,
            replicas=replicas,
            gauges=gauges,
            each=requests_each(plan.requirements.concurrency, plan.chosen.replicas),
            ready_s=sum(phase.expected_s for phase in plan.time_to_ready),
            prometheus=prometheus,
        )
        wanted = autoscaler_resource(made, engine, api.place)
    else:
        handler, found = live
        name = name_of(found.id)
        properties = {"name": name, "manifest": handler.bounded(name, replicas)}
        wanted = Resource(
            key=found.key, kind=found.kind, place=found.place, properties=properties, mutable=("manifest",)
        )
    return diff((wanted,), deployment.resources, (live[1],) if live else ())


def _scaled(deployment: Reply) -> Manifest:
    """Return what an autoscaler needs of a Deployment. Raises ReplyError or ValueError if it is not one of ours."""
    about, revision = deployment.part("metadata"), selector_of(deployment).get(REVISION, "")
    labels = {**about.table("labels"), SHARED_NAME: about.part("labels").text(SHARED_NAME)}
    return {
        "metadata": {"name": about.text("name"), "labels": labels},
        "spec": {"selector": {"matchLabels": {REVISION: str(int(revision))}}},
    }


def autoscaler_state(api: Api, deployment_id: str) -> AutoscalerState | None:
    """Return the state of a Deployment's autoscaler; None without one."""
    live = live_autoscaler(api, deployment_id)
    if live is None:
        return None
    handler, found = live
    path = handler.path(found.id)
    read = api.get(path, "reading the autoscaler", lambda item: (*handler.bounds(item), _problem(item)))
    if read is None:
        return None
    least, most, problem = read
    return AutoscalerState(id=found.id, least=least, most=most, problem=problem)


def _problem(item: Reply) -> str:
    """Return why an autoscaler does not work, in the cluster's words; empty if it does."""
    for condition in item.optional_part("status").optional_parts("conditions"):
        if condition.optional_text("type") in _NEEDED and condition.optional_text("status") == "False":
            return one_line(f"{condition.optional_text('reason')}: {condition.optional_text('message')}")
    return ""
