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

from tgi_deploy.sandbox.guest.units import BadUnitError, CommandLine, Unit, parse_command, parse_environment, parse_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.guest.console import Console
    from tgi_deploy.sandbox.guest.layout import Layout
    from tgi_deploy.sandbox.guest.spawn import Job, Spawner

ActiveState = Literal["inactive", "activating", "active", "deactivating", "failed"]

_CLEAN_SIGNALS: Final = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE}
_EXEC_FAILED: Final = 203
_DEFAULT_BURST: Final = 5
_DEFAULT_INTERVAL_S: Final = 10.0
_DEFAULT_STOP_S: Final = 90.0
_DEFAULT_RESTART_S: Final = 0.1
_MIN_STOP_S: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What a service needs of its machine."""

    layout: Layout
    console: Console
    spawner: Spawner
    speed: float
    down: threading.Event


class Service:
    def __init__(self, unit: Unit, host: Host) -> None:
        self.unit = unit
        self.state: ActiveState = "inactive"
        self.result = "success"
        self.exit_status = 0
        self.restarts = 0
        self._host = host
        self._job: Job | None = None
        self._stop_wanted = threading.Event()
        self._settled = threading.Event()
        self._ended = threading.Event()
        self._ended.set()
        self._starts: list[float] = []
        self._lock = threading.Lock()

    @property
    def main_pid(self) -> int:
        job = self._job
        return job.pid if job and job.running() else 0

    @property
    def _kind(self) -> str:
        return self.unit.one("Service", "Type", "simple")

    def start(self, *, wait: bool = True) -> bool:
        """Start unless it runs; wait until it is up (a oneshot: done). Return False on failure."""
        with self._lock:
            if self._ended.is_set():
                self._stop_wanted.clear()
                self._settled.clear()
                self._ended.clear()
                self.state = "activating"
                threading.Thread(target=self._run, name=self.unit.name, daemon=True).start()
        if wait:
            self._settled.wait()
        return self.state != "failed"

    def stop(self) -> None:
        """ExecStop, then SIGTERM, then after TimeoutStopSec SIGKILL."""
        self._stop_wanted.set()
        job = self._job
        if job is not None and job.running():
            self.state = "deactivating"
            self._commands("ExecStop", {"MAINPID": str(job.pid)})
            job.signal(signal.SIGTERM)
            if not self._ended.wait(self._stop_timeout_s()):
                self._say(f"{self.unit.name}: State 'stop-sigterm' timed out. Killing.")
                job.signal(signal.SIGKILL)
        self._ended.wait(_DEFAULT_STOP_S)
        if self.state != "failed":
            self.state = "inactive"

    def reset_failed(self) -> None:
        self._starts.clear()
        if self.state == "failed":
            self.state, self.result = "inactive", "success"

    def _run(self) -> None:
        try:
            while self._once():
                self.restarts += 1
        except BadUnitError as problem:
            self._say(f"{self.unit.name}: {problem}")
            self._fail("bad-setting")
        finally:
            self._settled.set()
            self._ended.set()

    def _once(self) -> bool:
        """Run the service once. Return True if it should restart."""
        if self._over_start_limit():
            self._say(f"{self.unit.name}: Start request repeated too quickly.")
            self._fail("start-limit-hit")
            return False
        self.state = "activating"
        status = self._main() if self._commands("ExecStartPre", {}) else 1
        self._job = None
        self.exit_status = abs(status)
        self._commands("ExecStopPost", {})
        return self._after(status)

    def _main(self) -> int:
        commands = self._parsed("ExecStart", {})
        if not commands:
            raise BadUnitError("Service has no ExecStart= setting. Refusing.")
        status = 0
        for command in commands:
            status = self._life(command)
            if status != 0 and not command.ignore_failure:
                return status
        return status

    def _life(self, command: CommandLine) -> int:
        try:
            job = self._spawn(command)
        except OSError as problem:
            self._say(f"{self.unit.name}: Failed at step EXEC spawning {command.argv[0]}: {problem.strerror}")
            return _EXEC_FAILED
        self._job = job
        if self._kind != "oneshot":
            self.state = "active"
            self._settled.set()
        self._inform(f"Started {self.unit.one('Unit', 'Description', self.unit.name)}.")
        status = job.wait()
        job.sweep()
        return status

    def _after(self, status: int) -> bool:
        clean = status == 0 or status in _CLEAN_SIGNALS or status in self.unit.numbers("Service", "SuccessExitStatus")
        if self._stop_wanted.is_set() or self._host.down.is_set():
            self.state = "inactive"
            return False
        if not clean:
            how = f"code=exited, status={status}" if status >= 0 else f"code=killed, signal={-status}"
            self._say(f"{self.unit.name}: Main process exited, {how}")
        if self._restarts_after(status, clean=clean):
            return self._pause()
        return self._finish(clean=clean)

    def _finish(self, *, clean: bool) -> bool:
        if clean:
            remains = self._kind == "oneshot" and self.unit.flag("Service", "RemainAfterExit")
            self.state = "active" if remains else "inactive"
            self._inform(f"{self.unit.name}: Deactivated successfully.")
        else:
            self._fail("exit-code")
        return False

    def _restarts_after(self, status: int, *, clean: bool) -> bool:
        if abs(status) in self.unit.numbers("Service", "RestartPreventExitStatus"):
            return False
        policy = self.unit.one("Service", "Restart", "no")
        return policy == "always" or (policy == "on-failure" and not clean) or (policy == "on-success" and clean)

    def _pause(self) -> bool:
        self.state = "activating"
        self._settled.set()
        pause_s = self._span("RestartSec", _DEFAULT_RESTART_S) / self._host.speed
        self._say(f"{self.unit.name}: Scheduled restart job, restart counter is at {self.restarts + 1}.")
        if self._stop_wanted.wait(pause_s) or self._host.down.is_set():
            self.state = "inactive"
            return False
        return True

    def _over_start_limit(self) -> bool:
        burst = int(self._limit("StartLimitBurst", str(_DEFAULT_BURST)))
        interval_s = parse_span(self._limit("StartLimitIntervalSec", str(_DEFAULT_INTERVAL_S))) / self._host.speed
        now = time.monotonic()
        self._starts = [*(start for start in self._starts if now - start < interval_s), now]
        return 0 < burst < len(self._starts)

    def _limit(self, key: str, default: str) -> str:
        return self.unit.one("Unit", key) or self.unit.one("Service", key) or default

    def _span(self, key: str, default: float) -> float:
        text = self.unit.one("Service", key)
        return parse_span(text) if text else default

    def _stop_timeout_s(self) -> float:
        return max(_MIN_STOP_S, self._span("TimeoutStopSec", _DEFAULT_STOP_S) / self._host.speed)

    def _fail(self, result: str) -> None:
        self.state, self.result = "failed", result
        self._say(f"{self.unit.name}: Failed with result '{result}'.")

    def _commands(self, key: str, extra: dict[str, str]) -> bool:
        """Run the commands of a key in order. Return False if one failed that must not."""
        for command in self._parsed(key, extra):
            environment = {**self._environment(), **extra}
            line = self._writer(command)
            status = self._host.spawner.run(command.argv, line=line, environment=environment)
            if status != 0 and not command.ignore_failure:
                self._say(f"{self.unit.name}: {key} process exited, status={status}")
                return False
        return True

    def _parsed(self, key: str, extra: dict[str, str]) -> tuple[CommandLine, ...]:
        environment = {**self._environment(), **extra}
        lines = self.unit.all("Service", key)
        return tuple(parse_command(text, environment, self.unit.name) for text in lines)

    def _spawn(self, command: CommandLine) -> Job:
        return self._host.spawner.start(
            command.argv, line=self._writer(command), environment=self._environment(), folder=self._folder()
        )

    def _folder(self) -> Path | None:
        folder = self.unit.one("Service", "WorkingDirectory")
        return Path(folder) if folder and os.path.isabs(folder) else None  # noqa: PTH117 -- `~` is not a path here

    def _environment(self) -> dict[str, str]:
        environment = dict(self._host.spawner.environment)
        for text in self.unit.all("Service", "Environment"):
            environment.update(_pair(part) for part in shlex.split(text) if "=" in part)
        for name in self.unit.all("Service", "EnvironmentFile"):
            environment.update(self._environment_file(name))
        return environment

    def _environment_file(self, name: str) -> dict[str, str]:
        try:
            return parse_environment(Path(name.removeprefix("-")).read_text(encoding="utf-8"))
        except OSError as problem:
            if name.startswith("-"):
                return {}
            raise BadUnitError(f"Failed to load environment files: {problem.strerror}") from problem

    def _writer(self, command: CommandLine) -> Callable[[str], None]:
        where = self.unit.one("Service", "StandardOutput", "journal")
        identity = self.unit.one("Service", "SyslogIdentifier") or Path(command.argv[0]).name

        def write(line: str) -> None:
            self._host.console.journal(self.unit.name, line)
            if "console" in where or where == "tty":
                self._host.console.program(identity, self.main_pid or os.getpid(), line)

        return write if where != "null" else lambda _line: None

    def _inform(self, text: str) -> None:
        """Log at systemd's level "info", which a unit can suppress."""
        if self.unit.one("Service", "LogLevelMax", "debug") in {"debug", "info"}:
            self._say(text)

    def _say(self, text: str) -> None:
        self._host.console.journal(self.unit.name, text)
        self._host.console.program("systemd", 1, text)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value
