"""Write the accuracy on public logs (tests/cases/public_logs) into docs/diagnosis.md; `--check` only compares.

Each excerpt has the thread that it is from, and a cause that was written down before the diagnosis read it. Half of the
repositories are for developing the failure patterns, the other half is held out; `half` decides by the name alone.
The folders `first`, `second` and `third` were collected on different days.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from generated import with_lines, write_or_check

from tgi_deploy import wiring
from tgi_deploy.diagnosis.reader import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = _ROOT / "docs" / "diagnosis.md"
_CASES: Final = _ROOT / "tests" / "cases" / "public_logs"
_BEGIN: Final = "<!-- public logs: written by scripts/public_logs.py -->\n"
_END: Final = "<!-- end of public logs -->\n"
HALVES: Final = ("held out", "working")
COLLECTIONS: Final = ("first", "second", "third")
_CLEAN: Final = "none"
_HEAD: Final = (
    "| place | half | repositories | with a cause | right first | right if found | silent | clean | false alarms |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicLog:
    """An excerpt of a public thread. Each of `causes` is right; none for a clean log. `found` is the first finding."""

    collection: str
    place: str
    source: str
    causes: tuple[str, ...]
    found: str | None

    @property
    def repository(self) -> str:
        return self.source.partition("#")[0].lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """How many of some logs have a cause, and how many of them the diagnosis finds."""

    repositories: int
    failed: int
    right: int
    silent: int
    clean: int
    false_alarms: int

    @property
    def right_of_all(self) -> float:
        return self.right / self.failed if self.failed else 1.0

    @property
    def right_of_spoken(self) -> float:
        return self.right / (self.failed - self.silent) if self.failed > self.silent else 1.0


def half(repository: str) -> str:
    """Return the half of a repository, by the first byte of its name's hash: odd is held out."""
    return HALVES[1 - hashlib.sha256(repository.lower().encode()).digest()[0] % 2]


def public_logs() -> list[PublicLog]:
    """Return every excerpt with today's findings."""
    return [
        _read(path, item)
        for path in sorted(_CASES.glob("*/*.toml"))
        for item in tomllib.loads(path.read_text(encoding="utf-8"))["excerpt"]
    ]


def mine(logs: Iterable[PublicLog], collection: str, name: str) -> list[PublicLog]:
    """Return the logs of one collection in one half."""
    return [item for item in logs if item.collection == collection and half(item.repository) == name]


def _read(path: Path, item: dict[str, str]) -> PublicLog:
    found = read(item["log"], wiring.log_grammar(wiring.engine_of_log(item["log"]))).findings
    causes = () if item["cause"] == _CLEAN else tuple(item["cause"].split(","))
    first = found[0].code if found else None
    return PublicLog(collection=path.parent.name, place=path.stem, source=item["source"], causes=causes, found=first)


def share_of(logs: Iterable[PublicLog]) -> Share:
    every = list(logs)
    failed, clean = [item for item in every if item.causes], [item for item in every if not item.causes]
    return Share(
        repositories=len({item.repository for item in every}),
        failed=len(failed),
        right=sum(item.found in item.causes for item in failed),
        silent=sum(item.found is None for item in failed),
        clean=len(clean),
        false_alarms=sum(item.found is not None for item in clean),
    )


def page() -> str:
    """Return the whole page with the table of today's figures, the worst place first."""
    logs = public_logs()
    rows = [
        _row(f"all, {day} collection", name, share_of(mine(logs, day, name))) for day in COLLECTIONS for name in HALVES
    ]
    for name in HALVES:
        held = [item for item in logs if half(item.repository) == name]
        places = {place: share_of(item for item in held if item.place == place) for place in {i.place for i in held}}
        worst = sorted(places.items(), key=lambda item: (item[1].right_of_all, item[0]))
        rows += [_row(place, name, share) for place, share in worst]
    return with_lines(TARGET.read_text(encoding="utf-8"), (*_HEAD, *rows), begin=_BEGIN, end=_END)


def _row(place: str, name: str, share: Share) -> str:
    right = f"{share.right} ({share.right_of_all:.0%})".replace("%", " %") if share.failed else ""
    spoken = f"{share.right_of_spoken:.0%}".replace("%", " %") if share.failed else ""
    cells = (
        place,
        name,
        share.repositories,
        share.failed,
        right,
        spoken,
        share.silent,
        share.clean,
        share.false_alarms,
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    return write_or_check((__doc__ or "").partition("\n")[0], lambda: {TARGET: page()}, argv)


if __name__ == "__main__":
    sys.exit(main())
