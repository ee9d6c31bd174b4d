"""Starts the guest's processes, each in its own group, recorded on disk, with output read line by line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import tgi_deploy
from tgi_deploy.sandbox.processes import end_group, group_exists, signal_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_DRAIN_S = 1.0


class Job:
    """A started process and everything in its group."""

    def __init__(self, process: subprocess.Popen[bytes], line: Callable[[str], None], record: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._line = line
        self._record = record
        self._reader = threading.Thread(target=self._read, name=f"output of {process.pid}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        pipe = self.process.stdout
        if pipe is None:
            return
        with pipe, suppress(ValueError):
            for line in pipe:
                self._line(line.decode("utf-8", "replace").rstrip("\n"))

    def wait(self) -> int:
        """Wait for the main process; return its exit status, or minus the signal that ended it."""
        status = self.process.wait()
        self._reader.join(_DRAIN_S)
        return status

    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int, *, whole_group: bool = True) -> None:
        if whole_group:
            signal_group(self.pid, number)
        elif self.running():
            self.process.send_signal(number)

    def sweep(self) -> None:
        """End the rest of the group after the main process has ended."""
        signal_group(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + _DRAIN_S
        while group_exists(self.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._record.unlink(missing_ok=True)


def stub_words(
    *,
    release: str,
    listen: str,
    hardware: Iterable[str],
    speed: float,
    faults: Iterable[str],
    arguments: Iterable[str],
    more: Iterable[str] = (),
) -> list[str]:
    """Return the stub server's module and its arguments, for `Spawner.start_module`.

    `listen`: HOST:PORT. `hardware` and `more` are further options, `arguments` those of the container's engine.
    """
    return [
        *("tgi_deploy.sandbox.engine", "--environment-from-stdin"),
        *("--version", release, "--listen", listen, *hardware),
        *("--speed", f"{speed:g}", *more),
        *(word for fault in faults for word in ("--fault", fault)),
        *("--", *arguments),
    ]


class Spawner:
    def __init__(self, *, groups: Path, environment: Mapping[str, str], home: Path) -> None:
        self._groups = groups
        self.environment = dict(environment)
        self._home = home
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        self._closed = False

    def start(
        self,
        argv: Sequence[str],
        *,
        line: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
        stdin: IO[bytes] | None = None,
    ) -> Job:
        """Start a program. Raises OSError if that is impossible, or if the machine is going down."""
        with self._lock:
            if self._closed:
                raise OSError("the machine is going down")
            process = subprocess.Popen(  # noqa: S603 -- running what the user data says is the point
                list(argv),
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**self.environment} if environment is None else dict(environment),
                cwd=self._home,
                start_new_session=True,
            )
            record = self._groups / str(process.pid)
            record.touch()
            job = Job(process, line, record)
            self._jobs = [known for known in self._jobs if known.running()] + [job]
        return job

    def start_module(
        self,
        words: Sequence[str],
        *,
        variables: Mapping[str, str],
        line: Callable[[str], None],
        environment: Mapping[str, str],
    ) -> Job:
        """Start a module of this package in place of a container's program, with the container's variables as input.

        They are data, which must not influence the interpreter, so its `environment` is another one. It runs with -P
        and -s instead of -I because it needs PYTHONPATH if the package is not installed. Raises OSError.
        """
        package, home = str(Path(tgi_deploy.__file__).resolve().parent.parent), self.environment["HOME"]
        with TemporaryFile(dir=home) as given:
            given.write(json.dumps(dict(variables)).encode())
            given.seek(0)
            argv = [sys.executable, "-P", "-s", "-m", *words]
            own = {"PYTHONPATH": package, "HOME": home, **environment}
            return self.start(argv, line=line, environment=own, stdin=given)

    def run(self, argv: Sequence[str], *, line: Callable[[str], None]) -> int:
        """Start, wait, sweep. Return the exit status; 127 for a program that can't be started."""
        try:
            job = self.start(argv, line=line)
        except OSError as problem:
            line(f"{argv[0]}: {problem.strerror or problem}")
            return 127
        status = job.wait()
        job.sweep()
        return status

    def end_all(self, *, grace_s: float) -> None:
        with self._lock:
            self._closed = True
            jobs = [job for job in self._jobs if group_exists(job.pid)]
        for job in jobs:
            job.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while any(job.running() for job in jobs) and time.monotonic() < deadline:
            time.sleep(0.02)
        for job in jobs:
            end_group(job.pid, grace_s=0)
            job.process.wait()
            job.sweep()
