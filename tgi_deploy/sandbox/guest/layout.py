"""A machine's folder on the host, the mapping of the guest's paths into it, its clock and its console.

console.log   the serial console
bin/          the commands of the machine image, first on the PATH
groups/       a file for each started process group, to end it if the machine cannot
root/         the guest's file system, as far as it is mapped
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


NVME_MOUNT: Final = "/opt/dlami/nvme"
# Other paths are the host's, so custom user data should use only these.
MAPPED: Final = (
    "/opt/tgi-deploy", NVME_MOUNT, "/var/lib/tgi-deploy", "/var/lib/cloud", "/var/lib/docker", "/var/log",
    "/run/tgi-deploy", "/run/systemd", "/etc/systemd/system", "/etc/tgi-deploy", "/etc/docker", "/etc/profile.d",
    "/proc/net/dev", "/proc/sysrq-trigger", "/proc/uptime", "/dev/console", "/dev/ttyS0", "/root", "/home", "/mnt",
    "/srv",
)  # fmt: skip
COMMANDS: Final = (
    "aws", "curl", "docker", "mountpoint", "nvidia-smi", "poweroff", "reboot", "shutdown", "systemctl"
)  # fmt: skip
# Right after `=-` too, as in `ExecStop=-/usr/bin/docker …`.
_STARTS_A_PATH: Final = r"(?:(?<![\w./~-])|(?<==-))"
_ENDS_A_PART: Final = r"(?![\w-])"


class FastClock(Frozen, frozen=True, kw_only=True):
    """A machine's clock, also after a reboot: real time at `epoch` (seconds since 1970), then `speed` times as fast."""

    epoch: float
    speed: float

    def at(self, real: float) -> float:
        """Return the guest's time at a real time."""
        return self.epoch + (real - self.epoch) * self.speed

    def text(self, real: float) -> str:
        return datetime.fromtimestamp(self.at(real), UTC).isoformat(timespec="seconds")


def publish(path: Path, text: str) -> None:
    """Write the file atomically."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


class Layout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.console = folder / "console.log"
        self.bin = folder / "bin"
        self.groups = folder / "groups"
        self.units = self.at("/etc/systemd/system")

    def at(self, path: str) -> Path:
        """Return the host path of a guest's absolute path. A path that leaves the root is rejected."""
        mapped = (self.root / path.lstrip("/")).resolve()
        if not mapped.is_relative_to(self.root.resolve()):
            raise ValueError(f"{path} leaves the machine's root")
        return mapped

    def make(self) -> None:
        """Create the folders; in-memory ones are empty after every boot."""
        shutil.rmtree(self.at("/run/tgi-deploy"), ignore_errors=True)
        inside = ("root", "var/lib/cloud/instance", "var/log", "var/lib/docker", "dev", "proc/net", "run/tgi-deploy")
        for folder in (self.bin, self.groups, self.units, *map(self.at, inside)):
            folder.mkdir(parents=True, exist_ok=True)

    def mapped(self, text: str, extra: Iterable[str] = ()) -> str:
        """Return the text with host paths in place of the guest's. `extra`: more of the guest's paths."""
        return map_paths(text, root=str(self.root.resolve()), bin_folder=str(self.bin), extra=extra)


def map_paths(text: str, *, root: str, bin_folder: str, extra: Iterable[str] = ()) -> str:
    """Rewrite a guest's absolute paths in scripts, unit files and commands to host paths."""
    paths = "|".join(map(re.escape, sorted({*MAPPED, *extra}, key=len, reverse=True)))
    commands = f"{_STARTS_A_PATH}(?:/usr)?(?:/local)?/s?bin/({'|'.join(COMMANDS)}){_ENDS_A_PART}"
    text = re.sub(commands, lambda found: f"{bin_folder}/{found[1]}", text)
    return re.sub(f"{_STARTS_A_PATH}({paths}){_ENDS_A_PART}", lambda found: root + found[1], text)


class Console:
    """Appends to the console file. Lines of programs carry the uptime and the program, as journald forwards them."""

    def __init__(self, layout: Layout, *, speed: float) -> None:
        self._file = layout.console.open("a", encoding="utf-8", errors="replace")
        self._lock = threading.Lock()
        self._booted = time.monotonic()
        self._speed = speed

    def uptime_s(self) -> float:
        return (time.monotonic() - self._booted) * self._speed

    def kernel(self, text: str) -> None:
        with self._lock:
            self._file.write(f"[{self.uptime_s():12.6f}] {text}\n")
            self._file.flush()

    def program(self, name: str, pid: int, line: str) -> None:
        self.kernel(f"{name}[{pid}]: {line}")
