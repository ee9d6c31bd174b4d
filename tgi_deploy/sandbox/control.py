"""Starting, finding and stopping the sandbox of a home folder. Safe to call from several processes at once."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import tgi_deploy
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.extras import extra_missing, install_command
from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.api import Endpoint
from tgi_deploy.sandbox.cloud import CLUSTER, DEFAULT_SPEED, LOG, RECORD, claim, is_claimed, remove
from tgi_deploy.sandbox.kubernetes import plane
from tgi_deploy.sandbox.processes import end_group, end_recorded_groups, is_alive, processes
from tgi_deploy.values.base import converted

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVER: Final = ("-m", "tgi_deploy.sandbox.cloud")
_CLOUD: Final = "moto"
# A busy computer takes long to load the server. If the server exits, the wait ends at once.
_START_S: Final = 60.0
_STOP_S: Final = 15.0
_POLL_S: Final = 0.05
_OWN_URL: Final = re.compile(r"^http://127\.0\.0\.1:\d{1,5}$", re.ASCII)
# Paths of the home folder are used in machines' shell scripts.
_SAFE_PATH: Final = re.compile(r"^[\w./@+,-]+$", re.ASCII)


class _Server(subprocess.Popen[bytes]):
    """A server that this process started. It outlives the process, which its base class would warn of."""

    def __del__(self) -> None:
        self.poll()


_SERVERS: Final[list[_Server]] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxInfo:
    """A running sandbox. `started` is UTC, ISO 8601; its API accepts `access_key` with any secret.

    `speed`: how many times as fast as in reality things happen.
    """

    endpoint_url: str
    pid: int
    started: str
    speed: float
    access_key: str = field(repr=False)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(url=self.endpoint_url, access_key=self.access_key)


def start(home: Path, *, speed: float = DEFAULT_SPEED, timer_speed: float = 1.0) -> SandboxInfo:
    """Return the running sandbox of this home, starting it if needed; it outlives the caller.

    Raises:
        InputError: the home folder cannot be used, or `extra_missing`.
        DeployError: the server did not answer in time.
    """
    home = _usable(home)
    with _locked(home):
        return _started(home, speed=speed, timer_speed=timer_speed)


def start_cluster(home: Path) -> Path:
    """Return the kubeconfig of this home's Kubernetes cluster, starting it and the sandbox if needed.

    Raises:
        InputError: the home folder cannot be used, or `control_plane_missing`.
        DeployError: a server did not answer in time.
    """
    home = _usable(home)
    with _locked(home):
        _started(home, speed=DEFAULT_SPEED, timer_speed=1.0)
        return plane.start(home / CLUSTER)


def stop(home: Path) -> bool:
    """End the sandbox, its machines and its files. Return False if there was nothing to end."""
    home = home.expanduser().absolute()
    if not is_claimed(home):
        return False
    home = home.resolve()
    with _locked(home):
        if not is_claimed(home):
            return False
        running = status(home)
        plane.stop(home / CLUSTER)
        if running is not None:
            with suppress(api.ApiError, api.NoAnswerError):
                api.control(running.endpoint, "POST", "/_sandbox/shutdown")
                _wait_for_end(running.pid)
        _clean(home)
        return True


def status(home: Path) -> SandboxInfo | None:
    """Return the sandbox of this home if it answers and wrote the record."""
    recorded = _read_record(home.expanduser())
    return recorded if recorded and api.is_our_sandbox(recorded.endpoint) else None


def _usable(home: Path) -> Path:
    resolved = home.expanduser().absolute()
    try:
        resolved = resolved.resolve()
        claim(resolved)
    except OSError as problem:
        raise InputError(
            "state_unusable",
            f"The sandbox cannot keep its files in {home}: {problem.strerror}.",
            hint="Set TGI_DEPLOY_HOME to a folder that only you can write to.",
        ) from problem
    if not _SAFE_PATH.match(str(resolved)):
        raise InputError(
            "state_unusable",
            f"The sandbox's machines run shell scripts below {resolved}, but that name is not safe in a shell.",
            hint="Set TGI_DEPLOY_HOME to a folder named with letters, digits and . _ - only.",
        )
    return resolved


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Lock the home. The lock is on its parent folder, so that no lock file is left behind."""
    descriptor = os.open(home.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_record(home: Path) -> SandboxInfo | None:
    """Read the record if it is the user's own: another account's could redirect calls to its cloud."""
    if not is_claimed(home):
        return None
    try:
        record = converted(msgspec.json.decode((home / RECORD).read_bytes()), SandboxInfo)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if _OWN_URL.match(record.endpoint_url) else None


def _started(home: Path, *, speed: float, timer_speed: float) -> SandboxInfo:
    running = status(home)
    if running is not None:
        return running
    _clean(home)
    if find_spec(_CLOUD) is None:
        raise extra_missing("sandbox", "starting the sandbox", ImportError(name=_CLOUD))
    claim(home)
    own = ("--home", str(home), "--speed", f"{speed:g}", "--timer-speed", f"{timer_speed:g}")
    (home / LOG).touch(mode=0o600)
    with (home / LOG).open("ab") as log:
        server = _Server(
            [sys.executable, *_SERVER, *own],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=Path(tgi_deploy.__file__).resolve().parent.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_", "HF_"))},
            start_new_session=True,
        )
    _SERVERS.append(server)
    return _wait_for_answer(home, server)


def _wait_for_answer(home: Path, server: _Server) -> SandboxInfo:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.poll() is None:
        found = status(home)
        if found is not None:
            return found
        time.sleep(_POLL_S)
    is_slow = server.poll() is None
    server.kill()
    server.wait()
    lines = (home / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    _clean(home)
    raise DeployError(
        "sandbox_not_started",
        f"the sandbox did not start: {lines[-1] if lines else f'no answer within {_START_S:g} s'}",
        hint="this computer may be busy: run the command again"
        if is_slow
        else f"if one of its packages is missing: {install_command('sandbox')}",
    )


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + _STOP_S
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _SERVERS[:] = [server for server in _SERVERS if server.poll() is None]


def _clean(home: Path) -> None:
    """End what is left of a sandbox that no longer answers, and remove its files."""
    _end_processes(f"{_SERVER[-1]} --home {home} ")
    for folder in sorted((home / "machines").glob("*")):
        end_recorded_groups(folder / "groups", marker=str(folder))
    remove(home)


def _end_processes(marker: str) -> None:
    for process in processes():
        if marker in process.command:
            end_group(process.pid, grace_s=1.0)
            _wait_for_end(process.pid)
