"""Probes and hooks of containers, which a kubelet carries out."""

from __future__ import annotations

import socket
import subprocess
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Event

_LEAST_PERIOD_S: Final = 0.1
# The real servers take this long to take a pod out of a Service, however fast the nodes' time passes.
_LEAST_SLEEP_S: Final = 0.5
# However fast the nodes' time passes, this computer may be too busy for the stub server to answer a probe sooner.
_LEAST_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a container's hooks and probes run: its address, named ports, variables; and how fast time passes."""

    address: tuple[str, int]
    ports: Mapping[str, int]
    environment: Mapping[str, str]
    folder: str
    speed: float

    def endpoint(self, port: int | str) -> tuple[str, int]:
        """Return where a port of the container is: its only server may listen elsewhere, without root."""
        host, actual = self.address
        wanted = self.ports.get(str(port)) or int(port)
        return (host, actual) if wanted == self.ports[""] else (host, wanted)


@dataclass(kw_only=True, slots=True)
class Probe:
    """One probe of a container. `passed` is None until its first threshold is reached."""

    spec: Mapping[str, Any]
    place: Place
    passed: bool | None = None
    problem: str = ""
    due_s: float = 0.0
    _row: int = field(default=0)

    def start(self) -> None:
        self.due_s = time.monotonic() + self.spec.get("initialDelaySeconds", 0) / self.place.speed

    def check(self) -> None:
        """Try once, and set `passed` if as many tries in a row agree as the spec asks for."""
        period_s = self.spec.get("periodSeconds", 10) / self.place.speed
        self.problem = attempt(self.spec, self.place, max(_LEAST_TIMEOUT_S, self.spec.get("timeoutSeconds", 1)))
        self.due_s = time.monotonic() + max(_LEAST_PERIOD_S, period_s)
        good = not self.problem
        self._row = (max(self._row, 0) + 1) if good else (min(self._row, 0) - 1)
        if self._row >= self.spec.get("successThreshold", 1):
            self.passed = True
        elif -self._row >= self.spec.get("failureThreshold", 3):
            self.passed = False


def attempt(action: Mapping[str, Any], place: Place, timeout_s: float) -> str:
    """Carry out an action of a probe or a hook; return what went wrong, or nothing."""
    try:
        if "httpGet" in action:
            return _get(action["httpGet"], place, timeout_s)
        if "tcpSocket" in action:
            socket.create_connection(place.endpoint(action["tcpSocket"]["port"]), timeout_s).close()
        elif "exec" in action:
            return _execute(action["exec"]["command"], place, timeout_s)
    except (OSError, HTTPException, subprocess.SubprocessError, ValueError) as problem:
        return str(problem)
    return ""


def _get(action: Mapping[str, Any], place: Place, timeout_s: float) -> str:
    host, port = place.endpoint(action["port"])
    connection = HTTPConnection(host, port, timeout=timeout_s)
    try:
        headers = {item["name"]: item["value"] for item in action.get("httpHeaders", ())}
        connection.request("GET", action.get("path", "/"), headers=headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"  # noqa: PLR2004 -- RFC 9110


def _execute(command: list[str], place: Place, timeout_s: float) -> str:
    done = subprocess.run(  # noqa: S603 -- the pod's own command
        command, env=dict(place.environment), cwd=place.folder, timeout=timeout_s, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return f"exit code {done.returncode}: {done.stderr.strip()}" if done.returncode else ""


def hook(action: Mapping[str, Any], place: Place, grace_s: float, cut: Event) -> None:
    """Run a preStop hook, within the grace period. A sleep passes at the node's speed and can be interrupted."""
    command = action.get("exec", {}).get("command", [])
    seconds = action.get("sleep", {}).get("seconds") or (command[1] if command[:1] == ["sleep"] else 0)
    if seconds:
        cut.wait(min(max(float(seconds) / place.speed, _LEAST_SLEEP_S), grace_s))
    else:
        attempt(action, place, grace_s)
