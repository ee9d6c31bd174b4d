"""Parses `docker run`'s command line, with docker's errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from getopt import GetoptError, getopt
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
