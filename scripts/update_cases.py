"""Regenerate the expected results of the file cases: `update_cases.py [--check] [NAME ...]`.

A case is a folder with a `case.toml` somewhere under `tests/cases/KIND/`; `outputs(folder)` of
`tests/builders/case_KIND.py` returns the other files of the folder. Review the diff before committing it.
With `--check` nothing is written, and the exit code is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
INPUT: Final = "case.toml"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only cases whose path contains one of these")
    parser.add_argument("--check", action="store_true", help="write nothing, print what is out of date")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    sys.path[:0] = [str(ROOT), str(options.tests)]
    changed = [
        path
        for folder, wanted in cases(options.tests, options.names)
        for path in stale_files(folder, wanted, write=not options.check)
    ]
    for path in changed:
        print(path.relative_to(options.tests))
    return 1 if changed and options.check else 0


def cases(tests: Path, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield each case folder with its expected files. Kinds without such a module are skipped."""
    for kind in sorted(path.name for path in (tests / "cases").iterdir() if path.is_dir()):
        if not (tests / "builders" / f"case_{kind}.py").exists():
            continue
        walker = importlib.import_module(f"builders.case_{kind}")
        for case in sorted((tests / "cases" / kind).rglob(INPUT)):
            if not names or any(name in str(case.parent) for name in names):
                yield case.parent, walker.outputs(case.parent)


def stale_files(folder: Path, wanted: Mapping[str, str], *, write: bool) -> Iterator[Path]:
    """Return the files that differ, are missing, or are not expected."""
    present = {path.name for path in folder.iterdir() if path.is_file()} - {INPUT}
    for name in sorted(present | set(wanted)):
        path = folder / name
        if name not in wanted:
            if write:
                path.unlink()
        elif name in present and path.read_bytes() == wanted[name].encode():
            continue
        elif write:
            path.write_bytes(wanted[name].encode())
        yield path


if __name__ == "__main__":
    sys.exit(main())
