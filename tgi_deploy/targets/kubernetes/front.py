"""The Service of a deployment, which sends requests to one of its revisions, each of which is a Deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.kubernetes.autoscalers import set_bounds
from tgi_deploy.targets.kubernetes.autoscaling import started_with
from tgi_deploy.targets.kubernetes.ingress import host_resource
from tgi_deploy.targets.kubernetes.manifests import REVISION, common_labels, label, object_name, service_to
from tgi_deploy.targets.kubernetes.objects import Dependents, Objects, selector_of
from tgi_deploy.targets.kubernetes.options import KEY_MARK, KubernetesOptions
from tgi_deploy.targets.kubernetes.pods import LiveDeployment, replicas_of
from tgi_deploy.targets.kubernetes.quotas import allowed
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, EXPOSING, SERVICE
from tgi_deploy.text import plural
from tgi_deploy.values.base import as_value
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, TAG_OWNER, TAG_SPEC, revision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from decimal import Decimal

    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.kubernetes.placement import Room
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.deployment import Deployment, ResourceRecord, Revision
    from tgi_deploy.values.plan_document import PlanDocument
    from tgi_deploy.values.resource import Found


@dataclass(frozen=True, slots=True)
class Services(Objects):
    kind: str = SERVICE

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        """Create it with the pods of the oldest revision, which serves: someone may delete it before an update."""
        manifest = properties["manifest"]
        known = self._selectors(manifest["spec"]["selector"])
        first = min(known, key=lambda item: int(item.get(REVISION, "1")), default=manifest["spec"]["selector"])
        manifest = {**manifest, "spec": {**manifest["spec"], "selector": first}}
        return Objects.create(self, {**properties, "manifest": manifest}, tags=tags, token=token)

    def wanted(self, manifest: Manifest, live: Reply) -> Manifest:
        """Keep the selector, and so the destination of requests, until its Deployment is gone or `select` is called."""
        selector = live.part("spec").table("selector")
        if selector == manifest["spec"]["selector"] or selector not in self._selectors(selector):
            return manifest
        return {**manifest, "spec": {**manifest["spec"], "selector": dict(selector)}}

    def select(self, name: str, revision: int | None) -> bool:
        """Send new requests to the pods of a revision, or of all; open ones stay where they are.

        Return whether there is such a Service.
        """
        doing = "switching the service"
        live = self.api.get(self.path(name), doing, _as_applied)
        if live is None:
            return False
        every = {label: value for label, value in live["spec"]["selector"].items() if label != REVISION}
        wanted = every if revision is None else {**every, REVISION: str(revision)}
        if live["spec"]["selector"] != wanted:
            live["spec"]["selector"] = wanted
            self.api.apply(self.path(name), doing, live, lambda _reply: True)
        return True

    def _selectors(self, selector: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
        """Return the selectors of the Deployments of the same deployment as this selector's."""
        path = Objects(self.api, DEPLOYMENT).path()
        query = {"labelSelector": f"{label(TAG_ID)}={selector.get(label(TAG_ID), '')}"}
        doing = "looking for the serving deployment"
        return self.api.each(path, doing, selector_of, query=query)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceFront:
    """`room` returns the room for so many more replicas of a revision, `running` how many replicas there are now.

    `billed` returns the price of the nodes that a revision's Deployment has had added, in USD an hour.
    """

    api: Api
    room: Callable[[Deployment, Revision, int], Room]
    billed: Callable[[ResourceRecord, Room], Decimal]
    running: Callable[[Deployment], int]
    stable: ClassVar = True
    cuts: ClassVar = False

    def no_room(self, deployment: Deployment) -> str:
        """Return why the new replicas have no room, neither all at once nor a few at a time."""
        plan = deployment.wanted.plan
        if plan is None:
            return "the record lacks what the new one needs"
        needed = self._needed(deployment)
        room = self.room(deployment, deployment.wanted, needed)
        fits = self._fitting(room, deployment, needed)
        short = _shortage(room, plan, needed, fits)
        if not short:
            return ""
        why = _all_at_once(deployment, plan, fits) if fits < needed else ""
        if fits:
            return f"{short}{why}" if why or fits == needed else ""
        return short if why else f"{short}{_after_scaling(deployment)}"

    def replicas(self, machine: ResourceRecord) -> int:
        path = Objects(self.api, DEPLOYMENT).path(machine.attributes["id"])
        return self.api.get(path, "reading the deployment", replicas_of) or 0

    def fitting(self, deployment: Deployment, *, added: int | None = None) -> int:
        plan, machine = deployment.wanted.plan, deployment.machine_at(deployment.wanted.number)
        there = self.replicas(machine) if machine and "id" in machine.attributes else 0
        left = plan.chosen.replicas - there if plan else 0
        if plan is None or left <= 0:
            return there
        room = self.room(deployment, deployment.wanted, left)
        most = left if added is None else min(left, max(room.there, added))
        fits = there + self._fitting(room, deployment, most)
        starts = deployment.rolling and fits < plan.chosen.replicas
        return plan.chosen.replicas if starts and _all_at_once(deployment, plan, fits) else fits

    def added_usd_per_hour(self, deployment: Deployment, first: int) -> Decimal | None:
        if deployment.wanted.plan is None:
            return None
        needed = first or self._needed(deployment)
        room = self.room(deployment, deployment.wanted, needed)
        nodes = room.new_nodes(needed)
        return room.new.usd_per_hour * nodes if room.new is not None and nodes else None

    def _needed(self, deployment: Deployment) -> int:
        """Return with how many replicas the desired revision starts if there is room for all."""
        plan = deployment.wanted.plan
        if plan is None:
            return 0
        replicas = plan.requirements.replicas
        return started_with(replicas, plan.chosen.replicas, self.running(deployment) if replicas.varies else 0)

    def _fitting(self, room: Room, deployment: Deployment, most: int) -> int:
        """Return for how many more replicas there is room within the budget, on nodes and by the quotas."""
        plan, machine = deployment.wanted.plan, deployment.machine
        budget = plan.requirements.budget_usd_per_hour if plan else None
        path = Objects(self.api, DEPLOYMENT).path(machine.attributes["id"]) if machine else ""
        live = self.api.get(path, "reading the deployment", LiveDeployment.of) if path else None
        each = live.pod_needs if live else {}
        new = deployment.machine_at(deployment.wanted.number)
        billed = self.billed(new, room) if new and "id" in new.attributes else None

        def short(number: int) -> bool:
            return any(item.severity == "error" for item in room.findings(number, budget=budget, billed=billed))

        fits = next((number for number in range(min(most, room.there + room.added), 0, -1) if not short(number)), 0)
        return allowed(self.api, each, fits) if fits else 0

    def share(self, deployment: Deployment) -> None:
        self._select(deployment, None)

    def _select(self, deployment: Deployment, revision: int | None) -> None:
        """Have the Service select the pods of a revision, or of all; create it if someone has deleted it."""
        services, name, of = Services(self.api), object_name(deployment.name), deployment.wanted.service
        if services.select(name, revision) or of is None:
            return
        selector = {label(TAG_NAME): deployment.name, label(TAG_ID): deployment.id}
        selector |= {} if revision is None else {REVISION: str(revision)}
        record = deployment.record(SERVICE)
        manifest, tags = service_to(deployment.name, selector, of.port), _tags(deployment, SERVICE)
        tags |= {TAG_SPEC: record.spec} if record else {}
        Objects(self.api, SERVICE).create({"name": name, "manifest": manifest}, tags=tags, token="")

    def grace_s(self, deployment: Deployment) -> int:
        """Return the grace period of its pods, in which they also leave the Service."""
        machine = deployment.machine
        path = Objects(self.api, DEPLOYMENT).path(machine.attributes.get("id", "")) if machine else ""
        found = self.api.get(path, "reading the deployment", _grace_s) if path else None
        return found or deployment.current.grace_s

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str | None:
        """Send new requests to a proved revision: those of the Service, and then those of the host."""
        self._select(deployment, revision_of(machine.key) or 1)
        plan = deployment.wanted.plan
        if plan is not None and plan.requirements.replicas.varies:
            set_bounds(self.api, machine.attributes["id"], plan.requirements.replicas)
        options = as_value(deployment.wanted.options, KubernetesOptions, "options")
        if options.host:
            self._expose(deployment, options)
        return None

    def _expose(self, deployment: Deployment, options: KubernetesOptions) -> None:
        """Create or change the Ingress or HTTPRoute, and delete a former one of the other kind."""
        path = Services(self.api).path(object_name(deployment.name))
        port = self.api.get(path, "reading the service", _port)
        if port is None:
            raise ResourceNotFoundError(
                f"there is no service {object_name(deployment.name)} in {self.api.place.namespace}"
            )
        wanted = host_resource(self.api, common_labels(deployment.name), port, options)
        handler, own = Dependents(self.api, wanted.kind), {TAG_NAME: deployment.name, TAG_ID: deployment.id}
        tags = {**_tags(deployment, wanted.key), TAG_SPEC: wanted.spec}
        found = handler.create(wanted.properties, tags=tags, token="")
        handler.update(found.attributes, wanted.properties)
        for other in (Dependents(self.api, kind) for kind in EXPOSING if kind != wanted.kind):
            for former in other.find(own):
                other.delete(former.attributes)

    def drain(self, deployment: Deployment, machine: ResourceRecord, deadline_s: float) -> Iterator[None]:  # noqa: ARG002 -- the protocol's
        """End at once: a pod finishes its open requests after its Deployment is deleted."""
        yield from ()


def _tags(deployment: Deployment, key: str) -> dict[str, str]:
    tags = {TAG_NAME: deployment.name, TAG_ID: deployment.id, TAG_KEY: key}
    return tags | ({TAG_OWNER: deployment.owner} if deployment.owner else {})


def _shortage(room: Room, plan: PlanDocument, needed: int, fits: int) -> str:
    """Return why there is no room for the needed replicas at once, of which some fit; empty if there is."""
    asked = f"{plural(needed, 'replica')} of {plan.chosen.num_shard} x {plan.chosen.accelerator} would need room"
    if needed > room.there + room.added:
        return f"{asked}, and the cluster has it for {room.there} more{room.launched}"
    most, budget = plan.requirements.replicas.most or 0, plan.requirements.budget_usd_per_hour
    errors = (item for item in room.findings(needed, most=most, budget=budget) if item.severity == "error")
    quotas = "" if fits >= needed else f"{asked}, and the quotas allow {fits} more"
    return next((f"{asked}: {item.message}" for item in errors), quotas)


def _all_at_once(deployment: Deployment, plan: PlanDocument, fits: int) -> str:
    """Return why replicas can't be replaced a few at a time, to end a sentence; empty if they can."""
    serving, wanted = deployment.current, deployment.wanted
    old = serving.plan
    if old is None:
        return "; the record lacks what serves now"
    if plan.requirements.replicas.varies or old.requirements.replicas.varies:
        return "; a number that follows the load can't be replaced a few at a time"
    if serving.marks.get(KEY_MARK) != wanted.marks.get(KEY_MARK):
        return "; while both revisions serve, callers would need both API keys"
    if old.chosen.accelerator != plan.chosen.accelerator or old.chosen.num_shard < plan.chosen.num_shard:
        return "; an old replica has too few GPUs to make room for a new one"
    if fits + old.chosen.replicas < plan.chosen.replicas:
        return f"; without the old ones for {fits + old.chosen.replicas}"
    return ""


def _after_scaling(deployment: Deployment) -> str:
    """Return how to make room for an update in steps, to end a sentence; empty for a single replica."""
    plan = deployment.current.plan
    fewer = plan.chosen.replicas - 1 if plan else 0
    return f"; after 'tgi-deploy scale {deployment.name} {fewer}' it can go in steps" if fewer else ""


def _as_applied(service: Reply) -> Manifest:
    """Return what is applied of a Service; the rest are the cluster's defaults."""
    about, spec = service.part("metadata"), service.part("spec")
    noted = {member: about.table(member) for member in ("labels", "annotations")}
    ports = [port.content for port in spec.parts("ports")]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": about.text("name"), **noted},
        "spec": {"type": spec.text("type"), "selector": spec.table("selector"), "ports": ports},
    }


def _port(service: Reply) -> int:
    return service.part("spec").first("ports").integer("port")


def _grace_s(deployment: Reply) -> int:
    return deployment.part("spec").part("template").part("spec").integer("terminationGracePeriodSeconds")
