"""Kill the real program at each of its calls, or run it with random faults, and count leftovers.

    scripts/chaos.py matrix                          every call with every signal and moment
    scripts/chaos.py matrix --operations update,rollback --signals KILL --sample 20 --seed 7
    scripts/chaos.py storm --runs 300 --seed 1

Exits with 1 if anything was left over, duplicated or ended unexpectedly. Ctrl-C ends it early, with a report so far.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from disruptions import matrix, storm  # noqa: E402 -- found through the path above
from disruptions.checks import Account  # noqa: E402 -- as above
from disruptions.program import Program  # noqa: E402 -- as above
from disruptions.stage import Result, Stage  # noqa: E402 -- as above

# Number of points that share a serving deployment, which takes longer to bring up than a point.
CHAIN: Final = 6

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(kw_only=True)
class Work:
    """The work shared by several threads, each with its own sandbox and warm interpreter."""

    todo: list[Any]
    actor: Callable[[Program, Account], Callable[[Any], Any]]
    done: list[Any] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, home: Path) -> None:
        with Program(home) as program:
            act = self.actor(program, Account(program))
            while (item := self._take()) is not None:
                self._keep(act(item))

    def stop(self) -> None:
        """Finish what has started, and start nothing new."""
        with self.lock:
            self.todo.clear()

    def _take(self) -> Any:  # noqa: ANN401 -- a point or a seed
        with self.lock:
            return self.todo.pop(0) if self.todo else None

    def _keep(self, result: Any) -> None:  # noqa: ANN401 -- a point's result or a run
        with self.lock:
            self.done.append(result)
            for failure in result.failures:
                print(f"FAILED {getattr(result, 'point', None) or f'seed {result.seed}'}: {failure}", flush=True)
            if len(self.done) % 10 == 0:
                print(f"{len(self.done)} done, {len(self.todo)} to go", flush=True)


def work_off(work: Work, jobs: int) -> None:
    """Do all of it. Raises RuntimeError if a thread fails."""

    def guarded(home: Path) -> None:
        try:
            work.run(home)
        except (OSError, RuntimeError, ValueError) as error:
            work.broken.append(f"{type(error).__name__}: {error}")

    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        threads = [threading.Thread(target=guarded, args=(_made(Path(folder) / str(n)),)) for n in range(jobs)]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: threading.Thread(target=work.stop).start())
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if work.broken or work.todo:
        raise RuntimeError(f"{len(work.todo)} were not tried: {work.broken}")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def run_matrix(options: argparse.Namespace) -> int:
    names = tuple(options.operations.split(","))
    with (
        tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder,
        Program(Path(folder)) as one,
    ):
        recorded = Stage(one, Account(one)).record(names)
    found = matrix.points(recorded, tuple(options.signals.split(",")))
    chosen = matrix.sample(found, options.sample, options.seed) if options.sample else found
    work = Work(
        todo=list(chosen[options.skip :]),
        actor=lambda program, account: Stage(program, account, chain=CHAIN).try_point,
    )
    begun = time.monotonic()
    work_off(work, options.jobs)
    return report_matrix(recorded, work.done, time.monotonic() - begun)


def report_matrix(recorded: dict[str, list[str]], results: Sequence[Result], took_s: float) -> int:
    for name, calls in recorded.items():
        mine = [result for result in results if result.point.operation == name]
        struck = Counter(result.point.signal for result in mine if result.struck)
        counts = ", ".join(f"{signal} {struck[signal]}" for signal in sorted(struck))
        failed = sum(bool(result.failures) for result in mine)
        made = len(calls) - calls.count(matrix.WRITE)
        print(f"{name}: {made} calls, {len(mine)} points, struck {counts}; failures: {failed}")
    missed = [str(result.point) for result in results if not result.struck]
    print(f"{len(results)} points in {took_s:.0f} s; not reached, as that run made fewer calls: {len(missed)}")
    for text in missed:
        print(f"  {text}")
    return 1 if any(result.failures for result in results) else 0


def run_storm(options: argparse.Namespace) -> int:
    seeds = [options.seed * 1_000_003 + number for number in range(options.runs)]
    work = Work(todo=seeds, actor=lambda program, account: partial(storm.try_run, program, account))
    begun = time.monotonic()
    work_off(work, options.jobs)
    return report_storm(work.done, time.monotonic() - begun)


def report_storm(runs: Sequence[storm.Run], took_s: float) -> int:
    calls = [run.calls for run in runs]
    failed = [run for run in runs if run.failures]
    weather = ", ".join(f"{name} {share:.0%}" for name, share in storm.WEATHER.items())
    print(f"{len(runs)} runs in {took_s:.0f} s with {weather}")
    print(f"calls a run: min {min(calls)}, median {statistics.median(calls):g}, max {max(calls)}")
    print(f"a machine came up in {sum(run.ready for run in runs)}")
    print(f"commands that had to be repeated: {sum(run.repeated for run in runs)}")
    print(f"runs whose down succeeded only after the storm: {sum(run.calm_needed for run in runs)}")
    print(f"runs with leftovers or duplicates: {len(failed)}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in (("matrix", run_matrix), ("storm", run_storm)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--jobs", type=int, default=2, help="number of sandboxes in parallel")
        if name == "matrix":
            command.add_argument("--signals", default=",".join(matrix.SIGNALS))
            command.add_argument("--sample", type=int, default=0, metavar="K", help="only K points, chosen by the seed")
            command.add_argument("--operations", default=",".join(matrix.OPERATIONS))
            command.add_argument("--skip", type=int, default=0, metavar="N", help="skip the first N points")
        else:
            command.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    result: int = options.run(options)
    return result


if __name__ == "__main__":
    sys.exit(main())
