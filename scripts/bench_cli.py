"""Measure the startup and planning time of the command line, compared within one run.

Absolute times depend more on the machine than on the tool, so each command is compared with a bare
`python -c "import click"` (or with another command), all of them interleaved. The fastest round of each counts, because
other load can only make it slower. Modules are compiled first, as pip does when it installs them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCRIPT: Final = Path(sys.executable).with_name("tgi-deploy")
_TOOL: Final = (str(_SCRIPT),) if _SCRIPT.is_file() else (sys.executable, "-m", "tgi_deploy")
_PLAN: Final = (*_TOOL, "plan", "llama3-13b", "--budget", "5")
_COMMANDS: Final = {
    "import click": (sys.executable, "-c", "import click"),
    "--help": (*_TOOL, "--help"),
    "plan": _PLAN,
    "plan, one region": (*_PLAN, "--region", "us-east-1"),
    "plan, everywhere": (*_PLAN, "--region", "all", "--market", "any"),
}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much longer `command` may take than `base`: as a factor, or in seconds."""

    command: str
    base: str
    times: float | None = None
    more_s: float = 0.0

    def check(self, fastest: dict[str, float]) -> Check:
        seconds, base_s = fastest[self.command], fastest[self.base]
        if self.times is None:
            more_s = seconds - base_s
            return Check(ok=more_s <= self.more_s, found=f"+{more_s:.2f} s (at most +{self.more_s} s)")
        ratio = seconds / base_s
        return Check(ok=ratio <= self.times, found=f"{ratio:.2f} x (at most {self.times} x)")


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of checking a limit."""

    ok: bool
    found: str


LIMITS: Final = (
    Limit(command="--help", base="import click", times=1.5),
    Limit(command="plan", base="import click", times=3.5),
    Limit(command="plan, everywhere", base="plan, one region", more_s=0.3),
)


def measure(rounds: int) -> dict[str, float]:
    """Return each command's fastest time in seconds. All run once per round, so that other load affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    for _ in range(rounds):
        for name, words in _COMMANDS.items():
            times[name].append(_seconds(words))
    return {name: min(found) for name, found in times.items()}


def _seconds(words: Sequence[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603 -- our own fixed commands
    return time.perf_counter() - begin


def _print(fastest: dict[str, float], checks: Sequence[Check]) -> None:
    for name, seconds in fastest.items():
        print(f"{name:<20} {seconds * 1000:8.1f} ms")
    print()
    for limit, check in zip(LIMITS, checks, strict=True):
        print(f"{limit.command:<18} against {limit.base:<18} {check.found}  {'ok' if check.ok else 'TOO SLOW'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="how often each command runs (default 11)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a command exceeds its limit")
    options = parser.parse_args()
    for words in _COMMANDS.values():  # compiles the modules
        _seconds(words)
    fastest = measure(options.rounds)
    checks = [limit.check(fastest) for limit in LIMITS]
    _print(fastest, checks)
    too_slow = not all(check.ok for check in checks)
    return 1 if options.check and too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
