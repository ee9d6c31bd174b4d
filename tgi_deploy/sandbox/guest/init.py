"""The machine's init: unit files (a subset of systemd's), services, timers, and the verbs of systemctl."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.guest.machine import System
    from tgi_deploy.sandbox.guest.server import Client
    from tgi_deploy.sandbox.guest.spawn import Job

    Unit = configparser.ConfigParser

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIXES: Final = "-@:+!"


class BadUnitError(ValueError):
    """A unit file, duration or command line that systemd would reject (or that is unsupported)."""


def parse_unit(name: str, text: str) -> Unit:
    """Return the unit's sections. Of a repeated setting the last one counts, which differs from systemd."""
    unit = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    setattr(unit, "optionxform", str)  # noqa: B010 -- names of settings have capitals; a method is no variable to mypy
    unit.read_dict({"Unit": {}, "Service": {}, "Timer": {}, "Install": {}})
    try:
        unit.read_string(text)
    except configparser.Error as problem:
        raise BadUnitError(f"{name}: not understood: {problem}") from problem
    return unit


def parse_span(text: str) -> float:
    """Parse `5min 20s` into seconds; `infinity` is infinite. Raises BadUnitError."""
    if text.strip() == "infinity":
        return float("inf")
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip() or any(unit not in _SECONDS for _, unit in parts):
        raise BadUnitError(f"not a time span: {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_command(text: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Parse an `Exec…=` value: a prefix, `$NAME` and `${NAME}`, `$$` for a dollar."""
    try:
        words = shlex.split(text.strip().lstrip(_PREFIXES))
    except ValueError as problem:
        raise BadUnitError(f"unbalanced quotes: {text}") from problem
    if not words:
        raise BadUnitError("empty command")
    known = defaultdict(str, environment)
    return tuple(Template(word).safe_substitute(known) for word in words)


_CLEAN: Final = {0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE}
_EXEC_FAILED: Final = 203


class Service:
    """A service. `_settled`: it is up, or will not be; `_ended`: it does not run and will not restart."""

    def __init__(self, name: str, unit: Unit, host: System) -> None:
        self._name, self._host = name, host
        self._settings, self._about = unit["Service"], unit["Unit"]
        self._failed = False
        self._job: Job | None = None
        self._stop_wanted, self._settled, self._ended = (threading.Event() for _ in range(3))
        self._ended.set()
        self._starts: list[float] = []
        self._lock = threading.Lock()

    def start(self, *, wait: bool = True) -> bool:
        """Start unless it runs; wait until it is up, or if it is a oneshot, done. Return False on failure."""
        with self._lock:
            if self._ended.is_set():
                for event in (self._stop_wanted, self._settled, self._ended):
                    event.clear()
                self._failed = False
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        if wait:
            self._settled.wait()
        return not self._failed

    def stop(self, *, by_command: bool = False) -> None:
        """Run ExecStop, then send SIGTERM, and after TimeoutStopSec SIGKILL. `by_command`: only with an ExecStop."""
        if by_command and "ExecStop" not in self._settings:
            return
        self._stop_wanted.set()
        job = self._job
        if job is not None and job.running():
            if "ExecStop" in self._settings:
                argv = parse_command(self._settings["ExecStop"], self._host.spawner.environment)
                self._host.spawner.run(argv, line=lambda line: self._write(argv[0], line))
            job.signal(signal.SIGTERM)
            if not self._ended.wait(max(0.5, self._span("TimeoutStopSec", "90s"))):
                self._log("State 'stop-sigterm' timed out. Killing.")
                job.signal(signal.SIGKILL)
        self._ended.wait(90.0)

    def _run(self) -> None:
        try:
            while self._once():
                pass
        except BadUnitError as problem:
            self._log(str(problem))
            self._fail("bad-setting")
        finally:
            self._settled.set()
            self._ended.set()

    def _once(self) -> bool:
        """Run the service once. Return True if it should restart."""
        burst, now = int(self._about.get("StartLimitBurst", "5")), time.monotonic()
        interval_s = parse_span(self._about.get("StartLimitIntervalSec", "10s")) / self._host.speed
        self._starts = [*(start for start in self._starts if now - start < interval_s), now]
        if 0 < burst < len(self._starts):
            self._log("Start request repeated too quickly.")
            self._fail("start-limit-hit")
            return False
        status = self._life()
        self._job = None
        if self._stop_wanted.is_set() or self._host.down.is_set():
            return False
        clean, policy = status in _CLEAN, self._settings.get("Restart", "no")
        if not clean:
            how = f"code=exited, status={status}" if status >= 0 else f"code=killed, signal={-status}"
            self._log(f"Main process exited, {how}")
        prevented = str(abs(status)) in self._settings.get("RestartPreventExitStatus", "").split()
        if not prevented and (policy == "always" or (policy == "on-failure" and not clean)):
            self._settled.set()
            self._log(f"Scheduled restart job, restart counter is at {len(self._starts)}.")
            return not (self._stop_wanted.wait(self._span("RestartSec", "100ms")) or self._host.down.is_set())
        if clean:
            self._log("Deactivated successfully.", level="info")
        else:
            self._fail("exit-code")
        return False

    def _life(self) -> int:
        """Start the main process and wait for it. Return its status."""
        argv = parse_command(self._settings.get("ExecStart", ""), self._host.spawner.environment)
        try:
            job = self._job = self._host.spawner.start(argv, line=lambda line: self._write(argv[0], line))
        except OSError as problem:
            self._log(f"Failed at step EXEC spawning {argv[0]}: {problem.strerror}")
            return _EXEC_FAILED
        if self._settings.get("Type") != "oneshot":
            self._settled.set()
        self._log(f"Started {self._about.get('Description', self._name)}.", level="info")
        status = job.wait()
        job.sweep()
        return status

    def _span(self, key: str, default: str) -> float:
        return parse_span(self._settings.get(key, default)) / self._host.speed

    def _fail(self, result: str) -> None:
        self._failed = True
        self._log(f"Failed with result '{result}'.")

    def _write(self, program: str, line: str) -> None:
        """Write a line of a program's output, if the unit sends it to the console."""
        if "console" in self._settings.get("StandardOutput", "journal"):
            job = self._job
            self._host.console.program(Path(program).name, job.pid if job else os.getpid(), line)

    def _log(self, text: str, *, level: str = "notice") -> None:
        """Log as systemd, whose level "info" a unit can suppress."""
        if level != "info" or self._settings.get("LogLevelMax", "debug") in {"debug", "info"}:
            self._host.console.program("systemd", 1, text if text.startswith("Started") else f"{self._name}: {text}")


# The shortest real interval of a repeated job, because starting programs is costly.
_LEAST_PAUSE_S: Final = 2.0


class Init:
    """The services, and the timers: when each is due (seconds since 1970), and the interval after that."""

    def __init__(self, host: System) -> None:
        self._host = host
        self._booted = time.time()
        self._services: dict[str, Service] = {}
        self._timers: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def run_timers(self) -> None:
        """Start what is due."""
        for name, (due, pause_s) in tuple(self._timers.items()):
            if time.time() >= due:
                self._timers[name] = time.time() + pause_s, pause_s
                with suppress(OSError, BadUnitError):
                    self._start(name.replace(".timer", ".service"), wait=False)

    def start_enabled(self) -> None:
        for link in sorted(self._host.layout.units.glob("*.wants/*")):
            self._start(link.name, wait=False)

    def stop_all(self) -> None:
        """Stop the services that have a stop command; the machine ends the others."""
        for service in tuple(self._services.values()):
            service.stop(by_command=True)

    def systemctl(self, client: Client) -> int:
        options = {word for word in client.argv if word.startswith("-")}
        verb, *names = [word for word in client.argv if not word.startswith("-")] or [""]
        steps: dict[str, tuple[Callable[[str], object], ...]] = {
            "daemon-reload": (),
            "start": (self._start,),
            "stop": (self._stop,),
            "enable": (self._link, self._start) if "--now" in options else (self._link,),
        }
        if verb not in steps:
            client.err(f"Unknown command verb {verb} (the sandbox's init does not simulate it).\n")
            return 1
        full = [name if "." in name else f"{name}.service" for name in names]
        return max((self._guarded(step, name, client) for step in steps[verb] for name in full), default=0)

    def _guarded(self, step: Callable[[str], object], name: str, client: Client) -> int:
        status, why = 1, f"Job for {name} failed because the control process exited with error code."
        try:
            if step(name) is not False:
                return 0
        except FileNotFoundError:
            status, why = 5, f"Failed to find unit {name}: Unit {name} not found."
        except BadUnitError as problem:
            why = f"Unit {name} has a bad unit file setting: {problem}"
        client.err(f"{why}\n")
        return status

    def _load(self, name: str) -> Unit:
        return parse_unit(name, (self._host.layout.units / name).read_text(encoding="utf-8"))

    def _start(self, name: str, *, wait: bool = True) -> bool:
        if name.endswith(".timer"):
            self._schedule(name)
            return True
        with self._lock:
            if name not in self._services:
                self._services[name] = Service(name, self._load(name), self._host)
        return self._services[name].start(wait=wait)

    def _schedule(self, name: str) -> None:
        """Start a service some time after the boot, and again after each interval.

        The first time runs at the timers' speed, the intervals at the machine's. Raises BadUnitError for an
        unsupported time.
        """
        settings, host = self._load(name)["Timer"], self._host
        if "OnBootSec" not in settings:
            raise BadUnitError("a timer without OnBootSec= is not simulated")
        again_s = parse_span(settings.get("OnUnitActiveSec", "infinity"))
        pause_s = min(again_s / host.clock.speed, max(again_s / host.speed, _LEAST_PAUSE_S))
        self._timers[name] = self._booted + parse_span(settings["OnBootSec"]) / host.clock.speed, pause_s

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
