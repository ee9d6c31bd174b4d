"""A fake machine with simulated time: clocks, reboots, disk, tags, metrics page, spot notice. Real time, the machine's
wall clock and its uptime are independent, as on a machine whose clock jumps.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from builders import plans
from builders.machine import Machine
from builders.waiting import eventually

from tgi_deploy.wiring import render_artifact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUN: Final = "/run/tgi-deploy"
STATE: Final = "/var/lib/tgi-deploy"
BOOT_S: Final = 40
PATIENCE_S: Final = 30
# By the first moment of a boot everything is counted; /bin/date knows moments that are named.
_DATE = 'if [[ "$*" == *-d* ]]; then exec /bin/date "$@"; fi; cat "$NOW"\n'
_CURL = """
case "$*" in
  *api/token*) [[ -s $TAGS.token ]] && echo token ;;
  *tags/instance/tgi-deploy:*) url=${!#}; cat "$TAGS.${url##*tgi-deploy:}" 2>/dev/null ;;
  *spot/instance-action*) cat "$NOTICE" 2>/dev/null ;;
  *127.0.0.1:8080/metrics*) cat "$METRICS" 2>/dev/null ;;
  *) exit 3 ;;
esac
"""


class Clocked:
    """`terms` are the deployable's limits. `inside` is the command that runs its scripts. Pauses take no time."""

    def __init__(
        self, folder: Path, *, inside: tuple[str, ...] = (), commands: dict[str, str] | None = None, **terms: Any
    ) -> None:
        text = re.sub(r"\bpause \d+", "pause 0.01", render_artifact("user-data", plans.deployable(**terms)).text)
        files = {name: folder / name.lower() for name in ("NOW", "TAGS", "METRICS", "NOTICE")}
        folder.mkdir()
        self._files = files
        self.machine = Machine(
            folder=folder / "machine",
            user_data=text,
            commands={"date": _DATE, "curl": _CURL, "systemctl": "", **(commands or {})},
            environment={"TMPDIR": str(folder / f"machine{STATE}"), **{name: str(at) for name, at in files.items()}},
            inside=inside,
        )
        self.now: int | None = None
        self.skew_s = 0
        self.uptime_s = BOOT_S

    def tag(self, **texts: str) -> None:
        """Answer with these tags from now on; those without a text cannot be read. `lease_until` is `lease-until`."""
        for name, text in {"token": "token", **texts}.items():
            self._files["TAGS"].with_suffix(f".{name.replace('_', '-')}").write_text(text)

    def metrics(self, text: str | None) -> None:
        if text is None:
            self._files["METRICS"].unlink(missing_ok=True)
        else:
            self._files["METRICS"].write_text(text)

    def requests(self, count: int) -> None:
        """Serve a metrics page of the same length as the engine's."""
        help_lines = "".join(f"# HELP metric_{number:02} {'x' * 8000}\n" for number in range(10))
        self.metrics(f"{help_lines}tgi_request_count {count}\ntgi_request_success {count}\n")

    def notice(self, text: str) -> None:
        self._files["NOTICE"].write_text(text)

    def state(self, name: str) -> Path:
        return self.machine.at(f"{STATE}/{name}")

    def reboot(self, *, down_s: int = BOOT_S) -> None:
        """Turn the machine off for `down_s`, then boot it: memory is empty, uptime and engine counters restart."""
        shutil.rmtree(self.machine.at(RUN), ignore_errors=True)
        assert self.now is not None
        self.now += down_s + BOOT_S
        self.uptime_s = BOOT_S

    def at(self, now: int) -> str:
        """Advance time to `now`, poll, and return the output."""
        self.show(now)
        done = self.machine.run("expire")
        for word in ("unbound", "syntax", "command not found"):
            assert word not in done.stderr
        return done.stdout

    def show(self, now: int) -> None:
        """Advance time to `now`."""
        self.uptime_s += 0 if self.now is None else now - self.now
        self.now = now
        for path, text in (
            (self._files["NOW"], f"{now + self.skew_s}\n"),
            (self.machine.at("/proc/uptime"), f"{self.uptime_s}.37 1.00\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").replace(path)

    def over(self, now: int) -> bool:
        """Return whether a poll at that moment terminates the machine."""
        before = len(self.machine.calls("shutdown"))
        result = self.at(now)
        ended = len(self.machine.calls("shutdown")) > before
        assert ended == ("phase=expired" in result)
        return ended

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Run the watch that polls in addition to the timer."""
        with subprocess.Popen(
            self.machine.command("expire", "watch"),
            env=self.machine.surroundings(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        ) as watch:
            try:
                yield
            finally:
                os.killpg(watch.pid, signal.SIGKILL)

    def until(self, condition: Callable[[], object]) -> None:
        eventually(condition, within_s=PATIENCE_S, pause_s=0.01)

    def until_looked(self) -> None:
        """Wait for a poll that starts after now to finish."""
        age = self.state("age")
        for _ in range(2):
            age.unlink(missing_ok=True)
            self.until(age.exists)


class Mounts:
    """A private mount namespace, whose mounts no other process sees."""

    def __init__(self, inside: tuple[str, ...]) -> None:
        self.inside = inside

    def run(self, *command: str) -> None:
        subprocess.run([*self.inside, *command], check=True, capture_output=True)

    def small_disk(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))

    def fill(self, folder: Path) -> None:
        """Fill the disk completely."""
        filler = 'while printf "%4096s" x >>"$0/filler"; do :; done 2>/dev/null; ! printf "%8192s" x >"$0/more"'
        self.run("bash", "-c", filler, str(folder))

    def make_read_only(self, folder: Path) -> None:
        self.run("mount", "-o", "remount,ro", str(folder))


def mounts() -> Iterator[Mounts | None]:
    """Yield a namespace, for fixtures; None if this computer does not allow one."""
    unshare, nsenter = shutil.which("unshare"), shutil.which("nsenter")
    apart = [unshare or "", "--user", "--map-root-user", "--mount"]
    if not (unshare and nsenter) or subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        yield None
        return
    with subprocess.Popen([*apart, "sh", "-c", "echo there; exec sleep infinity"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield Mounts((nsenter, "--target", str(holder.pid), "--user", "--mount", "--preserve-credentials", "--"))
        holder.kill()
