"""Test the laws of choosing, or compare the search with brute force, on seeded requests.

    scripts/choosing.py                                 5,000 requests against every law
    scripts/choosing.py --brute-force --requests 2000   2,000 against brute force over the whole catalog
    scripts/choosing.py --processes 8 --first 5000      other requests, in eight processes

The exit code is 1 if a law is broken. Every line about a violation begins with its seed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from naive.laws import broken, regret  # noqa: E402 -- found through the path above


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000, help="number of requests (default: 5,000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument("--processes", type=int, default=1, help="number of processes (default: 1)")
    parser.add_argument("--brute-force", action="store_true", help="compare with brute force over the whole catalog")
    parser.add_argument("--service", default="", help="with --brute-force: plan for a service, such as sagemaker")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.requests)
    check = partial(regret, service=options.service) if options.brute_force else broken
    counts = Counter[str]()
    with ProcessPoolExecutor(options.processes) as pool:
        for seed, found in zip(seeds, pool.map(partial(_found, check), seeds, chunksize=8), strict=True):
            counts.update({law for law, _ in found})
            for law, text in found:
                print(f"{seed}: {law}: {text}", flush=True)
    print(f"{len(seeds):,} requests, violations: {dict(counts) or 'none'}")
    return 1 if counts else 0


def _found(check: Callable[[int], Iterator[tuple[str, str]]], seed: int) -> tuple[tuple[str, str], ...]:
    return tuple(check(seed))


if __name__ == "__main__":
    sys.exit(main())
