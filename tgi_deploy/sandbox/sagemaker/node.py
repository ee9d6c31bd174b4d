"""One instance of an endpoint: a process that runs the stub server as the image's entry point starts the launcher."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.kept_models import KEPT_MODELS, models_folder
from tgi_deploy.sandbox.addresses import free_ports
from tgi_deploy.sandbox.guest.spawn import stub_words
from tgi_deploy.sandbox.hardware import hardware_of
from tgi_deploy.sandbox.sagemaker.rules import release_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tgi_deploy.sandbox.guest.spawn import Job, Spawner

_TICK_S: Final = 0.05
# sagemaker-entrypoint.sh of TGI: the variables of the image, and those of the launcher.
_ENTRY: Final = {
    "HF_MODEL_ID": "MODEL_ID",
    "HF_MODEL_REVISION": "REVISION",
    "SM_NUM_GPUS": "NUM_SHARD",
    "HF_MODEL_QUANTIZE": "QUANTIZE",
    "HF_MODEL_TRUST_REMOTE_CODE": "TRUST_REMOTE_CODE",
}
_WEIGHTS: Final = "/opt/ml/model"
_RESTART_S: Final = 60.0
# Between health checks, and how long an answer may take: AWS's guide, "How your container should respond to health
# check (ping) requests".
_PING_S: Final = 5.0
_ANSWER_S: Final = 2.0
_MISSED: Final = 3
# From SIGTERM to SIGKILL: the same guide, "How SageMaker AI runs your inference image".
_GRACE_S: Final = 30.0
# Real seconds: a busy computer needs them, however fast time passes.
_LEAST_GRACE_S: Final = 1.0
_LEAST_START_S: Final = 1.5
_OK: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """`wait_s` is real seconds until the container starts; `faults` are the engine's; `dark`: it never starts."""

    variant: str
    instance_type: str
    container: Mapping[str, Any]
    startup_s: float
    speed: float
    wait_s: float
    faults: tuple[str, ...] = ()
    dark: bool = False

    @property
    def image(self) -> str:
        return str(self.container["Image"])


@dataclass(eq=False, slots=True)
class Node:
    """`ready`: it passes the health check; `failed`: it did not in time; `in_service`: it gets new `requests`."""

    spec: NodeSpec
    spawner: Spawner
    log: Callable[[str, str], None]
    ready: bool = False
    failed: bool = False
    in_service: bool = False
    requests: set[object] = field(default_factory=set)
    address: tuple[str, int] = ("127.0.0.1", 0)
    instance_id: str = field(default_factory=lambda: f"i-{secrets.token_hex(9)[:17]}")
    _first_line_at: float = 0.0
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, or another one in the place of one that failed."""
        self.failed = False
        self._thread = threading.Thread(target=self._run, name=self.instance_id, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Route no more requests to it, and end its container."""
        self.in_service = False
        self._ending.set()

    @property
    def stopping(self) -> bool:
        return self._ending.is_set()

    @property
    def gone(self) -> bool:
        return self._ending.is_set() and (self._thread is None or not self._thread.is_alive())

    def _run(self) -> None:
        limit_s = left_s = max(self.spec.startup_s / self.spec.speed, _LEAST_START_S)
        pause_s = max(_RESTART_S / self.spec.speed, _TICK_S * 10)
        if self._ending.wait(self.spec.wait_s) or (self.spec.dark and self._ending.wait(left_s)):
            return
        while left_s > 0 and not self.spec.dark:
            job = self._container()
            used_s = 0.0 if job is None else self._watch(job, left_s)
            if self._ending.wait(pause_s):
                return
            left_s = limit_s if used_s is None else left_s - used_s - pause_s
        self.failed = True

    def _watch(self, job: Job, left_s: float) -> float | None:
        """Check the container's health until it ends. Return the seconds that it took to start; None if it was ready.

        They begin with its first line, so that the speed of this computer does not count.
        """
        self._first_line_at, missed, due = 0.0, 0, 0.0
        while job.running() and not self._ending.wait(_TICK_S):
            now = time.monotonic()
            if missed >= _MISSED or (not self.ready and self._first_line_at and now - self._first_line_at > left_s):
                break
            if now >= due:
                healthy = self._pings()
                missed = missed + 1 if self.ready and not healthy else 0
                self.ready = self.ready or healthy
                due = now + max(_PING_S / self.spec.speed, _TICK_S * 10) if self.ready else 0.0
        was_ready, self.ready = self.ready, False
        self._end(job)
        return None if was_ready else time.monotonic() - (self._first_line_at or time.monotonic())

    def _pings(self) -> bool:
        connection = HTTPConnection(*self.address, timeout=_ANSWER_S)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().status == _OK
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _end(self, job: Job) -> None:
        job.signal(signal.SIGTERM, whole_group=False)
        until = time.monotonic() + max(_GRACE_S / self.spec.speed, _LEAST_GRACE_S)
        while job.running() and time.monotonic() < until:
            time.sleep(_TICK_S)
        job.signal(signal.SIGKILL)
        job.wait()
        job.sweep()

    def _container(self) -> Job | None:
        """Start the container; None if the entry point ends at once, or the sandbox is going down."""
        variables = dict(self._environment())
        if "HF_MODEL_ID" not in variables:
            self._line("HF_MODEL_ID must be set")
            return None
        self.address = ("127.0.0.1", free_ports(1)[0])
        found = hardware_of(self.spec.instance_type.removeprefix("ml."))
        accelerators = ("--accelerator", found.accelerator or "none", "--gpus", str(found.gpu_count))
        words = stub_words(
            release=release_of(self.spec.image),
            listen=f"{self.address[0]}:{self.address[1]}",
            hardware=(*accelerators, "--memory-bytes", str(found.memory_bytes)),
            speed=self.spec.speed,
            faults=self.spec.faults,
            arguments=("--port", "8080"),
        )
        environment = {**self.spawner.environment, KEPT_MODELS: str(models_folder(os.environ).absolute())}
        with suppress(OSError):
            return self.spawner.start_module(words, variables=variables, line=self._line, environment=environment)
        return None

    def _environment(self) -> Iterator[tuple[str, str]]:
        """Yield the model's variables, and those that the entry point makes of them."""
        given = dict(self.spec.container.get("Environment") or {})
        yield from given.items()
        if given.get("HF_MODEL_ID") == _WEIGHTS:
            # The sandbox has no S3: a folder ORGANIZATION/MODEL has the weights of that model.
            uri = self.spec.container.get("ModelDataSource", {}).get("S3DataSource", {}).get("S3Uri", "")
            given["HF_MODEL_ID"] = "/".join(uri.rstrip("/").split("/")[-2:])
            yield "HF_TOKEN", "unused"  # the stub server loads them like those of the hub, which it asks for a token
        for name, launcher in _ENTRY.items():
            if given.get(name):
                yield launcher, given[name]

    def _line(self, text: str) -> None:
        self._first_line_at = self._first_line_at or time.monotonic()
        self.log(f"{self.spec.variant}/{self.instance_id}", text)
