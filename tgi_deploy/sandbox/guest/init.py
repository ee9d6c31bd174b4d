"""The machine's init: unit files on disk, services, timers, and the verbs of systemctl."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.guest.services import Service
from tgi_deploy.sandbox.guest.units import BadUnitError, Unit, parse_calendar, parse_span, parse_unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.guest.services import Host

_POLL_S: Final = 0.05
# What a machine does again and again is no faster than this in real time: programs that start cost the computer more.
_LEAST_PAUSE_S: Final = 2.0
# Units of the image that exist, are active and do nothing.
_BUILT_IN: Final = frozenset({"docker.service", "containerd.service", "ssh.service", "amazon-ssm-agent.service"})
_NOT_ACTIVE: Final = 3
_NO_SUCH_UNIT: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    rc: int = 0
    out: str = ""
    err: str = ""


class Timer:
    """Starts a service at a given time; at once if it has passed (as with Persistent=true).

    Moments come at the timers' speed. A limit doesn't count pauses between looks: they pass at the machine's speed.
    """

    def __init__(
        self, unit: Unit, *, booted: float, speed: float, timer_speed: float, start: Callable[[str], object]
    ) -> None:
        self.unit = unit
        self.starts = unit.one("Timer", "Unit") or unit.name.removesuffix(".timer") + ".service"
        self.active = False
        self._start = start
        self._speed = speed
        self._timer_speed = timer_speed
        self._booted = booted
        self._activated = 0.0
        self._last: float | None = None

    def activate(self) -> None:
        """Raises BadUnitError for an unsupported time."""
        self._activated = time.time()
        self._next()
        self.active = True

    def stop(self) -> None:
        self.active = False

    def tick(self) -> None:
        due = self._next() if self.active else None
        if due is not None and time.time() >= due:
            self._last = time.time()
            self._start(self.starts)

    def _next(self) -> float | None:
        moments = [*self._once(), *self._repeated()]
        return min(moments) if moments else None

    def _once(self) -> list[float]:
        if self._last is not None:
            return []
        spans = [(self._booted, "OnBootSec"), (self._booted, "OnStartupSec"), (self._activated, "OnActiveSec")]
        relative = [self._after(base, text) for base, key in spans for text in self.unit.all("Timer", key)]
        absolute = [self._scaled(parse_calendar(text)) for text in self.unit.all("Timer", "OnCalendar")]
        return relative + absolute

    def _repeated(self) -> list[float]:
        if self._last is None:
            return []
        return [self._last + self._pause_s(parse_span(text)) for text in self.unit.all("Timer", "OnUnitActiveSec")]

    def _pause_s(self, span_s: float) -> float:
        return min(span_s / self._timer_speed, max(span_s / self._speed, _LEAST_PAUSE_S))

    def _after(self, base: float, text: str) -> float:
        return base + parse_span(text) / self._timer_speed

    def _scaled(self, moment: float) -> float:
        return self._booted + (moment - self._booted) / self._timer_speed


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
            for timer in tuple(self._timers.values()):
                timer.tick()

    def start_enabled(self) -> None:
        for link in sorted(self._host.layout.units.glob("*.wants/*")):
            self._start(link.name, wait=False)

    def stop_all(self) -> None:
        """Stop the services that have a stop command; the machine ends the others."""
        for service in tuple(self._services.values()):
            if service.unit.all("Service", "ExecStop"):
                service.stop()

    def shut_down(self) -> None:
        """Stop the services that have a stop command; the rest ends with the machine."""
        for service in tuple(self._services.values()):
            if service.main_pid and service.unit.one("Service", "ExecStop"):
                service.stop()

    def systemctl(self, argv: list[str]) -> Reply:
        options = {word for word in argv if word.startswith("-")}
        words = [word for word in argv if not word.startswith("-")]
        verb, names = (words[0], [_full(name) for name in words[1:]]) if words else ("list-units", [])
        action = {
            "daemon-reload": self._reload,
            "start": lambda names: self._each(self._start_and_wait, names),
            "stop": lambda names: self._each(self._stop, names),
            "restart": lambda names: self._each(self._restart, names),
            "enable": lambda names: self._enable(names, now="--now" in options),
            "disable": lambda names: self._disable(names, now="--now" in options),
            "is-active": lambda names: self._is_active(names, quiet=bool(options & {"-q", "--quiet"})),
            "is-enabled": self._is_enabled,
            "is-failed": self._is_failed,
            "status": self._status,
            "show": self._show,
            "reset-failed": self._reset_failed,
        }.get(verb)
        if action is None:
            return Reply(rc=1, err=f"Unknown command verb {verb} (the sandbox's init does not simulate it).\n")
        return action(names)

    def journalctl(self, argv: list[str]) -> Reply:
        words = iter(argv)
        unit, lines = "", 0
        for word in words:
            if word in {"-u", "--unit"}:
                unit = _full(next(words, ""))
            elif word in {"-n", "--lines"}:
                lines = int(next(words, "10"))
        text = self._host.console.journal_of(unit).splitlines(keepends=True)
        return Reply(out="".join(text[-lines:] if lines else text))

    def _load(self, name: str) -> Unit:
        path = self._host.layout.units / name
        if not path.is_file():
            raise FileNotFoundError(name)
        return parse_unit(name, path.read_text(encoding="utf-8"))

    def _service(self, name: str) -> Service:
        with self._lock:
            if name not in self._services:
                self._services[name] = Service(self._load(name), self._host)
            return self._services[name]

    def _timer(self, name: str) -> Timer:
        if name not in self._timers:
            self._timers[name] = Timer(
                self._load(name),
                booted=self._booted,
                speed=self._host.speed,
                timer_speed=self._timer_speed,
                start=lambda service: self._start(service, wait=False),
            )
        return self._timers[name]

    def _start(self, name: str, *, wait: bool) -> bool:
        if name.endswith(".timer"):
            self._timer(name).activate()
            return True
        if name in _BUILT_IN or name.endswith(".target"):
            return True
        return self._service(name).start(wait=wait)

    def _start_and_wait(self, name: str) -> Reply:
        if self._start(name, wait=True):
            return Reply()
        return Reply(
            rc=1,
            err=f"Job for {name} failed because the control process exited with error code.\n"
            f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.\n',
        )

    def _stop(self, name: str) -> Reply:
        if name in self._timers:
            self._timers[name].stop()
        elif name in self._services:
            self._services[name].stop()
        return Reply()

    def _restart(self, name: str) -> Reply:
        self._stop(name)
        return self._start_and_wait(name)

    def _each(self, action: Callable[[str], Reply], names: list[str]) -> Reply:
        replies = [self._guarded(action, name) for name in names]
        worst = max((reply.rc for reply in replies), default=0)
        return Reply(rc=worst, out="".join(reply.out for reply in replies), err="".join(reply.err for reply in replies))

    def _guarded(self, action: Callable[[str], Reply], name: str) -> Reply:
        try:
            return action(name)
        except FileNotFoundError:
            return Reply(rc=5, err=f"Failed to find unit {name}: Unit {name} not found.\n")
        except BadUnitError as problem:
            return Reply(rc=1, err=f"Unit {name} has a bad unit file setting: {problem}\n")

    def _reload(self, _names: list[str]) -> Reply:
        idle = [name for name, service in self._services.items() if service.state in {"inactive", "failed"}]
        for name in idle:
            del self._services[name]
        for name in [name for name, timer in self._timers.items() if not timer.active]:
            del self._timers[name]
        return Reply()

    def _enable(self, names: list[str], *, now: bool) -> Reply:
        linked = self._each(self._link, names)
        if linked.rc or not now:
            return linked
        started = self._each(self._start_and_wait, names)
        return Reply(rc=started.rc, out=linked.out, err=linked.err + started.err)

    def _link(self, name: str) -> Reply:
        if name in _BUILT_IN:
            return Reply()
        said = []
        for target in " ".join(self._load(name).all("Install", "WantedBy")).split():
            link = self._host.layout.units / f"{target}.wants" / name
            link.parent.mkdir(exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(self._host.layout.units / name)
                said.append(f"Created symlink /etc/systemd/system/{target}.wants/{name}.\n")
        return Reply(err="".join(said))

    def _disable(self, names: list[str], *, now: bool) -> Reply:
        for name in names:
            for link in self._host.layout.units.glob(f"*.wants/{name}"):
                link.unlink()
        return self._each(self._stop, names) if now else Reply()

    def _state(self, name: str) -> str:
        if name in self._timers:
            return "active" if self._timers[name].active else "inactive"
        if name in self._services:
            return self._services[name].state
        return "active" if name in _BUILT_IN else "inactive"

    def _is_active(self, names: list[str], *, quiet: bool = False) -> Reply:
        states = [self._state(name) for name in names]
        active = any(state == "active" for state in states)
        return Reply(rc=0 if active else _NOT_ACTIVE, out="" if quiet else "".join(f"{s}\n" for s in states))

    def _is_failed(self, names: list[str]) -> Reply:
        states = [self._state(name) for name in names]
        return Reply(rc=0 if "failed" in states else 1, out="".join(f"{state}\n" for state in states))

    def _is_enabled(self, names: list[str]) -> Reply:
        linked = [any(self._host.layout.units.glob(f"*.wants/{name}")) or name in _BUILT_IN for name in names]
        return Reply(rc=0 if all(linked) else 1, out="".join("enabled\n" if yes else "disabled\n" for yes in linked))

    def _status(self, names: list[str]) -> Reply:
        shown = "".join(f"* {name}\n     Active: {self._state(name)}\n" for name in names)
        known = all(name in self._services or name in self._timers or name in _BUILT_IN for name in names)
        active = all(self._state(name) == "active" for name in names)
        return Reply(rc=(0 if active else _NOT_ACTIVE) if known else _NO_SUCH_UNIT, out=shown)

    def _show(self, names: list[str]) -> Reply:
        lines = []
        for name in names:
            service = self._services.get(name)
            lines.append(f"Id={name}\nActiveState={self._state(name)}\n")
            if service:
                lines.append(f"Result={service.result}\nMainPID={service.main_pid}\nNRestarts={service.restarts}\n")
                lines.append(f"ExecMainStatus={service.exit_status}\n")
        return Reply(out="".join(lines))

    def _reset_failed(self, names: list[str]) -> Reply:
        for name in names or list(self._services):
            if name in self._services:
                self._services[name].reset_failed()
        return Reply()


def _full(name: str) -> str:
    return name if "." in name else f"{name}.service"
