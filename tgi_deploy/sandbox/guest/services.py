"""A service of the machine's init, started, restarted and abandoned by its unit file."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.sandbox.guest.units import BadUnitError, parse_command, parse_span

if TYPE_CHECKING:
    from tgi_deploy.sandbox.guest.console import Console
    from tgi_deploy.sandbox.guest.layout import Layout
    from tgi_deploy.sandbox.guest.spawn import Job, Spawner
    from tgi_deploy.sandbox.guest.units import Unit

ActiveState = Literal["inactive", "activating", "active", "deactivating", "failed"]

_CLEAN: Final = {0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE}
_EXEC_FAILED: Final = 203
_MIN_STOP_S: Final = 0.5
_ENDS_S: Final = 90.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What a service needs of its machine."""

    layout: Layout
    console: Console
    spawner: Spawner
    speed: float
    down: threading.Event


class Service:
    def __init__(self, name: str, unit: Unit, host: Host) -> None:
        self.state: ActiveState = "inactive"
        self._name = name
        self._settings = unit["Service"]
        self._about = unit["Unit"]
        self._host = host
        self._job: Job | None = None
        self._restarts = 0
        self._stop_wanted = threading.Event()
        self._settled = threading.Event()
        self._ended = threading.Event()
        self._ended.set()
        self._starts: list[float] = []
        self._lock = threading.Lock()

    @property
    def stops_by_command(self) -> bool:
        """Whether it runs and has a command for its end."""
        return "ExecStop" in self._settings and self._job is not None and self._job.running()

    def start(self, *, wait: bool = True) -> bool:
        """Start unless it runs; wait until it is up (a oneshot: done). Return False on failure."""
        with self._lock:
            if self._ended.is_set():
                for event in (self._stop_wanted, self._settled, self._ended):
                    event.clear()
                self.state = "activating"
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        if wait:
            self._settled.wait()
        return self.state != "failed"

    def stop(self) -> None:
        """ExecStop, then SIGTERM, then after TimeoutStopSec SIGKILL."""
        self._stop_wanted.set()
        job = self._job
        if job is not None and job.running():
            self.state = "deactivating"
            if "ExecStop" in self._settings:
                argv = parse_command(self._settings["ExecStop"], self._environment())
                self._host.spawner.run(argv, line=lambda line: self._write(argv[0], line))
            job.signal(signal.SIGTERM)
            if not self._ended.wait(max(_MIN_STOP_S, self._span("TimeoutStopSec", "90s"))):
                self._say(f"{self._name}: State 'stop-sigterm' timed out. Killing.")
                job.signal(signal.SIGKILL)
        self._ended.wait(_ENDS_S)
        if self.state != "failed":
            self.state = "inactive"

    def _run(self) -> None:
        try:
            while self._once():
                self._restarts += 1
        except BadUnitError as problem:
            self._say(f"{self._name}: {problem}")
            self._fail("bad-setting")
        finally:
            self._settled.set()
            self._ended.set()

    def _once(self) -> bool:
        """Run the service once. Return True if it should restart."""
        if self._over_start_limit():
            self._say(f"{self._name}: Start request repeated too quickly.")
            self._fail("start-limit-hit")
            return False
        self.state = "activating"
        status = self._life()
        self._job = None
        return self._after(status)

    def _life(self) -> int:
        environment = self._environment()
        argv = parse_command(self._settings.get("ExecStart", ""), environment)
        try:
            job = self._host.spawner.start(argv, line=lambda line: self._write(argv[0], line), environment=environment)
        except OSError as problem:
            self._say(f"{self._name}: Failed at step EXEC spawning {argv[0]}: {problem.strerror}")
            return _EXEC_FAILED
        self._job = job
        if self._settings.get("Type") != "oneshot":
            self.state = "active"
            self._settled.set()
        self._inform(f"Started {self._about.get('Description', self._name)}.")
        status = job.wait()
        job.sweep()
        return status

    def _after(self, status: int) -> bool:
        if self._stop_wanted.is_set() or self._host.down.is_set():
            self.state = "inactive"
            return False
        clean = status in _CLEAN
        if not clean:
            how = f"code=exited, status={status}" if status >= 0 else f"code=killed, signal={-status}"
            self._say(f"{self._name}: Main process exited, {how}")
        if self._restarts_after(status, clean=clean):
            return self._pause()
        if clean:
            self.state = "inactive"
            self._inform(f"{self._name}: Deactivated successfully.")
        else:
            self._fail("exit-code")
        return False

    def _restarts_after(self, status: int, *, clean: bool) -> bool:
        if str(abs(status)) in self._settings.get("RestartPreventExitStatus", "").split():
            return False
        policy = self._settings.get("Restart", "no")
        return policy == "always" or (policy == "on-failure" and not clean)

    def _pause(self) -> bool:
        self.state = "activating"
        self._settled.set()
        self._say(f"{self._name}: Scheduled restart job, restart counter is at {self._restarts + 1}.")
        if self._stop_wanted.wait(self._span("RestartSec", "100ms")) or self._host.down.is_set():
            self.state = "inactive"
            return False
        return True

    def _over_start_limit(self) -> bool:
        burst = int(self._about.get("StartLimitBurst", "5"))
        interval_s = parse_span(self._about.get("StartLimitIntervalSec", "10s")) / self._host.speed
        now = time.monotonic()
        self._starts = [*(start for start in self._starts if now - start < interval_s), now]
        return 0 < burst < len(self._starts)

    def _span(self, key: str, default: str) -> float:
        return parse_span(self._settings.get(key, default)) / self._host.speed

    def _fail(self, result: str) -> None:
        self.state = "failed"
        self._say(f"{self._name}: Failed with result '{result}'.")

    def _environment(self) -> dict[str, str]:
        pairs = (text.partition("=") for text in shlex.split(self._settings.get("Environment", "")))
        return {**self._host.spawner.environment, **{name: value for name, _, value in pairs}}

    def _write(self, program: str, line: str) -> None:
        """Write a line of a program's output, where the console has it."""
        if "console" in self._settings.get("StandardOutput", "journal"):
            job = self._job
            self._host.console.program(Path(program).name, job.pid if job else os.getpid(), line)

    def _inform(self, text: str) -> None:
        """Log at systemd's level "info", which a unit can suppress."""
        if self._settings.get("LogLevelMax", "debug") in {"debug", "info"}:
            self._say(text)

    def _say(self, text: str) -> None:
        self._host.console.program("systemd", 1, text)
