"""Start-up and planning time of the command line, as ratios measured in one run.

Absolute times say more about the machine than about the tool, so each command is compared with a bare
`python -c "import click"` (or with another command), interleaved, and the medians are divided.
"""

from __future__ import annotations

import argparse
import statistics
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """How many times longer `command` may take than `base`."""

    command: str
    base: str
    most: float


LIMITS: Final = (
    Limit(command="--help", base="import click", most=2.5),
    Limit(command="plan", base="import click", most=5.0),
    Limit(command="plan, everywhere", base="plan, one region", most=3.0),
)


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of each command; all run once a round, so that a slow moment slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    for _ in range(rounds):
        for name, words in _COMMANDS.items():
            times[name].append(_seconds(words))
    return {name: statistics.median(found) for name, found in times.items()}


def _seconds(words: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own fixed commands
    return time.perf_counter() - begin


def ratios(medians: dict[str, float]) -> list[tuple[Limit, float]]:
    return [(limit, medians[limit.command] / medians[limit.base]) for limit in LIMITS]


def _print(medians: dict[str, float], found: list[tuple[Limit, float]]) -> None:
    for name, seconds in medians.items():
        print(f"{name:<20} {seconds * 1000:8.1f} ms")
    print()
    for limit, ratio in found:
        verdict = "ok" if ratio <= limit.most else "TOO SLOW"
        print(f"{limit.command:<18} / {limit.base:<18} {ratio:5.2f}  (at most {limit.most})  {verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="how often each command runs (default 11)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is over its limit")
    options = parser.parse_args()
    _seconds(_COMMANDS["plan"])  # the first run compiles what the others find compiled
    medians = measure(options.rounds)
    found = ratios(medians)
    _print(medians, found)
    too_slow = any(ratio > limit.most for limit, ratio in found)
    return 1 if options.check and too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
