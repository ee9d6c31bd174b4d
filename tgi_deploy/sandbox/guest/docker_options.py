"""Parses `docker run`'s command line, with docker's errors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORT: Final = {
    "-d": "--detach",
    "-e": "--env",
    "-i": "--interactive",
    "-p": "--publish",
    "-t": "--tty",
    "-v": "--volume",
    "-w": "--workdir",
    "-u": "--user",
    "-m": "--memory",
    "-h": "--hostname",
    "-l": "--label",
    "-q": "--quiet",
}
# A container port alone (docker chooses the host's) is not simulated.
_PUBLISHED: Final = re.compile(r"^(?:(?P<address>[\d.]+|\[[\da-f:]+\])?:)?(?P<host>\d+):(?P<container>\d+)(?:/tcp)?$")
_SWITCHES: Final = frozenset(
    {"--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only", "--quiet"}
)
_VALUED: Final = frozenset(
    {
        "--name",
        "--gpus",
        "--shm-size",
        "--stop-timeout",
        "--stop-signal",
        "--publish",
        "--volume",
        "--env",
        "--env-file",
        "--restart",
        "--pull",
        "--entrypoint",
        "--network",
        "--net",
        "--ipc",
        "--ulimit",
        "--label",
        "--log-driver",
        "--log-opt",
        "--memory",
        "--cpus",
        "--cpuset-cpus",
        "--user",
        "--workdir",
        "--hostname",
        "--mount",
        "--tmpfs",
        "--cap-add",
        "--cap-drop",
        "--security-opt",
        "--device",
        "--runtime",
        "--platform",
        "--pids-limit",
        "--memory-swap",
        "--health-cmd",
        "--add-host",
        "--dns",
        "--cidfile",
    }
)


class DockerUsageError(ValueError):
    """A usage error, with the message of docker's client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    address: str
    host: int
    container: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    image: str
    arguments: tuple[str, ...]
    switches: frozenset[str]
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def one(self, name: str, default: str = "") -> str:
        return self.values.get(name, (default,))[-1]

    @property
    def ports(self) -> tuple[Port, ...]:
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
        number = wanted.removeprefix("count=")
        if not number.isdigit():
            raise DockerUsageError(f'invalid argument "{wanted}" for "--gpus" flag: count must be an integer')
        count = int(number)
        unknown = [str(available)] if count > available else []
    if unknown:
        raise DockerUsageError(
            "failed to create task for container: failed to create shim task: OCI runtime create failed: "
            f"nvidia-container-cli: device error: {unknown[0]}: unknown device: unknown."
        )
    return count


def parse_run(argv: list[str]) -> RunOptions:
    """Raises DockerUsageError for an unknown flag, a missing value or a missing image."""
    switches: set[str] = set()
    values: dict[str, tuple[str, ...]] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        name, value = _next_option(words)
        if value is None:
            switches.add(name)
        else:
            values[name] = (*values.get(name, ()), value)
    if not words:
        raise DockerUsageError('"docker run" requires at least 1 argument.\nSee "docker run --help".')
    return RunOptions(image=words[0], arguments=tuple(words[1:]), switches=frozenset(switches), values=values)


def _next_option(words: list[str]) -> tuple[str, str | None]:
    """Pop one option from `words`. A switch has no value."""
    word = words.pop(0)
    name, equals, attached = word.partition("=")
    if not word.startswith("--") and len(word) > len("-x"):
        name, equals, attached = word[:2], "=", word[2:].removeprefix("=")
        if _SHORT.get(name) in _SWITCHES:
            words.insert(0, f"-{attached}")
            equals = ""
    name = _SHORT.get(name, name)
    if name in _SWITCHES and not equals:
        return name, None
    if name in _SWITCHES and attached in {"true", "false"}:
        return (name if attached == "true" else "--no-op"), None
    if name not in _VALUED:
        raise DockerUsageError(_unknown(word))
    if equals:
        return name, attached
    if not words:
        raise DockerUsageError(f"flag needs an argument: {word}")
    return name, words.pop(0)


def _unknown(word: str) -> str:
    if word.startswith("--"):
        return f"unknown flag: {word.partition('=')[0]}"
    return f"unknown shorthand flag: '{word[1]}' in {word}"


def _port(text: str) -> Port:
    found = _PUBLISHED.match(text)
    if not found:
        raise DockerUsageError(f'invalid argument "{text}" for "-p, --publish" flag: invalid hostPort')
    return Port(address=found["address"] or "", host=int(found["host"]), container=int(found["container"]))


def _env_file(name: str) -> list[str]:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise DockerUsageError(f"open {name}: {problem.strerror}") from problem
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
