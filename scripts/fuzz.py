"""Feed the program hostile models, hub answers and files, and count the results.

    scripts/fuzz.py                             20,000 inputs of all kinds
    scripts/fuzz.py --inputs 500 --kind header --seed 7

Each kind runs in a separate process. The exit code is 1 if an input ended in `internal_error`, wrote where it must not
or took too long, or if a process needed more than 300 MB; the smallest such input is printed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, seed, settings

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mutations.kinds import SHARES, inputs  # noqa: E402 -- found through the path above

_MOST_MB: Final = 300
_ADDRESSES_BYTES: Final = 4 * 2**30  # so that a reader without bounds ends before the computer does


def main() -> int:
    options = _options()
    if options.within:
        return _try(options.kind, options.inputs, options.seed)
    began, reports = time.monotonic(), []
    for kind in [options.kind] if options.kind else SHARES:
        count = options.inputs if options.kind else round(options.inputs * SHARES[kind] / sum(SHARES.values()))
        reports.append(_in_a_process(kind, count, options.seed))
        print(_line(reports[-1]), flush=True)
    failed = [report["kind"] for report in reports if report["failed"] or report["peak_mb"] > _MOST_MB]
    tried, peak_mb = sum(report["tried"] for report in reports), max(report["peak_mb"] for report in reports)
    slowest_s = max(report["slowest_s"] for report in reports)
    print(
        f"{tried:,} inputs in {time.monotonic() - began:.0f} s, the slowest in {slowest_s:.1f} s, at most {peak_mb} MB"
    )
    codes = sum((Counter(report["codes"]) for report in reports), Counter[str]())
    print(", ".join(f"{code} {count:,}" for code, count in codes.most_common()))
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="number of inputs (default: 20,000)")
    parser.add_argument("--kind", choices=sorted(SHARES), help="only these")
    parser.add_argument("--seed", type=int, default=1, help="of the random inputs (default: 1)")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(kind: str, count: int, number: int) -> dict[str, Any]:
    words = ["--within", "--kind", kind, "--inputs", str(count), "--seed", str(number)]
    done = subprocess.run(  # noqa: S603 -- this very script
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        report = {"tried": 0, "seconds": 0, "slowest_s": 0, "peak_mb": 0, "codes": {}}
    return {**report, "kind": kind, "failed": done.returncode != 0}


def _line(report: dict[str, Any]) -> str:
    return (
        f"{report['kind']:<10} {report['tried']:>6,} in {report['seconds']:>5.0f} s, "
        f"slowest {report['slowest_s']:>4.1f} s, {report['peak_mb']:>3} MB{', FAILED' if report['failed'] else ''}"
    )


def _try(kind: str, count: int, number: int) -> int:
    """In the separate process, print a report as the last line, and raise what an input has raised."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_BYTES, _ADDRESSES_BYTES))
    began, tried = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, inputs(Path(folder)) as known:
        strategy, attempt = known.of(kind)

        @seed(number)
        @settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
        )
        @given(strategy)
        def each(item: object) -> None:
            nonlocal tried
            tried += 1
            attempt(item)

        try:
            each()
        finally:
            trial = known.trial
            report = {"tried": tried, "seconds": time.monotonic() - began, "slowest_s": trial.slowest_s}
            print(json.dumps({**report, "peak_mb": _peak_mb(), "codes": trial.codes}))
    return 0


def _peak_mb() -> int:
    """Return this process's peak memory. `getrusage` would include what its parent had held."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_000_000  # bytes, on macOS
    peak = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak) * 1024 // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
