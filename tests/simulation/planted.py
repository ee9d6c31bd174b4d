"""Planted bugs (planted.toml), which measure how many bugs the simulator finds.

`python -m simulation.planted NUMBER HISTORIES` runs histories with that bug until one fails.
"""

from __future__ import annotations

import ast
import json
import sys
import time
import tomllib
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

import msgspec

from tgi_deploy.values.base import converted

REPOSITORY = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("planted.toml")


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"group": "class"}):
    """`group` is its class of mistakes."""

    group: str
    module: str
    function: str
    text: str
    bug: str

    @property
    def path(self):
        return REPOSITORY / Path(*self.module.split(".")).with_suffix(".py")


def bugs():
    return converted(tomllib.loads(ROWS.read_text(encoding="utf-8"))["bug"], tuple[Bug, ...])


def planted_source(bug):
    """Return the module's source with the bug. Raises ValueError unless the text occurs exactly once."""
    source = bug.path.read_text(encoding="utf-8")
    if source.count(bug.text) != 1:
        raise ValueError(f"{bug.module}: {source.count(bug.text)} times {bug.text!r}")
    if function_at(source, source.index(bug.text.lstrip("\n"))) != bug.function:
        raise ValueError(f"{bug.module}: {bug.text!r} is not in {bug.function}")
    return source.replace(bug.text, bug.bug)


def function_at(source, index):
    """Return the name of the innermost function around a place in a source."""
    line = source.count("\n", 0, index) + 1
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"


class _Finder(PathFinder):
    """Loads one module from other source."""

    def __init__(self, bug):
        self._bug = bug

    def find_spec(self, name, path=None, target=None):
        if name != self._bug.module:
            return None
        spec = PathFinder.find_spec(name, path, target)
        spec.loader = _Loader(name, spec.origin)
        spec.loader.source = planted_source(self._bug)
        return spec


class _Loader(SourceFileLoader):
    source = ""

    def get_code(self, _fullname):
        return compile(self.source, self.path, "exec")


def plant(bug):
    """Load the module with the bug. It must not be loaded yet."""
    if bug.module in sys.modules:
        raise ValueError(f"{bug.module} is loaded already")
    sys.meta_path.insert(0, _Finder(bug))


def search(histories):
    """Return the first failing seed and the broken invariant, or None."""
    from simulation.history import make  # noqa: PLC0415 -- the bug is planted before the product is imported
    from simulation.run import run  # noqa: PLC0415 -- startup time

    for seed in range(histories):
        broken = run(make(seed)).broken
        if broken:
            return seed, broken
    return None


def main(number, histories):
    plant(bugs()[number])
    began = time.process_time()
    found = search(histories)
    print(json.dumps({"found": found, "seconds": round(time.process_time() - began, 1)}))  # noqa: T201 -- the parent reads it


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
