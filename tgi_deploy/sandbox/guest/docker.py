"""The machine's docker: its command line, pulls with realistic durations, and containers that run the stub engine."""

from __future__ import annotations

import json
import re
import secrets
import signal
import sys
import threading
from dataclasses import dataclass, field
from getopt import GetoptError, getopt
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

import tgi_deploy
from tgi_deploy.sandbox.addresses import UNREACHABLE, can_bind
from tgi_deploy.sandbox.guest.console import Network
from tgi_deploy.sandbox.guest.server import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.guest.layout import Host
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


class DockerUsageError(ValueError):
    """A usage error, with the message of docker's client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The options, by their long names."""

    image: str
    arguments: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]

    def one(self, name: str) -> str:
        return self.values.get(name, ("",))[-1]

    @property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a port of the host and of the container."""
        return tuple(_port(text) for text in self.values.get("--publish", ()))

    def environment(self, caller: Mapping[str, str]) -> dict[str, str]:
        """Return the container's environment: env files, then -e; a name alone is passed through."""
        lines = [line for name in self.values.get("--env-file", ()) for line in _env_file(name)]
        pairs: dict[str, str] = {}
        for line in (*lines, *self.values.get("--env", ())):
            key, equals, value = line.partition("=")
            if equals:
                pairs[key] = value
            elif key in caller:
                pairs[key] = caller[key]
        return pairs

    def gpus(self, available: int) -> int:
        """Return the number of visible GPUs.

        Raises:
            DockerUsageError: for an unknown device.
        """
        wanted = self.one("--gpus").strip("\"'")
        if not wanted:
            return 0
        if not available:
            raise DockerUsageError('could not select device driver "" with capabilities: [[gpu]].')
        return _gpu_count(wanted, available)


def _gpu_count(wanted: str, available: int) -> int:
    if wanted == "all":
        return available
    if wanted.startswith("device="):
        devices = wanted.removeprefix("device=").split(",")
        unknown = [device for device in devices if not device.isdigit() or int(device) >= available]
        count = len(set(devices))
    else:
        if not wanted.isdigit():
            raise DockerUsageError(f'invalid argument "{wanted}" for "--gpus" flag: count must be an integer')
        count = int(wanted)
        unknown = [str(available)] if count > available else []
    if unknown:
        raise DockerUsageError(
            "failed to create task for container: failed to create shim task: OCI runtime create failed: "
            f"nvidia-container-cli: device error: {unknown[0]}: unknown device: unknown."
        )
    return count


def parse_run(argv: list[str]) -> RunOptions:
    """Raises DockerUsageError for an unknown flag, a missing value or a missing image."""
    try:
        options, words = getopt(argv, "de:ip:tv:", [*_SWITCHES.split(), *_VALUED.split()])
    except GetoptError as problem:
        raise DockerUsageError(_usage(problem)) from problem
    if not words:
        raise DockerUsageError('"docker run" requires at least 1 argument.\nSee "docker run --help".')
    values: dict[str, tuple[str, ...]] = {}
    for option, value in options:
        name = _SHORT.get(option, option)
        values[name] = (*values.get(name, ()), value)
    return RunOptions(image=words[0], arguments=tuple(words[1:]), values=values)


def _usage(problem: GetoptError) -> str:
    dashes = "-" if len(problem.opt) == 1 else "--"
    if "requires argument" in problem.msg:
        return f"flag needs an argument: {dashes}{problem.opt}"
    return f"unknown {'shorthand ' if dashes == '-' else ''}flag: {dashes}{problem.opt}"


def _port(text: str) -> tuple[int, int]:
    found = _PUBLISHED.match(text)
    if not found:
        raise DockerUsageError(f'invalid argument "{text}" for "-p, --publish" flag: invalid hostPort')
    return int(found["host"]), int(found["container"])


def _env_file(name: str) -> list[str]:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise DockerUsageError(f"open {name}: {problem.strerror}") from problem
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


# Observed speed of pulling a large image, in unpacked bytes. Layers are transferred compressed, at about half their
# size on disk.
_PACKED_SHARE: Final = 0.5
_PULL_BYTES_PER_S: Final = 150e6
_DEFAULT_STOP_S: Final = 10.0
_MIN_STOP_S: Final = 1.0
_USAGE_STATUS: Final = 125
# Names of faults of the machine, not of the engine.
PORT_TAKEN: Final = "port-taken"
DRIVER_TOO_OLD: Final = "driver-too-old"
NO_GPU: Final = "no-gpu"
FAULTS: Final = (PORT_TAKEN, DRIVER_TOO_OLD, NO_GPU)
# The error of the NVIDIA container toolkit's hook for an image that needs a newer driver.
_TOO_OLD: Final = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: error running prestart hook #0: exit status 1, "
    "stdout: , stderr: Auto-detected mode as 'legacy'\n"
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer "
    "version, or use an earlier cuda container: unknown"
)


class DockerError(Exception):
    """An error of the daemon."""


@dataclass(kw_only=True, slots=True)
class Container:
    """A created container. `show` prints its output for an attached client."""

    name: str
    options: RunOptions
    identity: str = field(default_factory=lambda: secrets.token_hex(32))
    listen: str = ""
    job: Job | None = None
    status: int | None = None
    show: Callable[[str], None] = lambda _text: None
    done: threading.Event = field(default_factory=threading.Event)

    def kill(self) -> None:
        if self.job and self.status is None:
            self.job.signal(signal.SIGKILL)
            self.done.wait(_DEFAULT_STOP_S)


class Docker:
    def __init__(self, host: Host) -> None:
        self._spec = host.spec
        self._spawner = host.spawner
        self._network = Network(host.layout.at("/proc/net/dev"))
        self._kept = host.layout.at("/var/lib/docker/images")  # on the root volume: lists the pulled images
        self._images = set(self._kept.read_text(encoding="utf-8").split()) if self._kept.exists() else set[str]()
        self._containers: dict[str, Container] = {}
        self._failed_pulls = host.spec.failed_pulls
        self._lock = threading.Lock()

    def command(self, client: Client) -> int:
        verb, argv = (client.argv[0], client.argv[1:]) if client.argv else ("", [])
        actions = {"pull": self._pull, "run": self._run, "stop": self._stop, "rm": self._rm, "image": self._image}
        if verb not in actions:
            client.err(f"docker: '{verb}' is not a docker command (or not one that the sandbox simulates).\n")
            return 1
        try:
            return actions[verb](client, argv)
        except DockerUsageError as problem:
            client.err(f"docker: {problem}\n\nRun 'docker {verb} --help' for more information\n")
            return _USAGE_STATUS if verb == "run" else 1
        except DockerError as problem:
            client.err(f"Error response from daemon: {problem}\n")
            return 1

    def _pull(self, client: Client, argv: list[str]) -> int:
        images = [word for word in argv if not word.startswith("-")]
        if len(images) != 1:
            raise DockerUsageError('"docker pull" requires exactly 1 argument.')
        self._fetch(images[0])
        client.out(f"{images[0]}\n")
        return 0

    def _fetch(self, image: str) -> None:
        repository = image.rpartition(":")[0]
        size = self._spec.images.get(image)
        if size is None and not any(name.startswith(f"{repository}:") for name in self._spec.images):
            raise DockerError(
                f"pull access denied for {repository or image}, repository does not exist or may require 'docker login'"
            )
        if size is None:
            raise DockerError(f"manifest for {image} not found: manifest unknown: manifest unknown")
        if image in self._images:
            return
        self._receive(size)
        if self._failed_pulls > 0:
            self._failed_pulls -= 1
            raise DockerError("Get https://ghcr.io/v2/: net/http: TLS handshake timeout")
        self._images.add(image)
        self._kept.write_text("\n".join(sorted(self._images)), encoding="utf-8")

    def _receive(self, size_bytes: int) -> None:
        """Receive the packed bytes within the time of both the download and the unpacking."""
        slow, packed = self._spec.pull_mb_per_s, size_bytes / 1e6 * _PACKED_SHARE
        takes_s = packed / slow if slow else size_bytes / _PULL_BYTES_PER_S / self._spec.speed
        self._network.receive(packed * 1e6, takes_s=takes_s)

    def _run(self, client: Client, argv: list[str]) -> int:
        options = parse_run(argv)
        try:
            container = self._create(client, options)
            job = self._start(client, container)
        except (DockerError, DockerUsageError) as problem:
            client.err(f"docker: Error response from daemon: {problem}\n")
            return _USAGE_STATUS
        if "--detach" in options.values:
            client.out(f"{container.identity}\n")
            return 0
        client.on_signal = lambda number: job.signal(number, whole_group=False)
        container.done.wait()
        return container.status or 0

    def _create(self, client: Client, options: RunOptions) -> Container:
        if options.image not in self._images:
            client.err(f"Unable to find image '{options.image}' locally\n")
            self._fetch(options.image)
        name = options.one("--name") or f"sandbox_{secrets.token_hex(4)}"
        with self._lock:
            if name in self._containers:
                taken = self._containers[name].identity
                raise DockerError(
                    f'Conflict. The container name "/{name}" is already in use by container "{taken}". '
                    "You have to remove (or rename) that container to be able to reuse that name."
                )
            container = Container(name=name, options=options)
            self._containers[name] = container
        return container

    def _start(self, client: Client, container: Container) -> Job:
        options = container.options
        try:
            environment = options.environment(client.env)
            if options.image == self._spec.proxy_image:
                argv = self._proxy_command(options)
            else:
                container.listen = self._listen(options, environment)
                argv = self._engine_command(options, container.listen)
            if "--detach" not in options.values:
                container.show = client.out
            with TemporaryFile(dir=self._spawner.environment["HOME"]) as variables:
                variables.write(json.dumps(environment).encode())
                variables.seek(0)
                job = container.job = self._spawner.start(
                    argv,
                    line=lambda text: container.show(f"{text}\n"),
                    environment=self._engine_environment(),
                    stdin=variables,
                )
        except (OSError, DockerError, DockerUsageError) as problem:
            del self._containers[container.name]
            raise DockerError(str(problem)) from problem
        threading.Thread(target=self._watch, args=(container, job), name=container.name, daemon=True).start()
        return job

    def _watch(self, container: Container, job: Job) -> None:
        status = job.wait()
        job.sweep()
        container.status = status if status >= 0 else 128 - status
        if "--rm" in container.options.values:
            self._containers.pop(container.name, None)
        container.done.set()

    def _engine_command(self, options: RunOptions, listen: str) -> list[str]:
        version = options.image.rpartition(":")[2]
        faults = [word for fault in self._spec.engine_faults if fault not in FAULTS for word in ("--fault", fault)]
        return [
            *(sys.executable, "-P", "-s", "-m", "tgi_deploy.sandbox.engine"),
            "--environment-from-stdin",
            *("--version", version),
            *("--listen", listen),
            *(("--port-held",) if int(listen.rpartition(":")[2]) in self._spec.held_ports else ()),
            *self._visible(options),
            *("--memory-bytes", str(self._spec.hardware.memory_bytes)),
            *("--speed", f"{self._spec.speed:g}"),
            *(word for folder in _data_folders(options) for word in ("--data", folder)),
            *faults,
            "--",
            *options.arguments,
        ]

    def _proxy_command(self, options: RunOptions) -> list[str]:
        folder = options.one("--volume").partition(":")[0]
        return [sys.executable, "-P", "-s", "-m", "tgi_deploy.sandbox.guest.tls_proxy", folder, self._spec.address]

    def _visible(self, options: RunOptions) -> tuple[str, ...]:
        """Return the options for the accelerator in the container and their number."""
        hardware, faults = self._spec.hardware, self._spec.engine_faults
        gpus = options.gpus(hardware.gpu_count)
        if DRIVER_TOO_OLD in faults and gpus:
            raise DockerError(_TOO_OLD)
        if NO_GPU in faults:
            return "--accelerator", "none", "--gpus", "0"
        return "--accelerator", hardware.accelerator or "none", "--gpus", str(gpus)

    def _listen(self, options: RunOptions, environment: dict[str, str]) -> str:
        """Return where the engine is reachable: the published port, if it maps to the launcher's port."""
        inside = int(value_of("--port", options.arguments) or environment.get("PORT") or "80")
        if options.one("--network") == "host":
            return f"{self._spec.address}:{self._free(inside)}"
        for outside, port in options.ports:
            self._free(outside)
            if port == inside:
                return f"{self._spec.address}:{outside}"
        # Reachable only from inside the container.
        return "127.0.0.1:0"

    def _free(self, port: int) -> int:
        if PORT_TAKEN in self._spec.engine_faults or not self._is_free(port):
            raise DockerError(
                "failed to set up container networking: driver failed programming external connectivity on endpoint: "
                f"Bind for 0.0.0.0:{port} failed: port is already allocated"
            )
        return port

    def _is_free(self, port: int) -> bool:
        if port not in self._spec.held_ports:
            return self._spec.address != UNREACHABLE and can_bind(self._spec.address, port)
        running = [one.listen for one in self._containers.values() if one.status is None]
        return f"{self._spec.address}:{port}" not in running

    def _engine_environment(self) -> dict[str, str]:
        """Return the interpreter's environment, which the container's variables must not influence.

        It runs with -P and -s instead of -I because it needs PYTHONPATH if the package is not installed.
        """
        package = str(Path(tgi_deploy.__file__).resolve().parent.parent)
        return {"PYTHONPATH": package, "HOME": self._spawner.environment["HOME"], **self._spec.engine_environment}

    def _stop(self, client: Client, argv: list[str]) -> int:
        timeout_s = value_of("-t", argv)
        for name in [word for word in argv if word not in {"-t", timeout_s}]:
            self._end(self._named(name), timeout_s)
            client.out(f"{name}\n")
        return 0

    def _end(self, container: Container, timeout_s: str) -> None:
        grace_s = float(timeout_s or container.options.one("--stop-timeout") or _DEFAULT_STOP_S)
        if container.job:
            container.job.signal(signal.SIGTERM, whole_group=False)
            if not container.done.wait(max(_MIN_STOP_S, grace_s / self._spec.speed)):
                container.kill()

    def _rm(self, client: Client, argv: list[str]) -> int:
        """Remove as with --force, which ends what runs."""
        for name in [word for word in argv if not word.startswith("-")]:
            container = self._containers.pop(name, None)
            if container is None:
                client.err(f"Error response from daemon: No such container: {name}\n")
            else:
                container.kill()
                client.out(f"{name}\n")
        return 0

    def _named(self, name: str) -> Container:
        if name not in self._containers:
            raise DockerError(f"No such container: {name}")
        return self._containers[name]

    def _image(self, client: Client, argv: list[str]) -> int:
        if argv[:1] != ["inspect"]:
            raise DockerUsageError(f"unknown command: docker image {' '.join(argv[:1])}")
        for image in argv[1:]:
            if image not in self._images:
                raise DockerError(f"No such image: {image}")
        client.out(json.dumps([{"RepoTags": [image]} for image in argv[1:]]) + "\n")
        return 0


def _data_folders(options: RunOptions) -> list[str]:
    """Return the host folder behind /data: an absolute path; named volumes are not persisted."""
    mounts = [text.split(":") for text in options.values.get("--volume", ())]
    return [mount[0] for mount in mounts if mount[1:2] == ["/data"] and mount[0].startswith("/")][:1]
