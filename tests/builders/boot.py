"""Machines that boot real software: systemd, cloud-init and a Docker Engine, each in a container of the tests' engine.

`boot(engine, user_data)` gives a Machine; it is removed when the block ends. If the block fails, the end of the console
and of the journal is printed. With TGI_DEPLOY_TEST_KEEP=1 the machine is kept for inspection with `docker exec`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builders.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builders.docker_engine import DockerEngine

# A boot takes 10 s, on a busy machine several times that.
PATIENCE_S = 240.0
L40S = {"name": "L40S", "count": 1, "memory_mib": 46068, "compute_capability": "8.9"}
METADATA = {"meta-data/instance-id": "i-0123456789abcdef0", "meta-data/placement/region": "us-east-1"}
_KEEP = bool(os.environ.get("TGI_DEPLOY_TEST_KEEP"))
# The engine gives a machine what systemd and a nested engine ask for; `--privileged` would be more than that. A machine
# that may boot may switch itself off without systemd; that ends only its own processes.
_RIGHTS = (
    *("--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_BOOT"),
    *("--security-opt", "seccomp=unconfined"),
    *("--cgroupns", "host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw"),
    *("--tmpfs", "/run", "--tmpfs", "/run/lock"),
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    engine: DockerEngine
    name: str
    folder: Path
    port: int = 8080
    scheme: str = "http"

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command inside and return its output. Raises AssertionError if it fails, unless `check` is off."""
        done = self.engine.attempt("exec", self.name, *command)
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def console(self) -> str:
        """Return the console since the first boot, without colors."""
        done = self.engine.attempt("logs", self.name)
        return _ANSI.sub("", done.stdout + done.stderr)

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", check=False)

    def markers(self) -> list[str]:
        return re.findall(r"\[tgi-deploy\] (\S.*)", self.console())

    def running(self) -> bool:
        return self.engine.docker("inspect", "--format", "{{.State.Running}}", self.name).strip() == "true"

    def check_boot(self) -> None:
        """Check that cloud-init reports success and logged no error or warning."""
        self.until("cloud-init to finish", lambda: bool(self.run("cat", "/run/cloud-init/result.json", check=False)))
        status = json.loads(self.run("cloud-init", "status", "--format", "json", check=False))
        assert (status["status"], status["errors"], status.get("recoverable_errors", {})) == ("done", [], {})
        log = self.run("cat", "/var/log/cloud-init.log")
        assert re.findall(r"^.*(?:WARNING|ERROR|CRITICAL|DEPRECATED).*$", log, re.MULTILINE) == []

    def healthy(self) -> bool:
        return self.engine.attempt("exec", self.name, "curl", "-sfk", "-m", "5", self.url("/health")).returncode == 0

    def url(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def answer(self, path: str) -> Any:
        return json.loads(self.run("curl", "-sfk", "-m", "10", self.url(path)))

    def units(self, state: str) -> list[str]:
        """Return the systemd units in a state, such as "failed"."""
        listed = self.run("systemctl", "list-units", "--plain", "--no-legend", "--all", f"--state={state}")
        return [line.split()[0] for line in listed.splitlines()]

    def show(self, unit: str, key: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={key}", unit).strip()

    def place(self, path: str, text: str) -> None:
        """Write a file of the simulated services (`metadata/…`, `parameters/…`) atomically."""
        _write(self.folder / "fakes" / path, text)

    def reboot(self) -> None:
        self.engine.docker("restart", "--time", "60", self.name, timeout_s=PATIENCE_S)

    def until(self, what: str, condition: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        eventually(condition, what, within_s=patience_s, pause_s=0.5)

    def report(self) -> str:
        tail = "\n".join(self.console().splitlines()[-60:])
        return f"--- console of {self.name}\n{tail}\n--- journal\n" + "\n".join(self.journal().splitlines()[-80:])


@contextmanager
def boot(
    engine: DockerEngine,
    user_data: str,
    *,
    gpus: int = 1,
    nvme: bool = False,
    with_images: bool = True,
    with_toolkit: bool = True,
    fakes: dict[str, str] | None = None,
) -> Iterator[Machine]:
    """A machine that boots with the user data. `fakes` overrides files of /etc/fakes: text by path. With `with_images`
    it already has the engine's images; with `with_toolkit` Docker supports GPUs.
    """
    name = f"machine-{secrets.token_hex(4)}"
    folder = engine.home / "machines" / name
    _furnish(folder, user_data, {"accelerators.json": json.dumps({**L40S, "count": gpus}), **(fakes or {})})
    if with_images:
        _copy_store(engine.machine_store, folder / "docker")
    machine = Machine(engine=engine, name=name, folder=folder)
    went_well = False
    try:
        engine.docker("run", *_options(machine, nvme=nvme, with_toolkit=with_toolkit), engine.machine_image)
        yield machine
        went_well = True
    finally:
        if not went_well:
            sys.stdout.write(machine.report())
        if not _KEEP:
            engine.attempt("rm", "--force", "--volumes", name)
            shutil.rmtree(folder)


def _options(machine: Machine, *, nvme: bool, with_toolkit: bool) -> list[str]:
    folder = machine.folder
    mounts = (
        (folder / "docker", "/var/lib/docker"),
        (folder / "fakes", "/etc/fakes"),
        (folder / "seed", "/var/lib/cloud/seed/nocloud"),
    )
    volumes = [word for source, target in mounts for word in ("--volume", f"{source}:{target}")]
    if nvme:
        volumes += ["--tmpfs", "/opt/dlami/nvme"]
    if not with_toolkit:
        # Not an executable: Docker searches its PATH for one.
        volumes += ["--volume", "/dev/null:/usr/bin/nvidia-container-runtime-hook:ro"]
    return ["--detach", "--tty", "--name", machine.name, "--hostname", "box", *_RIGHTS, *volumes]


def _furnish(folder: Path, user_data: str, fakes: dict[str, str]) -> None:
    _write(folder / "seed" / "user-data", user_data)
    _write(folder / "seed" / "meta-data", "instance-id: i-0123456789abcdef0\nlocal-hostname: box\n")
    metadata = {f"metadata/{path}": text for path, text in METADATA.items()}
    for path, text in (metadata | fakes).items():
        _write(folder / "fakes" / path, text)


def _copy_store(store: Path, copy: Path) -> None:
    """Copy the store of images. The engine changes its databases in place, but no files of layers: those are linked."""
    copy.mkdir()
    for part in store.iterdir():
        how = ["-al"] if part.name in {"overlay2", "vfs"} else ["-a"]
        subprocess.run(["cp", *how, part, copy], check=True)  # noqa: S607 -- keeps whiteouts and extended attributes


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.rename(path)
