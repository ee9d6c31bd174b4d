"""The machine's docker: its command line, pulls with realistic durations, and containers that run the stub engine."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import threading
import time
from getopt import GetoptError, getopt
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from tgi_deploy.catalog.kept_models import KEPT_MODELS, models_folder
from tgi_deploy.sandbox.addresses import UNREACHABLE, can_bind
from tgi_deploy.sandbox.guest.layout import publish
from tgi_deploy.sandbox.guest.spawn import stub_words
from tgi_deploy.sandbox.hardware import image_sizes, proxy_image
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.sandbox.guest.machine import System
    from tgi_deploy.sandbox.guest.server import Client
    from tgi_deploy.sandbox.guest.spawn import Job

_SHORT: Final = {
    "-d": "--detach", "-e": "--env", "-i": "--interactive", "-p": "--publish", "-t": "--tty", "-v": "--volume"
}  # fmt: skip
_SWITCHES: Final = "rm detach interactive tty init privileged read-only quiet"
_VALUED: Final = (
    "name= gpus= shm-size= stop-timeout= publish= volume= env= env-file= restart= entrypoint= network= ipc= ulimit= "
    "label= log-driver= memory= user= cap-add= cap-drop= security-opt= device= runtime="
)
# A container port alone (docker chooses the host's) is not simulated.
_PUBLISHED: Final = re.compile(r"^(?:(?:[\d.]+|\[[\da-f:]+\])?:)?(?P<host>\d+):(?P<container>\d+)(?:/tcp)?$")


class DockerError(Exception):
    """An error of the daemon."""


class DockerUsageError(DockerError):
    """A usage error, with the message of docker's client."""


class RunOptions(Frozen, frozen=True, kw_only=True):
    """The options, by their long names."""

    image: str
    arguments: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]

    def one(self, name: str) -> str:
        return self.values.get(name, ("",))[-1]

    @property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a port of the host and of the container. Raises DockerUsageError."""
        pairs = []
        for text in self.values.get("--publish", ()):
            found = _PUBLISHED.match(text)
            if not found:
                raise DockerUsageError(f'invalid argument "{text}" for "-p, --publish" flag: invalid hostPort')
            pairs.append((int(found["host"]), int(found["container"])))
        return tuple(pairs)

    def environment(self, caller: Mapping[str, str]) -> dict[str, str]:
        """Return the container's environment: env files, then -e; a name alone is passed through."""
        lines: list[str] = []
        for name in self.values.get("--env-file", ()):
            try:
                lines += Path(name).read_text(encoding="utf-8").splitlines()
            except OSError as problem:
                raise DockerUsageError(f"open {name}: {problem.strerror}") from problem
        lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        pairs = [line.partition("=") for line in (*lines, *self.values.get("--env", ()))]
        return {key: value if equals else caller[key] for key, equals, value in pairs if equals or key in caller}

    def gpus(self, available: int) -> int:
        """Return the number of visible GPUs. Raises DockerUsageError for an unknown device."""
        wanted = self.one("--gpus").strip("\"'")
        if not wanted:
            return 0
        if not available:
            raise DockerUsageError('could not select device driver "" with capabilities: [[gpu]].')
        if wanted == "all":
            return available
        named = wanted.removeprefix("device=")
        if named == wanted and not wanted.isdigit():
            raise DockerUsageError(f'invalid argument "{wanted}" for "--gpus" flag: count must be an integer')
        devices = {*map(str, range(int(wanted)))} if named == wanted else {*named.split(",")}
        unknown = sorted(device for device in devices if not device.isdigit() or int(device) >= available)
        if unknown:
            raise DockerUsageError(
                "failed to create task for container: failed to create shim task: OCI runtime create failed: "
                f"nvidia-container-cli: device error: {unknown[0]}: unknown device: unknown."
            )
        return len(devices)


def parse_run(argv: list[str]) -> RunOptions:
    """Raises DockerUsageError for an unknown flag, a missing value or a missing image."""
    try:
        options, words = getopt(argv, "de:ip:tv:", [*_SWITCHES.split(), *_VALUED.split()])
    except GetoptError as problem:
        short = len(problem.opt) == 1
        shown = f"{'-' if short else '--'}{problem.opt}"
        if "requires argument" in problem.msg:
            raise DockerUsageError(f"flag needs an argument: {shown}") from problem
        raise DockerUsageError(f"unknown {'shorthand ' if short else ''}flag: {shown}") from problem
    if not words:
        raise DockerUsageError('"docker run" requires at least 1 argument.\nSee "docker run --help".')
    values: dict[str, tuple[str, ...]] = {}
    for option, value in options:
        name = _SHORT.get(option, option)
        values[name] = (*values.get(name, ()), value)
    return RunOptions(image=words[0], arguments=tuple(words[1:]), values=values)


def value_of(option: str, words: Sequence[str]) -> str:
    """Return an option's value, as the next argument or after `=`; empty if not given."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


# Observed speed of pulling a large image, in unpacked bytes. Layers are transferred compressed, at about half their
# size on disk.
_PACKED_SHARE: Final = 0.5
_PULL_BYTES_PER_S: Final = 150e6
_HEAD: Final = """\
Inter-|   Receive                                          |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
"""


class Images:
    """The images of the machine. Those that were pulled are listed on its root volume.

    Pulls show in the counters of its network interface, the guest's `/proc/net/dev`.
    """

    def __init__(self, host: System) -> None:
        self._host = host
        self._received_bytes = 0.0
        self._show()
        self._kept = host.layout.at("/var/lib/docker/images")
        self._pulled = set(self._kept.read_text(encoding="utf-8").split()) if self._kept.exists() else set[str]()
        self._failures = sum(fault.failed_pulls for fault in host.faults)

    def __contains__(self, image: str) -> bool:
        return image in self._pulled

    def pull(self, image: str) -> None:
        """Pull the image unless it is there. Raises DockerError."""
        known = image_sizes()
        repository, size = image.rpartition(":")[0], known.get(image)
        if size is None and any(name.startswith(f"{repository}:") for name in known):
            raise DockerError(f"manifest for {image} not found: manifest unknown: manifest unknown")
        if size is None:
            why = "repository does not exist or may require 'docker login'"
            raise DockerError(f"pull access denied for {repository or image}, {why}")
        if image in self:
            return
        self._receive(size)
        if self._failures > 0:
            self._failures -= 1
            raise DockerError("Get https://ghcr.io/v2/: net/http: TLS handshake timeout")
        self._pulled.add(image)
        self._kept.write_text("\n".join(sorted(self._pulled)), encoding="utf-8")

    def _receive(self, size_bytes: int) -> None:
        """Receive the packed bytes at a constant rate, within the time of both the download and the unpacking."""
        slow = next((fault.pull_mb_per_s for fault in self._host.faults if fault.pull_mb_per_s), None)
        packed = size_bytes * _PACKED_SHARE
        takes_s = packed / 1e6 / slow if slow else size_bytes / _PULL_BYTES_PER_S / self._host.speed
        began, before = time.monotonic(), self._received_bytes
        while (spent_s := time.monotonic() - began) < takes_s:
            self._received_bytes = before + packed * spent_s / takes_s
            self._show()
            if self._host.down.wait(min(0.05, takes_s - spent_s)):
                raise DockerError("context canceled")
        self._received_bytes = before + packed
        self._show()

    def _show(self) -> None:
        """Write the counters, in packets of 1,500 bytes."""
        count = int(self._received_bytes)
        line = f"  eth0: {count} {count // 1500} 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        publish(self._host.layout.at("/proc/net/dev"), f"{_HEAD}{line}")


_DEFAULT_STOP_S: Final = 10.0
_USAGE_STATUS: Final = 125
# Faults of the machine, not of the engine.
FAULTS: Final = ("port-taken", "driver-too-old", "no-gpu")
# The error of the NVIDIA container toolkit's hook for an image that needs a newer driver.
_TOO_OLD: Final = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: error running prestart hook #0: exit status 1, "
    "stdout: , stderr: Auto-detected mode as 'legacy'\n"
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer "
    "version, or use an earlier cuda container: unknown"
)


class Container(msgspec.Struct, kw_only=True):
    """A created container. `listen`: its address and port on this computer."""

    name: str
    options: RunOptions
    identity: str = msgspec.field(default_factory=lambda: secrets.token_hex(32))
    listen: str = ""
    job: Job | None = None
    status: int | None = None
    done: threading.Event = msgspec.field(default_factory=threading.Event)

    def kill(self) -> None:
        if self.job and self.status is None:
            self.job.signal(signal.SIGKILL)
            self.done.wait(_DEFAULT_STOP_S)


def _unknown(client: Client, _argv: list[str]) -> NoReturn:
    raise DockerUsageError(f"'{client.argv[:1]}' is not a docker command (or not one that the sandbox simulates).")


class Docker:
    def __init__(self, host: System) -> None:
        self._host = host
        self._images = Images(host)
        self._faults = {fault.engine for fault in host.faults if fault.engine}
        self._containers: dict[str, Container] = {}
        self._lock = threading.Lock()

    def command(self, client: Client) -> int:
        """Run one command, and return its exit status."""
        verb, argv = (client.argv[0], client.argv[1:]) if client.argv else ("", [])
        actions: Mapping[str, Callable[[Client, list[str]], int | None]] = {
            "pull": self._pull, "run": self._run, "stop": self._stop, "rm": self._rm, "image": self._image
        }  # fmt: skip
        failed = _USAGE_STATUS if verb == "run" else 1
        try:
            return actions.get(verb, _unknown)(client, argv) or 0
        except DockerUsageError as problem:
            client.err(f"docker: {problem}\n\nRun 'docker {verb} --help' for more information\n")
        except DockerError as problem:
            client.err(f"{'docker: ' if verb == 'run' else ''}Error response from daemon: {problem}\n")
        return failed

    def _pull(self, client: Client, argv: list[str]) -> None:
        images = [word for word in argv if not word.startswith("-")]
        if len(images) != 1:
            raise DockerUsageError('"docker pull" requires exactly 1 argument.')
        self._images.pull(images[0])
        client.out(f"{images[0]}\n")

    def _run(self, client: Client, argv: list[str]) -> int:
        options = parse_run(argv)
        if options.image not in self._images:
            client.err(f"Unable to find image '{options.image}' locally\n")
            self._images.pull(options.image)
        container, job = self._start(client, options)
        if "--detach" in options.values:
            client.out(f"{container.identity}\n")
            return 0
        client.on_signal = lambda number: job.signal(number, whole_group=False)
        container.done.wait()
        return container.status or 0

    def _start(self, client: Client, options: RunOptions) -> tuple[Container, Job]:
        """Create a container and start its program, with output to the client unless detached. Raises DockerError."""
        environment, attached = options.environment(client.env), "--detach" not in options.values
        container = Container(name=options.one("--name") or f"sandbox_{secrets.token_hex(4)}", options=options)
        with self._lock:
            other = self._containers.setdefault(container.name, container)
        if other is not container:
            raise DockerError(
                f'Conflict. The container name "/{other.name}" is already in use by container "{other.identity}". '
                "You have to remove (or rename) that container to be able to reuse that name."
            )
        try:
            job = container.job = self._host.spawner.start_module(
                self._program(container, environment),
                variables=environment,
                line=lambda text: client.out(f"{text}\n") if attached else None,
                environment={KEPT_MODELS: str(models_folder(os.environ).absolute())},
            )
        except (OSError, DockerError) as problem:
            del self._containers[container.name]
            raise DockerError(str(problem)) from problem
        threading.Thread(target=self._watch, args=(container, job), name=container.name, daemon=True).start()
        return container, job

    def _watch(self, container: Container, job: Job) -> None:
        status = job.wait()
        job.sweep()
        container.status = status if status >= 0 else 128 - status
        if "--rm" in container.options.values:
            self._containers.pop(container.name, None)
        container.done.set()

    def _program(self, container: Container, environment: Mapping[str, str]) -> list[str]:
        """Return the module that does what the container would do, with its arguments."""
        options, host = container.options, self._host
        mounts = [text.split(":") for text in options.values.get("--volume", ())]
        if options.image == proxy_image():
            return ["tgi_deploy.sandbox.guest.tls_proxy", mounts[0][0], host.address]
        gpus = options.gpus(host.hardware.gpu_count)
        if "driver-too-old" in self._faults and gpus:
            raise DockerError(_TOO_OLD)
        card, count = ("none", 0) if "no-gpu" in self._faults else (host.hardware.accelerator or "none", gpus)
        container.listen = listen = self._listen(options, environment)
        # The host's folder behind /data is an absolute path; named volumes are not persisted.
        data = [mount[0] for mount in mounts if mount[1:2] == ["/data"] and mount[0].startswith("/")][:1]
        accelerators = ("--accelerator", card, "--gpus", str(count), "--memory-bytes", str(host.hardware.memory_bytes))
        is_held = int(listen.rpartition(":")[2]) in host.held_ports
        return stub_words(
            release=options.image.rpartition(":")[2],
            listen=listen,
            hardware=(*(("--port-held",) if is_held else ()), *accelerators),
            speed=host.speed,
            faults=sorted(self._faults - {*FAULTS}),
            arguments=options.arguments,
            more=(word for folder in data for word in ("--data", folder)),
        )

    def _listen(self, options: RunOptions, environment: Mapping[str, str]) -> str:
        """Return where the engine is reachable: the published port, if it maps to the launcher's port."""
        inside = int(value_of("--port", options.arguments) or environment.get("PORT") or "80")
        pairs = ((inside, inside),) if options.one("--network") == "host" else options.ports
        for outside, port in pairs:
            if "port-taken" in self._faults or not self._is_free(outside):
                raise DockerError(
                    "failed to set up container networking: driver failed programming external connectivity on "
                    f"endpoint: Bind for 0.0.0.0:{outside} failed: port is already allocated"
                )
            if port == inside:
                return f"{self._host.address}:{outside}"
        # Reachable only from inside the container.
        return "127.0.0.1:0"

    def _is_free(self, port: int) -> bool:
        address = self._host.address
        if port not in self._host.held_ports:
            return address != UNREACHABLE and can_bind(address, port)
        return all(one.listen != f"{address}:{port}" for one in self._containers.values() if one.status is None)

    def _stop(self, client: Client, argv: list[str]) -> None:
        timeout_s = value_of("-t", argv)
        for name in [word for word in argv if word not in {"-t", timeout_s}]:
            container = self._containers.get(name)
            if container is None:
                raise DockerError(f"No such container: {name}")
            grace_s = float(timeout_s or container.options.one("--stop-timeout") or _DEFAULT_STOP_S)
            if container.job:
                container.job.signal(signal.SIGTERM, whole_group=False)
                if not container.done.wait(max(1.0, grace_s / self._host.speed)):
                    container.kill()
            client.out(f"{name}\n")

    def _rm(self, client: Client, argv: list[str]) -> None:
        """Remove as with --force, which ends what runs."""
        for name in [word for word in argv if not word.startswith("-")]:
            container = self._containers.pop(name, None)
            if container is None:
                client.err(f"Error response from daemon: No such container: {name}\n")
            else:
                container.kill()
                client.out(f"{name}\n")

    def _image(self, client: Client, argv: list[str]) -> None:
        verb, *images = argv or [""]
        if verb != "inspect":
            raise DockerUsageError(f"unknown command: docker image {verb}")
        for image in images:
            if image not in self._images:
                raise DockerError(f"No such image: {image}")
        client.out(json.dumps([{"RepoTags": [image]} for image in images]) + "\n")
