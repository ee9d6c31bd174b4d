"""Measure the diagnosis's precision and recall on the cases in tests/cases/diagnosis, for each code and in total.

python scripts/diagnosis_accuracy.py [--mutations N] [--seed S] [--verbose]

With `--mutations` each round changes a random case (prefixes, versions, paths, numbers, noise) and diagnoses it again;
the findings must not change. Exits with 1 if a case is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.diagnosis.reader import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tgi_deploy.diagnosis.grammar import LogGrammar

CASES: Final = Path(__file__).resolve().parents[1] / "tests" / "cases" / "diagnosis"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    name: str
    log: str
    codes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The expected and found codes of one log. `right`: the same most likely cause, and no unexpected one."""

    name: str
    expected: tuple[str, ...]
    found: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.found[:1] == self.expected[:1] and set(self.found) <= set(self.expected)


def cases() -> list[Case]:
    """Return every case, sorted by name."""
    return [_case(path.parent) for path in sorted(CASES.glob("*/expected.json"))]


def _case(folder: Path) -> Case:
    log = next(path for path in (folder / "log.txt", folder / "log.jsonl") if path.exists())
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return Case(name=folder.name, log=log.read_text(encoding="utf-8"), codes=tuple(expected["codes"]))


def examine(case: Case, grammar: LogGrammar) -> Outcome:
    """Return the codes found in a case's log."""
    found = tuple(item.code for item in read(case.log, grammar).findings)
    return Outcome(name=case.name, expected=case.codes, found=found)


def mutated(case: Case, random_: random.Random) -> Case:
    """Return the log as another machine would write it, with changes that must not affect the findings."""
    lines = case.log.splitlines()
    for change in random_.sample(_CHANGES, k=random_.randint(1, 3)):
        lines = change(lines, random_)
    return Case(name=case.name, log="\n".join(lines) + "\n", codes=case.codes)


def _prefixed(lines: list[str], random_: random.Random) -> list[str]:
    prefix = random_.choice(_PREFIXES)
    return [prefix.format(line=line, number=f"{at * 0.731 + 12:12.6f}") for at, line in enumerate(lines)]


def _renumbered(lines: list[str], random_: random.Random) -> list[str]:
    """Change sizes in GiB, MiB and megabytes."""
    factor = random_.randint(2, 9)
    return [re.sub(r"\b(\d+)\.(\d\d) (GiB|MiB)", rf"{factor}\1.\2 \3", line) for line in lines]


def _moved(lines: list[str], random_: random.Random) -> list[str]:
    """Change installation paths."""
    root = random_.choice(("/opt/conda", "/usr/src/.venv", "/usr/local"))
    return [line.replace("/opt/conda", root).replace("/usr/src/.venv", root) for line in lines]


def _dated(lines: list[str], random_: random.Random) -> list[str]:
    year = random_.choice(("2024", "2026", "2027"))
    return [re.sub(r"\b202[456]-(\d\d-\d\d[T ])", rf"{year}-\1", line) for line in lines]


def _another_model(lines: list[str], random_: random.Random) -> list[str]:
    name = random_.choice(("mistralai/Mistral-7B-v0.3", "Qwen/Qwen2.5-7B-Instruct", "acme/private.model_v2"))
    return [line.replace("meta-llama/Llama-3.1-8B-Instruct", name) for line in lines]


def _noisy(lines: list[str], random_: random.Random) -> list[str]:
    """Insert lines of other programs between records."""
    starts = [at for at, line in enumerate(lines) if re.search(r"\b(?:INFO|WARN|ERROR)\b", line)]
    noisy = list(lines)
    for at in sorted(random_.sample(starts, k=min(len(starts), 4)), reverse=True):
        noisy.insert(at, random_.choice(_NOISE))
    return noisy


def _uncolored(lines: list[str], _random: random.Random) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def _windows(lines: list[str], _random: random.Random) -> list[str]:
    return [line + "\r" for line in lines]


_PREFIXES: Final = (
    "[{number}] run-engine[1187]: {line}",
    "Nov 21 10:00:00 ip-10-0-0-9 tgi-deploy-engine[912]: {line}",
    "2026-11-21T10:00:00+0000 gpu-3 docker-tgi[77]: {line}",
    "tgi-deploy-engine[123]: {line}",
    "tgi-0  | {line}",
    "2026-11-21T10:00:00.118222333Z {line}",
    "2026-11-21T10:00:00.118222333Z stdout F {line}",
    "[pod/tgi-0/server] {line}",
    "{line}",
)
_NOISE: Final = (
    "Nov 21 10:00:00 host CRON[9021]: pam_unix(cron:session): session opened for user root",
    "[ 1022.118000] systemd[1]: Started Daily apt download activities.",
    '[ 1031.400000] audit: type=1400 apparmor="STATUS" operation="profile_load"',
    "2026-11-21T10:00:00.000001Z  INFO text_generation_launcher: Using prefix caching = True",
    "[ 1040.000001] amazon-ssm-agent[700]: INFO Entering SSM Agent hibernate",
)
_CHANGES: Final[tuple[Callable[[list[str], random.Random], list[str]], ...]] = (
    _prefixed, _renumbered, _moved, _dated, _another_model, _noisy, _uncolored, _windows,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """True positives, false positives and misses of one code, by the most likely cause."""

    hits: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.hits / (self.hits + self.wrong) if self.hits + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else 1.0


def scores(outcomes: Iterable[Outcome]) -> dict[str, Score]:
    """Return the scores by code, and the `total`."""
    hits, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for item in outcomes:
        expected, found = item.expected[:1], item.found[:1]
        hits.update(code for code in found if code in expected)
        wrong.update(code for code in found if code not in expected)
        missed.update(code for code in expected if code not in found)
    names = sorted({*hits, *wrong, *missed})
    table = {name: Score(hits=hits[name], wrong=wrong[name], missed=missed[name]) for name in names}
    return table | {"total": Score(hits=hits.total(), wrong=wrong.total(), missed=missed.total())}


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    grammar = grammar_from(read_phases("tgi"))
    every = cases()
    outcomes = [examine(case, grammar) for case in every]
    clean = [item for item in outcomes if not item.expected]
    print(f"{len(every)} logs, {len(clean)} of them clean; {sum(bool(item.found) for item in clean)} false alarms")
    _print_scores(scores(outcomes))
    wrong = [item for item in outcomes if not item.right]
    if options.mutations:
        wrong += _mutations(every, grammar, options)
    for item in wrong:
        print(f"wrong: {item.name}: expected {list(item.expected)}, found {list(item.found)}")
    return 1 if wrong else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=0, metavar="N", help="also diagnose N mutated logs")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


def _mutations(every: Sequence[Case], grammar: LogGrammar, options: argparse.Namespace) -> list[Outcome]:
    random_ = random.Random(options.seed)  # noqa: S311 -- variety, not secrecy
    outcomes = [examine(mutated(random_.choice(every), random_), grammar) for _ in range(options.mutations)]
    wrong = [item for item in outcomes if not item.right]
    print(f"{len(outcomes)} changed logs (seed {options.seed}): {len(outcomes) - len(wrong)} right")
    return wrong


def _print_scores(table: dict[str, Score]) -> None:
    print(f"{'code':<26} {'logs':>5} {'precision':>10} {'recall':>7}")
    for name, score in table.items():
        print(f"{name:<26} {score.hits + score.missed:>5} {score.precision:>10.3f} {score.recall:>7.3f}")


if __name__ == "__main__":
    sys.exit(main())
