#!/usr/bin/env python3
"""Run the simulator (tests/simulation/run.py): many histories, a single one, or those that planted bugs break.

scripts/simulate.py histories [--first 0] [--count 20000]     run histories; shrink and print the first that fails
scripts/simulate.py show SEED|FILE                            run one history and print what happened
scripts/simulate.py planted [--count 1000] [--only N ...]     which planted bugs are found, and after how many histories
scripts/simulate.py matrix [--sample 6] [--only N ...]        which of them a sample of the kill matrix finds
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[1]
PATHS = (str(REPOSITORY), str(REPOSITORY / "tests"))
sys.path[:0] = PATHS
CHUNK = 50


def failing(seeds: range) -> list[tuple[int, str]]:
    """Return the seeds whose histories fail, with the first invariant that each breaks."""
    from simulation.history import make  # noqa: PLC0415 -- `planted` must not load the product
    from simulation.run import run  # noqa: PLC0415 -- startup time

    def broken(seed: int) -> list[tuple[str, str]]:
        try:
            found: list[tuple[str, str]] = run(make(seed)).broken
        except Exception as error:
            error.add_note(f"history {seed}: the simulator itself failed")
            raise
        return found

    found = ((seed, broken(seed)) for seed in seeds)
    return [(seed, names[0][0]) for seed, names in found if names]


def histories(first: int, count: int, workers: int) -> int:
    """Run them; return 1 if one fails."""
    began, failed = time.monotonic(), list[tuple[int, str]]()
    chunks = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(failing, chunks):
            failed.extend(found)
    took_s = time.monotonic() - began
    print(f"{count} histories in {took_s:.0f} s ({count / took_s:.0f} a second): {len(failed)} fail")
    if failed:
        print(f"seeds: {failed[:20]}")
        print_shrunk(*failed[0])
    return 1 if failed else 0


def print_shrunk(seed: int, broken: str) -> None:
    """Print the shrunk history of a failing one: a file for tests/cases/simulation."""
    from simulation.history import as_json, make  # noqa: PLC0415 -- startup time
    from simulation.shrink import shrink  # noqa: PLC0415 -- startup time

    print(as_json(shrink(make(seed), broken)), end="")


def show(what: str) -> int:
    """Run one history; return 1 if it fails."""
    from simulation.history import as_json, from_json, make  # noqa: PLC0415 -- startup time
    from simulation.run import run  # noqa: PLC0415 -- startup time

    history = make(int(what)) if what.isdigit() else from_json(Path(what).read_text(encoding="utf-8"))
    report = run(history)
    print(as_json(history), *report.log, *(f"{name}: {text}" for name, text in report.broken), sep="\n")
    return 1 if report.broken else 0


def search(count: int, number: int) -> str | None:
    """Run histories with one planted bug in a separate process; return the first seed that fails, and how."""
    done = subprocess.run(  # noqa: S603 -- this interpreter
        [sys.executable, "-m", "simulation.planted", str(number), str(count)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
    )
    found: tuple[int, list[list[str]]] | None = json.loads(done.stdout)["found"]
    return found and f"history {found[0]}: {', '.join(name for name, _ in found[1])}"


def kill(points: int, operations: str, number: int) -> str | None:
    """Run a sample of the kill matrix on a copy with one planted bug; return what failed, or None."""
    from simulation.planted import bugs, planted_source  # noqa: PLC0415 -- startup time

    bug = bugs()[number]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        for part in ("tgi_deploy", "tests", "scripts", "profiles", "templates"):
            shutil.copytree(REPOSITORY / part, Path(folder, part))
        Path(folder, bug.path.relative_to(REPOSITORY)).write_text(planted_source(bug), encoding="utf-8")
        words = ["matrix", "--operations", operations, "--signals", "KILL", "--sample", str(points), "--jobs", "1"]
        done = subprocess.run(  # noqa: S603 -- this interpreter
            [sys.executable, "scripts/chaos.py", *words], cwd=folder, capture_output=True, text=True, check=False
        )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if not failed and done.returncode:
        return f"breaks off: {done.stderr.strip().splitlines()[-1]}"
    return f"{len(failed)} failures" if failed else None


def planted(find: Callable[[int], str | None], workers: int, only: list[int]) -> int:
    """Print which bugs are found; return 1 if one is not."""
    from simulation.planted import bugs  # noqa: PLC0415 -- startup time

    rows = bugs()
    numbers = only or list(range(len(rows)))
    missed = Counter[str]()
    with ThreadPoolExecutor(workers) as pool:
        for number, found in zip(numbers, pool.map(find, numbers), strict=True):
            bug = rows[number]
            what = found or "NOT FOUND"
            print(f"{number:3} {bug.group:20} {bug.module.rpartition('.')[2]}.{bug.function:22} {what}", flush=True)
            missed[bug.group] += found is None
    print(f"{len(numbers) - missed.total()} of {len(numbers)} found")
    return 1 if missed.total() else 0


def main() -> int:
    """Run the subcommand of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("histories")
    many.add_argument("--first", type=int, default=0)
    many.add_argument("--count", type=int, default=20_000)
    commands.add_parser("show").add_argument("what")
    bugs = commands.add_parser("planted")
    bugs.add_argument("--count", type=int, default=1000)
    bugs.add_argument("--only", type=int, nargs="*", default=[])
    killed = commands.add_parser("matrix")
    killed.add_argument("--sample", type=int, default=6)
    killed.add_argument("--operations", default="up")
    killed.add_argument("--only", type=int, nargs="*", default=[])
    asked = parser.parse_args()
    if asked.command == "histories":
        return histories(asked.first, asked.count, asked.workers)
    if asked.command == "show":
        return show(asked.what)
    if asked.command == "matrix":
        return planted(partial(kill, asked.sample, asked.operations), asked.workers, asked.only)
    return planted(partial(search, asked.count), asked.workers, asked.only)


if __name__ == "__main__":
    sys.exit(main())
