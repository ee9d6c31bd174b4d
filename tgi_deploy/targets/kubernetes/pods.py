"""What a Deployment's pods show: the machine's state, and their logs with events and exits as on a console."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.kubernetes.errors import known_refusal
from tgi_deploy.targets.kubernetes.manifests import CONTAINER, label
from tgi_deploy.targets.kubernetes.objects import selector_of
from tgi_deploy.targets.kubernetes.quotas import needs
from tgi_deploy.text import one_line, printable
from tgi_deploy.values.resource import TAG_NAME, MachineState, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.reply import Reply

_TAIL: Final = {"tailLines": "5000", "limitBytes": str(4 * 2**20), "container": CONTAINER}
_UNSEEN_EXIT: Final = "[tgi-deploy] phase=engine-exited"  # of an earlier run, whose log the node has dropped
_EXIT_LINE: Final = f"{_UNSEEN_EXIT} code={{}}"
_MOST_EXITS: Final = 5
_PHASES: Final = {"Pulling": "[tgi-deploy] phase=pulling", "Started": "[tgi-deploy] phase=starting-engine"}
# Reasons with what to do about them, where the tables of known failures have nothing.
_REMEDIES: Final = {
    "CreateContainerConfigError": "create the Secret that the pod names: 'kubectl create secret generic --help'",
    "Evicted": "the node ran out of disk or memory: 'kubectl describe node' shows which",
    "FailedCreate": "the namespace's quota or policy refuses the pod: 'kubectl describe replicaset' shows why",
    "ImagePullBackOff": "'kubectl describe pod' shows the registry's answer",
    "Unschedulable": "free a GPU or add a node; 'kubectl describe nodes' shows what is requested",
}
_NO_VOLUME: Final = "persistentvolumeclaim"  # of the scheduler, as the reason of a pod that no node takes
_CREATE_VOLUME: Final = "'kubectl describe persistentvolumeclaim' shows why the claim has no volume"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """`waiting` and `ended` are (reason, message) of its container; `exit_code` is that of the latest end."""

    name: str
    node: str
    created: str
    phase: str
    ready: bool
    going: bool
    scheduled: bool
    unscheduled: tuple[str, str] | None
    waiting: tuple[str, str] | None
    ended: tuple[str, str] | None
    exit_code: int | None
    restarts: int

    @classmethod
    def of(cls, item: Reply, container: str = CONTAINER) -> Pod:
        metadata, status = item.part("metadata"), item.optional_part("status")
        conditions = {found.text("type"): found for found in status.optional_parts("conditions")}
        scheduled, ready = conditions.get("PodScheduled"), conditions.get("Ready")
        ours = [found for found in status.optional_parts("containerStatuses") if found.text("name") == container]
        own = ours[0] if ours else None
        state = own.optional_part("state") if own else None
        end = _end(own) if own else None
        return cls(
            name=metadata.text("name"),
            node=printable(item.optional_part("spec").optional_text("nodeName")),
            created=metadata.optional_text("creationTimestamp"),
            phase=status.optional_text("phase"),
            ready=ready is not None and ready.optional_text("status") == "True",
            going=metadata.has("deletionTimestamp"),
            scheduled=scheduled is not None and scheduled.optional_text("status") == "True",
            unscheduled=_why(scheduled) if scheduled and scheduled.optional_text("status") == "False" else None,
            waiting=_why(state.part("waiting")) if state and state.has("waiting") else None,
            ended=_why(end) if end else None,
            exit_code=end.integer("exitCode") if end else None,
            restarts=own.integer("restartCount") if own else 0,
        )

    @property
    def has_run(self) -> bool:
        return self.phase == "Running" or self.exit_code is not None

    @property
    def counts(self) -> bool:
        """Whether it is one of the replicas: it neither ends nor has ended, as an evicted one has."""
        return not self.going and self.phase not in {"Failed", "Succeeded"}

    @property
    def status(self) -> str:
        if not self.counts:
            return "shutting-down" if self.going else "terminated"
        return "ready" if self.ready else "running" if self.phase == "Running" else "pending"

    @property
    def waits(self) -> tuple[bool, bool]:
        return not self.ready, not self.scheduled

    @property
    def trouble(self) -> tuple[str, str] | None:
        """Why it does not run, as (reason, message)."""
        killed = self.ended if self.ended and self.ended[0] not in {"Error", "Completed"} else None
        return self.unscheduled or killed or self.waiting or self.ended


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveDeployment:
    """A Deployment as it is now. `restarting`: pods of its former template still run.

    `refusal` is why the cluster creates no pod, as (reason, message); `pod_needs` is what each counts for in quotas.
    """

    name: str
    selector: Mapping[str, str]
    replicas: int
    going: bool
    restarting: bool
    refusal: tuple[str, str] | None
    pod_needs: Mapping[str, Decimal]

    @classmethod
    def of(cls, item: Reply) -> LiveDeployment:
        metadata = item.part("metadata")
        return cls(
            name=metadata.part("labels").text(label(TAG_NAME)),
            selector=selector_of(item),
            replicas=replicas_of(item),
            going=metadata.has("deletionTimestamp"),
            restarting=_is_restarting(item),
            refusal=_refusal(item),
            pod_needs=needs(item.part("spec").part("template").part("spec")),
        )


def _end(own: Reply) -> Reply | None:
    """Return how its container ended: now, or the last time."""
    for member in ("state", "lastState"):
        state = own.optional_part(member)
        if state.has("terminated"):
            return state.part("terminated")
    return None


def _why(item: Reply) -> tuple[str, str]:
    return one_line(item.optional_text("reason")), one_line(item.optional_text("message"))


def serving(pods: Sequence[Pod]) -> Pod | None:
    """Return the newest pod that is ready; without one, the newest that is not ending."""
    return max(pods, key=attrgetter("counts", "ready", "created", "name"), default=None)


def last(pods: Sequence[Pod]) -> Pod | None:
    """Return the pod that is waited for: the newest that is not ready, or if all are, the newest."""
    return max(pods, key=attrgetter("counts", "waits", "created", "name"), default=None)


def replicas_of(deployment: Reply) -> int:
    return deployment.part("spec").integer("replicas")


def machine_state(deployment: LiveDeployment, pods: Sequence[Pod], address: str) -> MachineState:
    """Return the state: running as soon as nodes have all pods, with the address once the container has started.

    From then on its events show the image being pulled, and its log why it restarts. The address of several pods is
    given once all of them are ready.
    """
    if deployment.going:
        return MachineState(state="shutting-down")
    pod, counted = last(pods), [pod for pod in pods if pod.counts]
    complete = len(counted) >= deployment.replicas and not deployment.restarting
    refused = None if pod and complete else deployment.refusal
    code, reason = (pod.trouble if pod and complete else refused) or (None, None)
    known = _CREATE_VOLUME if _NO_VOLUME in (reason or "").lower() else _REMEDIES.get(code or "", "")
    refusal, remedy = (known_refusal(refused[1]) if refused else None) or ("", known)
    up = all(pod.ready for pod in counted) if deployment.replicas > 1 else pod is not None and pod.has_run
    return MachineState(
        state="running" if complete and pod is not None and (pod.scheduled or pod.has_run) else "pending",
        reason_code=code,
        reason=reason,
        address=address if complete and up else None,
        refusal=refusal,
        remedy=remedy,
        replicas=tuple(ReplicaState(id=f"pod/{item.name}", status=item.status, created=item.created) for item in pods),
    )


def _is_restarting(deployment: Reply) -> bool:
    status = deployment.optional_part("status")
    if not status.has("observedGeneration"):
        return False
    updated = status.integer("updatedReplicas") if status.has("updatedReplicas") else 0
    is_stale = status.integer("observedGeneration") < deployment.part("metadata").integer("generation")
    return is_stale or updated < replicas_of(deployment)


def _refusal(deployment: Reply) -> tuple[str, str] | None:
    """Return why the cluster creates no pod: a quota, or a policy."""
    for condition in deployment.optional_part("status").optional_parts("conditions"):
        if condition.optional_text("type") == "ReplicaFailure" and condition.optional_text("status") == "True":
            return _why(condition)
    return None


def console(api: Api, deployment: LiveDeployment, pods: Sequence[Pod]) -> str:
    """Return the events and the log of the pod that is waited for, with its container's exits where they happened."""
    pod = last(pods)
    if pod is None:
        return f"{deployment.refusal[0]}: {deployment.refusal[1]}\n" if deployment.refusal else ""
    return pod_console(api, pod)


def pod_console(api: Api, pod: Pod) -> str:
    return "".join(f"{line}\n" for line in (*_events(api, pod), *_log(api, pod)))


def _events(api: Api, pod: Pod) -> Iterator[str]:
    """Yield what the scheduler and the node report about it, in order: warnings, and the marks of phases."""
    query = {"fieldSelector": f"involvedObject.name={pod.name}"}
    events = api.each(api.path("/api/v1", "events"), "reading the pod's events", _event, query=query)
    yield from (line for _when, line in sorted(events, key=itemgetter(0)) if line)


def _event(item: Reply) -> tuple[str, str]:
    """Return when it happened and its line, empty for one that is left out."""
    reason, message = _why(item)
    line = f"{reason}: {message}" if item.optional_text("type") == "Warning" else ""
    if reason in _PHASES:
        image = message.partition('image "')[2].partition('"')[0]
        line = _PHASES[reason] + (f" image={image}" if reason == "Pulling" and image else "")
    return _moment(item), line


def _moment(event: Reply) -> str:
    found = (event.optional_text(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next(filter(None, found), "")


def _log(api: Api, pod: Pod) -> Iterator[str]:
    if not pod.has_run:
        return
    path, doing = f"{api.path('/api/v1', 'pods', pod.name)}/log", "reading the pod's log"
    yield from [_UNSEEN_EXIT] * min(pod.restarts - 1, _MOST_EXITS)
    again = pod.restarts > 0 and pod.phase == "Running" and pod.waiting is None
    if again:
        yield from api.text(path, doing, {**_TAIL, "previous": "true"}).splitlines()
        yield from _exit(pod)
    yield from api.text(path, doing, _TAIL).splitlines()
    if not again and pod.exit_code is not None:
        yield from _exit(pod)


def _exit(pod: Pod) -> Iterator[str]:
    if pod.ended and pod.ended[0] == "OOMKilled":
        yield "Reason: OOMKilled"
    if pod.exit_code is not None:
        yield _EXIT_LINE.format(pod.exit_code)
