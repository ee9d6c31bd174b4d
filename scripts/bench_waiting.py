"""Measure the cost of waiting for an engine: the real command line with a real cloud's delays, in the sandbox.

    python scripts/bench_waiting.py [--seconds 120] [--runs 5]

The sandbox is used like any other endpoint (AWS_ENDPOINT_URL), so `up` polls as often as on EC2. The output has, for a
long phase: CPU time (user and system, from /proc) as a share of one core and for ten minutes of waiting, the peak
memory, and calls per minute; for the end of a wait: the seconds from the engine's first 200, as seen by a watcher that
polls every 20 ms, to the output of `up`, without the proof's own requests. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tgi_deploy.sandbox import api, control
from tgi_deploy.state.local import LocalStore

NAME: Final = "bench"
MODEL: Final = "smollm2-135m"
TEN_MINUTES_S: Final = 600
TARGET_SHARE: Final = 0.01
TARGET_READY_S: Final = 1.0
_SLOW: Final = 10.0
# Slow enough that loading and warm-up are visible phases, as on a GPU.
_QUICK: Final = 20.0
_WATCH_S: Final = 0.02
_GIVE_UP_S: Final = 300.0
# Each keeps `up` in its phase for longer than it is measured.
_LONG: Final = {
    "pulling": {"name": "slow-pull", "pull_mb_per_s": 20},
    "loading": {"name": "engine", "engine": "hang-shard"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Waited:
    """The cost of waiting for `seconds`; `calls` are those to the cloud's API."""

    phase: str
    seconds: float
    cpu_s: float
    memory_mib: float
    calls: int

    @property
    def share(self) -> float:
        return self.cpu_s / self.seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    home: Path
    url: str
    key: str

    @classmethod
    def open(cls, home: Path, *, speed: float) -> Bench:
        info = control.start(home / "sandbox", speed=speed)
        return cls(home=home, url=info.endpoint_url, key=info.access_key)

    def close(self) -> None:
        control.stop(self.home / "sandbox")

    def ask(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 -- JSON of any shape
        return api.control(api.Endpoint(url=self.url, access_key=self.key), method, f"/_sandbox/{path}", document)

    def program(self, *words: str) -> subprocess.Popen[str]:
        keys = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": "loopback"}
        return subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-m", "tgi_deploy", *words, "--json"],
            env={**os.environ, **keys, "AWS_ENDPOINT_URL": self.url, "TGI_DEPLOY_HOME": str(self.home / "records")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def up(self) -> subprocess.Popen[str]:
        return self.program("up", MODEL, "--name", NAME, "--yes")

    def measure(self, phase: str, seconds: float) -> Waited:
        """Measure a wait that is interrupted after this many seconds of `phase`."""
        self.ask("POST", "faults", _LONG[phase])
        with self.up() as program:
            _read_until(program, f"{phase} (about ")
            before, cpu_s = len(self.ask("GET", "calls")["calls"]), _cpu_s(program.pid)
            began = time.monotonic()
            time.sleep(seconds)
            waited = Waited(
                phase=phase,
                seconds=time.monotonic() - began,
                cpu_s=_cpu_s(program.pid) - cpu_s,
                memory_mib=_memory_mib(program.pid),
                calls=len(self.ask("GET", "calls")["calls"]) - before,
            )
            program.send_signal(signal.SIGKILL)
        self.clear()
        return waited

    def clear(self) -> None:
        with self.program("down", NAME, "--yes") as down:
            down.communicate()

    def end_s(self) -> float:
        """Return the seconds from the engine's first 200 to the output of `up`, without its proof."""
        with self.up() as program:
            answered = self._first_answer(program)
            if program.stdout is None:
                raise ValueError("the program's stdout is not read")
            out = program.stdout.readline()
            printed = time.monotonic()
            out += program.stdout.read()
        if program.returncode:
            raise SystemExit(f"up ended with {program.returncode}:\n{out[-2000:]}")
        self.clear()
        steps = json.loads(out)["data"]["proof"]["steps"]
        return printed - answered - sum(float(step["took_ms"]) for step in steps) / 1000

    def _first_answer(self, program: subprocess.Popen[str]) -> float:
        store, deadline = LocalStore(self.home / "records"), time.monotonic() + _GIVE_UP_S
        url = None
        while time.monotonic() < deadline and program.poll() is None:
            recorded = store.load(NAME) if url is None else None
            url = recorded.endpoint if recorded else url
            if url and _answers(url):
                return time.monotonic()
            time.sleep(_WATCH_S)
        raise SystemExit("the engine never answered")


def _read_until(program: subprocess.Popen[str], text: str) -> None:
    if program.stderr is None:
        raise ValueError("the program's stderr is not read")
    lines = []
    for line in program.stderr:
        lines.append(line)
        if text in line:
            return
    raise SystemExit(f"up ended without printing {text!r}:\n{''.join(lines)}{program.communicate()[0]}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310 -- on loopback
            return bool(answer.status == 200)  # noqa: PLR2004 -- OK
    except OSError:
        return False


def _cpu_s(pid: int) -> float:
    """Return the user and system time of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> float:
    """Return the peak resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def table(waits: list[Waited], ends_s: list[float]) -> str:
    lines = ["| figure | measured | of the target |", "|---|---:|---:|"]
    for item in waits:
        ten_s = item.share * TEN_MINUTES_S
        lines += [
            f"| waiting in {item.phase}: share of a core | {item.share:.2%} | x {item.share / TARGET_SHARE:.2f} |",
            f"| the same for 10 minutes, CPU s | {ten_s:.1f} | x {ten_s / (TARGET_SHARE * TEN_MINUTES_S):.2f} |",
            f"| calls to the cloud a minute | {item.calls / item.seconds * 60:.0f} | |",
            f"| largest memory, MiB | {item.memory_mib:.0f} | |",
        ]
    if ends_s:
        middle, worst = statistics.median(ends_s), max(ends_s)
        lines += [
            f"| first 200 to the output of `up`, less its proof, s | {middle:.2f} | x {middle / TARGET_READY_S:.2f} |",
            f"| the longest of {len(ends_s)} | {worst:.2f} | x {worst / TARGET_READY_S:.2f} |",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each long phase")
    parser.add_argument("--runs", type=int, default=5, help="whole starts, for the end of a wait")
    options = parser.parse_args()
    waits, ends_s = [], []
    with tempfile.TemporaryDirectory(prefix="tgi-deploy-bench-") as folder:
        bench = Bench.open(Path(folder) / "slow", speed=_SLOW)
        try:
            waits = [bench.measure(phase, options.seconds) for phase in _LONG]
        finally:
            bench.close()
        bench = Bench.open(Path(folder) / "quick", speed=_QUICK)
        try:
            ends_s = [bench.end_s() for _ in range(options.runs)]
        finally:
            bench.close()
    print(table(waits, ends_s))


if __name__ == "__main__":
    main()
