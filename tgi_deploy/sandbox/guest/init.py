"""The machine's init: unit files on disk, services, timers, and the verbs of systemctl."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.guest.services import Service
from tgi_deploy.sandbox.guest.units import BadUnitError, parse_span, parse_unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.guest.server import Client
    from tgi_deploy.sandbox.guest.services import Host
    from tgi_deploy.sandbox.guest.units import Unit

_POLL_S: Final = 0.05
# What a machine does again and again is no faster than this in real time: programs that start cost the computer more.
_LEAST_PAUSE_S: Final = 2.0
_NOT_ACTIVE: Final = 3
_NOT_FOUND: Final = 5


class Timer:
    """Starts a service at a given time; at once if it has passed (as with Persistent=true).

    Moments come at the timers' speed. A limit doesn't count pauses between looks: they pass at the machine's speed.
    """

    def __init__(self, unit: Unit, *, booted: float, timer_speed: float, speed: float) -> None:
        """Raises BadUnitError for an unsupported time."""
        times = {name: parse_span(text) for name, text in unit["Timer"].items() if name.endswith("Sec")}
        bases = {"OnBootSec": booted, "OnActiveSec": time.time()}
        first = [base + times[name] / timer_speed for name, base in bases.items() if name in times]
        if not first:
            raise BadUnitError("a timer without OnBootSec= and OnActiveSec= is not simulated")
        self._due = min(first)
        again_s = times.get("OnUnitActiveSec", float("inf"))
        self._pause_s = min(again_s / timer_speed, max(again_s / speed, _LEAST_PAUSE_S))

    def is_due(self) -> bool:
        """Return whether it is time, and wait for the next time."""
        if time.time() < self._due:
            return False
        self._due = time.time() + self._pause_s
        return True


class Init:
    def __init__(self, host: Host, *, booted: float, timer_speed: float) -> None:
        self._host = host
        self._booted = booted
        self._timer_speed = timer_speed
        self._services: dict[str, Service] = {}
        self._timers: dict[str, Timer] = {}
        self._lock = threading.Lock()

    def run_timers(self) -> None:
        """Run the timers until the machine goes down."""
        while not self._host.down.wait(_POLL_S):
            for name, timer in tuple(self._timers.items()):
                if timer.is_due():
                    self._service(name.replace(".timer", ".service")).start(wait=False)

    def start_enabled(self) -> None:
        for link in sorted(self._host.layout.units.glob("*.wants/*")):
            self._start(link.name, wait=False)

    def stop_all(self) -> None:
        """Stop the services that have a stop command; the machine ends the others."""
        for service in tuple(self._services.values()):
            if service.stops_by_command:
                service.stop()

    def systemctl(self, client: Client) -> int:
        options = {word for word in client.argv if word.startswith("-")}
        verb, *names = [word for word in client.argv if not word.startswith("-")] or [""]
        steps: dict[str, tuple[Callable[[str], object], ...]] = {
            "daemon-reload": (),
            "start": (self._start,),
            "stop": (self._stop,),
            "enable": (self._link, self._start) if "--now" in options else (self._link,),
            "is-active": (lambda name: client.out(f"{self._state(name)}\n"),),
        }
        if verb not in steps:
            client.err(f"Unknown command verb {verb} (the sandbox's init does not simulate it).\n")
            return 1
        full = [name if "." in name else f"{name}.service" for name in names]
        status = max((self._guarded(step, name, client) for step in steps[verb] for name in full), default=0)
        if verb == "is-active":
            return 0 if any(self._state(name) == "active" for name in full) else _NOT_ACTIVE
        return status

    def _guarded(self, step: Callable[[str], object], name: str, client: Client) -> int:
        try:
            if step(name) is not False:
                return 0
        except FileNotFoundError:
            client.err(f"Failed to find unit {name}: Unit {name} not found.\n")
            return _NOT_FOUND
        except BadUnitError as problem:
            client.err(f"Unit {name} has a bad unit file setting: {problem}\n")
            return 1
        client.err(f"Job for {name} failed because the control process exited with error code.\n")
        return 1

    def _load(self, name: str) -> Unit:
        return parse_unit(name, (self._host.layout.units / name).read_text(encoding="utf-8"))

    def _service(self, name: str) -> Service:
        with self._lock:
            if name not in self._services:
                self._services[name] = Service(name, self._load(name), self._host)
            return self._services[name]

    def _start(self, name: str, *, wait: bool = True) -> bool:
        if name.endswith(".timer"):
            speed = self._host.speed
            self._timers[name] = Timer(
                self._load(name), booted=self._booted, timer_speed=self._timer_speed, speed=speed
            )
            return True
        return self._service(name).start(wait=wait)

    def _stop(self, name: str) -> None:
        self._timers.pop(name, None)
        if name in self._services:
            self._services[name].stop()

    def _link(self, name: str) -> None:
        for target in self._load(name)["Install"].get("WantedBy", "").split():
            link = self._host.layout.units / f"{target}.wants" / name
            link.parent.mkdir(exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(self._host.layout.units / name)

    def _state(self, name: str) -> str:
        if name in self._services:
            return self._services[name].state
        return "active" if name in self._timers else "inactive"
