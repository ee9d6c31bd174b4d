"""Launches a plan as a Deployment: one namespace, one attempt."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError, InputError, Problem, error, warning
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.ends import expiry
from tgi_deploy.targets.container import api_key_variable, check_key_variable
from tgi_deploy.targets.deployable import HUB_TOKEN, check
from tgi_deploy.targets.kubernetes.artifacts import FILE, as_yaml
from tgi_deploy.targets.kubernetes.autoscalers import chosen_source
from tgi_deploy.targets.kubernetes.autoscaling import Autoscaler, autoscaler_resource, requests_each, started_with
from tgi_deploy.targets.kubernetes.ingress import host_findings, host_resource
from tgi_deploy.targets.kubernetes.limits import enforcer
from tgi_deploy.targets.kubernetes.manifests import API_KEY_SECRET, HUB_TOKEN_SECRET, SECRET_ENTRY, manifests, workload
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.options import KEY_MARK
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.placement import Placement, used_selectors
from tgi_deploy.targets.kubernetes.quotas import needs, refused_root, short_of_quota
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, ENFORCER, EXPOSING, REPLICAS, SERVICE, START, resources
from tgi_deploy.targets.protocol import Attempt, Deployable
from tgi_deploy.targets.reply import Reply
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import Ends, WantedEnds
from tgi_deploy.values.resource import TAG_NAME
from tgi_deploy.values.serving import API_KEY_NOTE, PUBLIC_URL_NOTE, TUNNEL_NOTE, YES, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
    from tgi_deploy.targets.kubernetes.manifests import Workload
    from tgi_deploy.targets.kubernetes.node_labels import NodeSelector
    from tgi_deploy.targets.kubernetes.nodes import Node
    from tgi_deploy.targets.kubernetes.options import KubernetesOptions
    from tgi_deploy.targets.kubernetes.placement import Room
    from tgi_deploy.targets.kubernetes.pools import Growth
    from tgi_deploy.targets.protocol import LaunchRequest, Look, TargetContext
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Replicas
    from tgi_deploy.values.resource import ChangeSet, Found, Resource

_SHARED_MODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesLaunch:
    """`nodes` returns those of the place, without what the deployment of a name requests, and asks once for each name.

    `growth` returns what its pools may add, and asks once; `types` are the instance types of the catalog.
    """

    context: TargetContext
    request: LaunchRequest
    cloud: Callable[[str], KubernetesCloud]
    nodes: Callable[[str], Sequence[Node]]
    growth: Callable[[], Growth]
    types: Callable[[], Mapping[str, InstanceType]]

    @property
    def options(self) -> KubernetesOptions:
        options: KubernetesOptions = self.request.options
        return options

    @property
    def place(self) -> str:
        return self.request.supplied.place

    @property
    def traffic(self) -> Traffic:
        """Through the API server it is encrypted; inside the cluster it is not. Others come by the host."""
        if self.options.host:
            return Traffic(reach="public", api_key=self._key_secret is not None, encrypted=self.options.encrypted)
        return Traffic(reach="loopback" if self._tunneled else "private", api_key=self._key_secret is not None)

    @property
    def plaintext(self) -> bool:
        return self.options.plaintext

    @property
    def tls(self) -> bool:
        return False

    @property
    def marks(self) -> Mapping[str, Any]:
        options = self.options
        named = {
            "weights_claim": options.weights_claim,
            KEY_MARK: self._key_secret,
            "host": options.public_url,
            "ingress_class": options.ingress_class,
            "gateway": options.gateway,
            "tls_secret": options.tls_secret,
            "cluster_issuer": options.cluster_issuer,
        }
        return {name: value for name, value in named.items() if value}

    @property
    def rare_kinds(self) -> bool:
        """Search for all: an unrecorded Ingress or route would expose an engine that is not to have a host."""
        return True

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Yield the only one.

        Raises InputError `local_model`, `accelerator_not_in_cluster`, `api_key_unsupported`,
        `api_key_unknown`, `bad_env`, `secret_missing`, `secret_unusable`; DeployError `autoscaling_unavailable`.
        """
        deployment, seen = look()
        self._check_key()
        wanted, place = self._workload(deployment), Place.of(self.place)
        found = resources(wanted, place, deployment.wanted.number, self._notes, grows=self._grows)
        documents = manifests(wanted)
        more = tuple(self._dependents(documents[0], place, found, wanted.replicas))
        found, documents = (*found, *more), (*documents, *(item.properties["manifest"] for item in more))
        if self._replicas.varies:
            del documents[0]["spec"]["replicas"]
        else:  # an update may start with fewer
            documents[0]["spec"]["replicas"] = self.request.plan.chosen.replicas
        if self._exposes_later:
            found = tuple(item for item in found if item.kind not in EXPOSING)
            seen = tuple(item for item in seen if item.kind not in EXPOSING)
        ends = self._ends(deployment, seen, diff(found, deployment.resources, seen))
        if ends.any or any(item.kind == ENFORCER for item in seen):
            limits = enforcer(documents[0], place)
            found, documents = (limits, *found), (*limits.properties["manifests"], *documents)
        yield Attempt(
            candidate=self.request.plan.chosen,
            place=self.place,
            pool=self.place,
            zone=self.place,
            cidrs=tuple(filter(None, (self.options.public_url,))),
            wanted=found,
            changes=diff(found, deployment.resources, seen),
            artifacts=((FILE, as_yaml(documents)),),
            ends=ends,
        )

    def _dependents(
        self, engine: Mapping[str, Any], place: Place, wanted: Sequence[Resource], start: int
    ) -> Iterator[Resource]:
        """Yield what few deployments have: the Ingress or HTTPRoute of a host, and the autoscaler of a range."""
        if self.options.host:
            yield self._of_host(wanted)
        if self._replicas.varies:
            yield autoscaler_resource(self._autoscaler(start), engine, place)

    def _of_host(self, wanted: Sequence[Resource]) -> Resource:
        """Return the Ingress or HTTPRoute to the Service among the resources."""
        service = next(item for item in wanted if item.kind == SERVICE).properties["manifest"]
        port, labels = service["spec"]["ports"][0]["port"], service["metadata"]["labels"]
        return host_resource(self.cloud(self.place).api, labels, port, self.options)

    @property
    def _exposes_later(self) -> bool:
        """Whether the host leads to the revision only once it is proved: until then, the Service has another one."""
        return self.options.host is not None and self.request.wait and self._tunneled

    @property
    def _replicas(self) -> Replicas:
        return self.request.plan.request.replicas

    @property
    def _grows(self) -> bool:
        """Whether the number of replicas changes after the start: with the load, or in the steps of an update."""
        return self._replicas.varies or self.request.first_replicas > 0

    def _start(self, name: str) -> int:
        """Return how many replicas a new Deployment starts with."""
        planned = self.request.plan.chosen.replicas
        if not self._replicas.varies:
            return self.request.first_replicas or planned
        cloud = self.cloud(self.place)
        running = (cloud.replicas(found.id) for found in cloud.handler(DEPLOYMENT).find({TAG_NAME: name}))
        return started_with(self._replicas, planned, max(running, default=0))

    def _autoscaler(self, start: int) -> Autoscaler:
        """Return the autoscaler. Until the revision serves, it removes none of the replicas that it starts with."""
        plan, prometheus = self.request.plan, self.options.prometheus or ""
        gauges = plan.chosen.engine.metrics.load
        least = start if self._tunneled else self._replicas.least
        return Autoscaler(
            source=chosen_source(self.cloud(self.place).api, gauges, prometheus)[0],
            replicas=replaced(self._replicas, least=least),
            gauges=gauges,
            each=requests_each(plan.request.concurrency, plan.chosen.replicas),
            ready_s=self.context.starts_s(plan.chosen),
            prometheus=prometheus,
        )

    def _ends(self, deployment: Deployment, seen: Sequence[Found], changes: ChangeSet) -> Ends:
        """Return the limits. A Deployment that stays keeps its own: new ones don't replace it."""
        asked = self.request.ends
        alive = any(found.is_machine and found.alive for found in seen)
        if alive and (asked == WantedEnds() or not _creates(changes)):
            return deployment.ends
        expires = expiry(deployment, asked.ttl_s, seen, self.context.clock)
        return Ends(
            ttl_s=asked.ttl_s,
            expires_at=expires,
            asked_ttl_s=asked.ttl_s,
            ttl_until=expires,
            idle_s=asked.idle_s,
            lease_s=asked.lease_s,
        )

    def address(self, deployment: Deployment, *, pool: str) -> str:  # noqa: ARG002 -- a namespace is the only pool
        record = deployment.machine
        if record is None:
            raise ValueError("the record has no deployment")
        return self.cloud(record.place).address(deployment.name)

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return what is missing (a free GPU, a Secret, a claim) and why the cluster would refuse the objects."""
        return tuple(map(Place.of(self.place).problem, self._findings(attempt, tags)))

    def _findings(self, attempt: Attempt, tags: Mapping[str, str]) -> Iterator[Problem]:
        try:
            if _creates(attempt.changes):
                room = self._room(attempt, tags[TAG_NAME])
                yield from self._room_findings(room, _number_of(_machine_of(attempt)))
                yield from self._without_quota(attempt, tags[TAG_NAME])
                template = _machine_of(attempt).properties["manifest"]["spec"]["template"]
                yield from refused_root(self.cloud(self.place).api, template["spec"])
                yield from self._growth_findings(attempt, tags[TAG_NAME], room)
            yield from self._missing(attempt)
            if self.options.host:
                found = tuple(host_findings(self.cloud(self.place).api, self.options))
                yield from found
                if not found:
                    exposing = self._of_host(attempt.wanted)
                    self.cloud(self.place).handler(exposing.kind).rehearse(exposing.properties)
            yield from self._key_findings()
            for step in attempt.changes.steps:
                if step.action == "create" and step.resource is not None and step.kind not in EXPOSING:
                    self.cloud(self.place).handler(step.kind).rehearse(step.resource.properties)
        except DeployError as problem:
            yield problem.problem

    def _room(self, attempt: Attempt, name: str) -> Room:
        """Return the room for an attempt's pods. What an old revision that ends first requests is free."""
        candidate = attempt.candidate
        pod = Reply.of(_machine_of(attempt).properties["manifest"]["spec"]["template"]["spec"])
        accelerator = candidate.offer.instance_type.accelerator.name
        nodes = self._nodes(name, beside=not _ends_old(attempt))
        return nodes.room(
            nodes.labels.of_pod(pod) or nodes.labels.selector(accelerator), accelerator, candidate.num_shard
        )

    def _room_findings(self, room: Room, number: int) -> Iterator[Problem]:
        most = (self._replicas.most or 0) if self._replicas.varies else 0
        budget = self.request.plan.request.budget_usd_per_hour
        found = tuple(room.findings(number, most=most, budget=budget))
        yield from found or room.later(max(number, most), budget)
        if room.new is None and found:
            yield from self.growth().notices

    def _without_quota(self, attempt: Attempt, name: str) -> Iterator[Problem]:
        machine = _machine_of(attempt)
        replaces = name if _ends_old(attempt) else ""
        each = needs(Reply.of(machine.properties["manifest"]["spec"]["template"]["spec"]))
        most = (self._replicas.most or 0) if self._replicas.varies else 0
        api = self.cloud(self.place).api
        yield from short_of_quota(api, each, _number_of(machine), most=most, replaces=replaces)

    def _growth_findings(self, attempt: Attempt, name: str, room: Room) -> Iterator[Problem]:
        """Yield what keeps the number of replicas from following the load, though not from starting."""
        most, candidate = self._replicas.most, attempt.candidate
        if not self._replicas.varies or most is None:
            return
        gauges, prometheus = candidate.engine.metrics.load, self.options.prometheus or ""
        if not chosen_source(self.cloud(self.place).api, gauges, prometheus)[1]:
            yield warning(
                "metrics_missing",
                f"no metrics API has {' and '.join(gauges)} yet: an adapter knows a metric once Prometheus has "
                "scraped a pod",
                hint=f"'tgi-deploy status {name}' shows later whether the replicas follow the load",
            )
        yield from room.short_of(most)

    def _missing(self, attempt: Attempt) -> Iterator[Problem]:
        api = self.cloud(self.place).api
        needed = attempt.candidate.engine.container.secrets or self.options.hub_token_secret
        secret = self.options.hub_token_secret or HUB_TOKEN_SECRET
        path = api.path("/api/v1", "secrets", secret)
        if needed and api.get(path, "looking for the Secret", lambda _found: True) is None:
            yield error(
                "secret_not_in_cluster",
                f"there is no Secret {secret} in {api.place.namespace}",
                hint=f"'kubectl create secret generic {secret} --from-file={HUB_TOKEN}=FILE' creates it",
            )
        yield from self._without_certificate()
        yield from self._claim_findings(attempt)

    def _without_certificate(self) -> Iterator[Problem]:
        api, name = self.cloud(self.place).api, self.options.tls_secret
        if name is None or self.options.cluster_issuer:
            return
        if api.get(api.path("/api/v1", "secrets", name), "looking for the certificate", lambda _found: True) is None:
            yield error(
                "secret_not_in_cluster",
                f"there is no Secret {name} in {api.place.namespace}",
                hint=f"'kubectl create secret tls {name} --cert=FILE --key=FILE' creates it",
            )

    def _claim_findings(self, attempt: Attempt) -> Iterator[Problem]:
        api, claim = self.cloud(self.place).api, self.options.weights_claim
        if not claim:
            return
        path = api.path("/api/v1", "persistentvolumeclaims", claim)
        modes = api.get(path, "looking for the claim", _modes)
        number = max(_number_of(_machine_of(attempt)), attempt.candidate.replicas, self._replicas.most or 0)
        if modes is None:
            yield error(
                "claim_missing",
                f"there is no PersistentVolumeClaim {claim} in {api.place.namespace}",
                hint="create it, or leave --weights-claim out to keep the weights on the node's disk",
            )
        elif number > 1 and modes and not _SHARED_MODES & set(modes):
            yield warning(
                "claim_of_one_node",
                f"the volume of {claim} can be on one node at a time ({', '.join(modes)}); {number} replicas need it",
                hint="use a claim with ReadWriteMany, or leave --weights-claim out",
            )

    @property
    def _key_secret(self) -> str | None:
        """The Secret with the API key; None if the engine requires none."""
        return self.options.api_key_secret or (API_KEY_SECRET if self.options.api_key_from_env else None)

    def _check_key(self) -> None:
        variable, secret, engine = self.options.api_key_from_env, self._key_secret, self.request.plan.chosen.engine
        if secret is not None:
            api_key_variable(engine)
        if variable is not None:
            self._own_key(variable)
        elif secret is not None and self.request.wait:
            raise InputError(
                "api_key_unknown",
                f"the engine will require the key in the Secret {secret}, which this computer does not know",
                hint="add --api-key-from-env VARIABLE with the same key, or --no-wait",
            )

    def _key_findings(self) -> Iterator[Problem]:
        secret, variable = self._key_secret, self.options.api_key_from_env
        if secret is None:
            return
        api = self.cloud(self.place).api
        path, doing = api.path("/api/v1", "secrets", secret), "looking for the Secret with the API key"
        found = api.get(path, doing, lambda item: item.optional_part("data").optional_text(SECRET_ENTRY))
        shown = variable or "VARIABLE"
        make = f"kubectl create secret generic {secret} --from-file={SECRET_ENTRY}=/dev/stdin"
        if not found:
            yield error(
                "secret_not_in_cluster",
                f"{api.place.namespace} has no Secret {secret} with the key {SECRET_ENTRY}",
                hint=f"'printf %s \"${shown}\" | {make}' creates it",
            )
        elif variable is not None and not _is_encoded(self._own_key(variable), found):
            yield error(
                "api_key_differs",
                f"the API key in {variable} is not that of the Secret {secret}; a line break at its end counts, too",
                hint=f"set {variable} to that key, or create the Secret again: 'printf %s \"${shown}\" | {make}'",
            )

    def _own_key(self, variable: str) -> Secret:
        return check_key_variable(variable, self.request.environ, self.request.plan.chosen.engine)

    @property
    def _tunneled(self) -> bool:
        return bool(Place.of(self.place).context)

    @property
    def _notes(self) -> Mapping[str, str]:
        tunnel = {TUNNEL_NOTE: YES} if self._tunneled else {}
        variable = self.options.api_key_from_env
        url = self.options.public_url
        return {**tunnel, **({API_KEY_NOTE: variable} if variable else {}), **({PUBLIC_URL_NOTE: url} if url else {})}

    def _workload(self, deployment: Deployment) -> Workload:
        candidate = self.request.plan.chosen
        deployable = Deployable(
            name=deployment.name,
            candidate=candidate,
            model=self.request.plan.request.model,
            log_filter=self.context.log_grammar(candidate.engine.name).log_filter,
            ready_deadline_s=self.context.ready_deadline_s(candidate),
            idle_s=self.request.ends.idle_s,
        )
        check(deployable)
        return workload(
            deployable,
            self._selector(deployment, candidate),
            deployment_id=deployment.id,
            revision=deployment.wanted.number,
            hub_token_secret=self.options.hub_token_secret or HUB_TOKEN_SECRET,
            api_key=None if self._key_secret is None else (api_key_variable(candidate.engine), self._key_secret),
            weights_claim=self.options.weights_claim or "",
            replicas=self._start(deployment.name),
        )

    def _selector(self, deployment: Deployment, candidate: Candidate) -> NodeSelector:
        """Return how the pods select nodes with the accelerator, even if none is free now."""
        return self._nodes(deployment.name, beside=deployment.rolling).selector(
            deployment.wanted.number,
            candidate.offer.instance_type.accelerator.name,
            candidate.num_shard,
            replicas=self._start(deployment.name),
            most=(self._replicas.most or 0) if self._replicas.varies else 0,
            budget=self.request.plan.request.budget_usd_per_hour,
        )

    def _nodes(self, name: str, *, beside: bool) -> Placement:
        """Return where pods can run. `beside`: the deployment's present pods keep what they request."""
        table = NodeLabels.packaged()
        return Placement(
            nodes=self.nodes("" if beside else name),
            growth=self.growth,
            used=used_selectors(self.cloud(self.place).api, name, table),
            types=self.types(),
            labels=table,
        )


def _is_encoded(key: Secret, data: str) -> bool:
    """Return whether a Secret's data is this key, as the API encodes it."""
    return hmac.compare_digest(base64.b64encode(key.reveal().encode()).decode(), data)


def _modes(claim: Reply) -> tuple[str, ...]:
    """Return how nodes may use a claim's volume; empty if unknown."""
    spec = claim.optional_part("spec")
    return spec.texts("accessModes") if spec.has("accessModes") else ()


def _machine_of(attempt: Attempt) -> Resource:
    return next(item for item in attempt.wanted if item.kind == DEPLOYMENT)


def _number_of(machine: Resource) -> int:
    """Return how many replicas a Deployment starts with."""
    found: int = machine.properties.get(START) or machine.properties[REPLICAS]
    return found


def _ends_old(attempt: Attempt) -> bool:
    """Return whether a Deployment is deleted first."""
    return any(step.kind == DEPLOYMENT and step.action == "delete" for step in attempt.changes.steps)


def _creates(changes: ChangeSet) -> bool:
    """Return whether a Deployment will be created."""
    return any(step.kind == DEPLOYMENT and step.action == "create" for step in changes.steps)
