"""One pod on a node: its container runs as a stub server, or as the program that its `command` names.

Its status, probes, restarts and end are the kubelet's.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy.sandbox.addresses import can_bind, free_ports
from tgi_deploy.sandbox.guest.docker import value_of
from tgi_deploy.sandbox.guest.spawn import stub_words
from tgi_deploy.sandbox.hardware import image_sizes, images_of_root
from tgi_deploy.sandbox.kubernetes.logs import Log
from tgi_deploy.sandbox.kubernetes.nodes import GPU, hardware, now
from tgi_deploy.sandbox.kubernetes.probes import Place, Probe, hook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.sandbox.guest.spawn import Job, Spawner

_TICK_S: Final = 0.1
_FIRST_BACKOFF_S: Final = 10.0
_MOST_BACKOFF_S: Final = 300.0
_LEAST_GRACE_S: Final = 1.0
_REFERENCE: Final = re.compile(r"\$(\$|\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\))")
_DEFAULT_PORT: Final = "80"
# A fault of the node, not of the engine: the kernel kills the container for its memory.
OOM_KILLED: Final = "oom-killed"
# What an ordinary user gets from an image whose Python is in a folder that only root can read: issue 3082 of TGI.
_LOCKED_OUT: Final = (
    "echo 'unable to refresh ld cache, not a big deal in most cases'; "
    "echo 'text-generation-launcher: error while loading shared libraries: libpython3.11.so.1.0: "
    "cannot open shared object file: No such file or directory'; exit 127"
)


class ConfigError(Exception):
    """A container can't be created from its specification."""


class Api(Protocol):
    """What a pod needs of the API server."""

    def report(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Set the status of a pod."""

    def event(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        """Record a warning."""

    def removed(self, pod: Mapping[str, Any]) -> None:
        """Remove a pod that has ended."""

    def value(self, namespace: str, kind: str, name: str, key: str) -> str:
        """Return a value of a secret or configmap. Raises ConfigError."""

    def token(self, pod: Mapping[str, Any], seconds: int) -> str:
        """Return a token of the pod's service account. Raises ConfigError."""

    @property
    def address(self) -> tuple[str, str]:
        """The host and the port that pods use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How engines behave, from `engine.json` at each start: `speed` divides durations; `faults` are by release."""

    speed: float = 60.0
    faults: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Settings:
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()


class Pod:
    """Runs in its own thread, in `run`; other threads call `terminate` and `drop`."""

    def __init__(self, pod: Mapping[str, Any], instance_type: str, address: str, api: Api, spawner: Spawner) -> None:
        self.pod = pod
        self.address = address
        self.logs = Log()
        self.former_logs: Log | None = None
        self.place: Place | None = None
        self._hardware = hardware(instance_type)
        self._api = api
        self._spawner = spawner
        (self._spec,) = pod["spec"]["containers"]
        self._restarts = 0
        self._last: dict[str, Any] = {}
        self._ending = threading.Event()
        self._dropped = threading.Event()
        self._grace_s = 0.0
        self._started_at = now()

    @property
    def container(self) -> str:
        """The name of its container."""
        return str(self._spec["name"])

    @property
    def _image(self) -> str:
        """The name and tag of its image."""
        return str(self._spec["image"]).partition("@")[0]

    @property
    def _release(self) -> str:
        return self._image.rpartition(":")[2]

    @property
    def _is_locked_out(self) -> bool:
        """Whether the user of the container can't read the image's programs; without one named, it is root."""
        contexts = (item.get("securityContext", {}) for item in (self._spec, self.pod["spec"]))
        user = next((context["runAsUser"] for context in contexts if "runAsUser" in context), 0)
        return user != 0 and self._image in images_of_root()

    def terminate(self, grace_s: float) -> None:
        """End it as a deletion does: within its grace period."""
        self._grace_s = grace_s
        self._ending.set()

    def drop(self) -> None:
        """End it at once: the API server no longer has it."""
        self._dropped.set()
        self._ending.set()

    def run(self, settings: Path) -> None:
        """Run until it ends for good, or is deleted."""
        try:
            self._waiting("ContainerCreating")
            while not self._ending.is_set() and self._pulled() and self._again(self._attempt(Settings.read(settings))):
                self._back_off(Settings.read(settings).speed)
        finally:
            self._ending.wait()
            if not self._dropped.is_set():
                self._api.removed(self.pod)

    def _pulled(self) -> bool:
        """Wait until the image can be pulled; one that does not exist never can. Return False if the pod is ending."""
        image = self._image
        if image in image_sizes():
            return True
        message = f'failed to pull image "{image}": {image}: not found'
        self._api.event(self.pod, "Failed", message)
        while not self._ending.is_set():
            for reason in ("ErrImagePull", "ImagePullBackOff"):
                self._waiting(reason, message)
                self._ending.wait(_TICK_S * 10)
        return False

    def _attempt(self, settings: Settings) -> int | None:
        """Run the container once; return its exit code, or None if it could not be created."""
        if self._restarts:
            self.former_logs, self.logs = self.logs, Log()
        began = now()
        try:
            job = self._start(dict(self._environment()), settings)
        except ConfigError as problem:
            self._waiting("CreateContainerConfigError", str(problem))
            return None
        except OSError as problem:
            self._waiting("RunContainerError", str(problem))
            return None
        self._report(self._running(began), ready=False)
        reason = self._watch(job, settings, began)
        status = job.wait()
        job.sweep()
        self.logs.close()
        code = status if status >= 0 else 128 - status
        done = {"exitCode": code, "startedAt": began, "finishedAt": now(), "reason": reason or _reason(code)}
        self._last = {"terminated": done}
        self._report(self._last, ready=False, phase=self._phase_after(code))
        return code

    def _start(self, environment: dict[str, str], settings: Settings) -> Job:
        if "command" in self._spec:
            return self._start_program(environment, settings)
        arguments = [_expanded(word, environment) for word in self._spec.get("args", ())]
        port = int(value_of("--port", arguments) or environment.get("PORT") or _DEFAULT_PORT)
        listen = (self.address, port) if can_bind(self.address, port) else ("127.0.0.1", free_ports(1)[0])
        named = {item["name"]: item["containerPort"] for item in self._spec.get("ports", ()) if "name" in item}
        home = self._spawner.environment["HOME"]
        path = {"PATH": self._spawner.environment["PATH"]}
        self.place = Place(
            address=listen, ports={"": port, **named}, environment=environment | path, folder=home, speed=settings.speed
        )
        if self._is_locked_out:
            return self._spawner.start(["sh", "-c", _LOCKED_OUT], line=self.logs.add, environment=path)
        faults = [fault for fault in settings.faults.get(self._release, ()) if fault != OOM_KILLED]
        return self._spawner.start_module(
            stub_words(
                release=self._release,
                listen=f"{listen[0]}:{listen[1]}",
                hardware=self._visible(),
                speed=settings.speed,
                faults=faults,
                arguments=arguments,
            ),
            variables=environment,
            line=self.logs.add,
            environment=path,
        )

    def _start_program(self, environment: dict[str, str], settings: Settings) -> Job:
        """Start the container's own command, as a process of this computer: its volumes are folders of the pod."""
        if self._is_locked_out:
            raise PermissionError(f'exec: "{self._spec["command"][0]}": permission denied')
        home, path = self._spawner.environment["HOME"], {"PATH": self._spawner.environment["PATH"]}
        folders = dict(self._volumes())
        host, port = self._api.address
        known = {**environment, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        self.place = Place(
            address=("127.0.0.1", 0), ports={"": 0}, environment=known | path, folder=home, speed=settings.speed
        )
        words = [_expanded(word, known) for word in (*self._spec["command"], *self._spec.get("args", ()))]
        return self._spawner.start(
            [folders.get(word, word) for word in words], line=self.logs.add, environment={"HOME": home} | known | path
        )

    def _volumes(self) -> Iterator[tuple[str, str]]:
        """Write the projected volumes; yield the path in the container, and the folder. Raises ConfigError."""
        volumes = {
            item["name"]: item["projected"]["sources"]
            for item in self.pod["spec"].get("volumes", ())
            if "projected" in item
        }
        for mount in self._spec.get("volumeMounts", ()):
            if mount["name"] in volumes:
                folder = Path(self._spawner.environment["HOME"], "volumes", self.pod["metadata"]["uid"], mount["name"])
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                for source in volumes[mount["name"]]:
                    for name, text in self._projected(source):
                        (folder / name).write_text(text, encoding="utf-8")
                yield mount["mountPath"], str(folder)

    def _projected(self, source: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the files of one source."""
        namespace = self.pod["metadata"]["namespace"]
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            yield wanted["path"], self._api.token(self.pod, wanted["expirationSeconds"])
        for item in source.get("configMap", {}).get("items", ()):
            yield item["path"], self._api.value(namespace, "configmap", source["configMap"]["name"], item["key"])
        for item in source.get("downwardAPI", {}).get("items", ()):
            yield item["path"], self._field(item["fieldRef"]["fieldPath"])

    def _visible(self) -> tuple[str, ...]:
        gpus = str(self._spec.get("resources", {}).get("limits", {}).get(GPU, "0"))
        memory = str(self._hardware.memory_bytes_per_accelerator)
        chosen = "none" if gpus == "0" else self._hardware.accelerator.name
        return ("--accelerator", chosen, "--gpus", gpus, "--memory-bytes", memory)

    def _watch(self, job: Job, settings: Settings, began: str) -> str:
        """Carry out the probes until the container has ended; return the reason if the exit code does not show it."""
        place = self.place
        assert place is not None, "the container was started"  # noqa: S101 -- for the type checker
        found = {kind: Probe(spec=self._spec[kind], place=place) for kind in _PROBES if kind in self._spec}
        if OOM_KILLED in settings.faults.get(self._release, ()):
            job.signal(signal.SIGKILL)
            return "OOMKilled"
        watch = _Watch(found)
        while job.running() and not self._ending.wait(_TICK_S):
            if watch.failed(lambda ready: self._report(self._running(began), ready=ready, started=True)):
                self._api.event(self.pod, "Unhealthy", watch.problem)
                self._stop(job, self.pod["spec"].get("terminationGracePeriodSeconds", 30), place)
        if self._ending.is_set():
            self._stop(job, self._grace_s, place)
        return ""

    def _stop(self, job: Job, grace_s: float, place: Place) -> None:
        """Run the preStop hook, then SIGTERM, and SIGKILL at the end of the grace period."""
        until = time.monotonic() + max(_LEAST_GRACE_S, grace_s / place.speed)
        action = self._spec.get("lifecycle", {}).get("preStop")
        if action and job.running() and not self._dropped.is_set():
            hook(action, place, until - time.monotonic(), self._dropped)
        job.signal(signal.SIGTERM, whole_group=False)
        while job.running() and time.monotonic() < until and not self._dropped.wait(_TICK_S / 2):
            pass
        job.signal(signal.SIGKILL)

    def _again(self, code: int | None) -> bool:
        """Return whether the container is started again."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        return not self._ending.is_set() and (policy == "Always" or (policy == "OnFailure" and code != 0))

    def _phase_after(self, code: int) -> str:
        return "Running" if self._again(code) or self._ending.is_set() else "Failed" if code else "Succeeded"

    def _back_off(self, speed: float) -> None:
        seconds = min(_FIRST_BACKOFF_S * 2**self._restarts, _MOST_BACKOFF_S) / speed
        if self._last:
            self._restarts += 1
            self._waiting("CrashLoopBackOff", f"back-off restarting failed container {self.container}")
            self._api.event(self.pod, "BackOff", f"Back-off restarting failed container {self.container}")
        self._ending.wait(max(_TICK_S * 10, seconds))

    def _environment(self) -> Iterator[tuple[str, str]]:
        """Yield the container's variables. Raises ConfigError."""
        known: dict[str, str] = {}
        for item in self._spec.get("env", ()):
            known[item["name"]] = self._value(item, known)
        yield from known.items()

    def _value(self, item: Mapping[str, Any], known: Mapping[str, str]) -> str:
        source = item.get("valueFrom", {})
        for field_name, kind in (("secretKeyRef", "secret"), ("configMapKeyRef", "configmap")):
            if field_name in source:
                wanted = source[field_name]
                return self._api.value(self.pod["metadata"]["namespace"], kind, wanted["name"], wanted["key"])
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        return _expanded(item.get("value", ""), known)

    def _field(self, path: str) -> str:
        about = {
            "status.podIP": self.address,
            "status.hostIP": "127.0.0.1",
            "spec.nodeName": self.pod["spec"]["nodeName"],
        }
        return str(about.get(path) or self.pod["metadata"].get(path.removeprefix("metadata."), ""))

    def _running(self, began: str) -> dict[str, Any]:
        return {"running": {"startedAt": began}}

    def _waiting(self, reason: str, message: str = "") -> None:
        waiting = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        self._report(waiting, ready=False, phase="Running" if self._last else "Pending")

    def _report(self, state: Mapping[str, Any], *, ready: bool, started: bool = False, phase: str = "Running") -> None:
        conditions = {
            "PodReadyToStartContainers": True, "Initialized": True, "ContainersReady": ready, "Ready": ready,
        }  # fmt: skip
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._started_at,
            "conditions": [
                {"type": kind, "status": str(value), "lastTransitionTime": now()} for kind, value in conditions.items()
            ],
            "containerStatuses": [
                {
                    "name": self.container,
                    "image": self._spec["image"],
                    "imageID": self._spec["image"],
                    "containerID": f"stub://{self.pod['metadata']['uid']}-{self._restarts}",
                    "started": started,
                    "ready": ready,
                    "restartCount": self._restarts,
                    "state": dict(state),
                    **({"lastState": self._last} if self._last and "terminated" not in state else {}),
                }
            ],
        }
        if not self._dropped.is_set():
            self._api.report(self.pod, status)


_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


class _Watch:
    """The probes of a container that runs: the others wait for the startup probe."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._startup, self._readiness, self._liveness = (probes.get(kind) for kind in _PROBES)
        self._ready: bool | None = None
        self.problem = ""
        for probe in probes.values():
            probe.start()

    def failed(self, show: Any) -> bool:  # noqa: ANN401 -- a function of one keyword
        """Try what is due; call `show` with a changed readiness. Return whether the container must be restarted."""
        waits = self._startup is not None and self._startup.passed is None
        due = [self._startup] if waits else [self._readiness, self._liveness]
        for probe in due:
            if probe is not None and time.monotonic() >= probe.due_s:
                probe.check()
        for kind, probe in (("Startup", self._startup), ("Liveness", self._liveness)):
            if probe is not None and probe.passed is False:
                self.problem = f"{kind} probe failed: {probe.problem}"
                return True
        started = self._startup is None or self._startup.passed is True
        ready = started and (self._readiness is None or self._readiness.passed is True)
        if started and ready is not self._ready:
            self._ready = ready
            show(ready)
        return False


def _reason(code: int) -> str:
    return "Completed" if code == 0 else "Error"


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Return a text of `args` or `env` as containers get it: $(NAME) replaced where known, $$ as $."""

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else known.get(name, match[0])

    return _REFERENCE.sub(replaced, text)
