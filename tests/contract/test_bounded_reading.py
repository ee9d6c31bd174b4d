"""Only `bounded_files` and `bounded_json` read external data."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from builders.sources import nodes

import tgi_deploy

PACKAGE = Path(tgi_deploy.__file__).parent
READERS = {"bounded_files.py", "bounded_json.py"}
# These read only files that the program has just written, or files of its own package.
OWN = {
    "operations/planning/traffic.py": {".open"},  # line by line, both of a limited size
    "operations/planning/documents.py": {"json.loads"},  # of its own `json.dumps`
    "operations/report/report.py": {".read_text"},  # packaged style sheets
}
WORDS = ("json", "open", "read_")
READING = frozenset({"read_text", "read_bytes"})
WRITING = frozenset("wax")


def unbounded(source):
    """Return every call in `source` that reads a file or parses JSON."""
    for node in nodes(source) if any(word in source for word in WORDS) else ():
        if isinstance(node, ast.ImportFrom) and node.module == "json":
            yield from (f"json.{alias.name}" for alias in node.names if alias.name.startswith("load"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _called(node.func, node.args)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open" and not _writes(node.args[1:]):
            yield "open"


def _called(function, arguments):
    owner = getattr(function.value, "id", "")
    if owner == "json" and function.attr in {"load", "loads", "JSONDecoder"}:
        yield f"json.{function.attr}"
    elif owner != "bounded_files" and function.attr in READING:
        yield f".{function.attr}"
    elif function.attr == "open" and "path" in owner.lower() and not _writes(arguments):
        yield ".open"


def _writes(arguments):
    """Return whether every possible mode of the first argument writes."""
    modes = [node.value for node in ast.walk(arguments[0]) if isinstance(node, ast.Constant)] if arguments else []
    modes = [mode for mode in modes if isinstance(mode, str)]
    return bool(modes) and all(WRITING.intersection(mode) for mode in modes)


def modules():
    found = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)
    # The sandbox reads what it has written itself, in a folder of its own.
    return sorted(module for module in found if module not in READERS and not module.startswith("sandbox/"))


def test_only_bounded_readers_read_files():
    for module in modules():
        found = set(unbounded((PACKAGE / module).read_text(encoding="utf-8")))
        assert found - OWN.get(module, set()) == set(), module


@pytest.mark.parametrize(
    "source",
    [
        "json.loads(text)", "json.load(file)", "from json import loads", "path.read_text()", "Path(name).read_bytes()",
        "path.open('rb')", "open(name)", "open(name, 'rb')", "json.JSONDecoder().decode(text)",
    ],
)  # fmt: skip
def test_an_unbounded_reader_is_detected(source):
    assert len(list(unbounded(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["json.dumps(x)", "bounded_files.read_bytes(path, most=1)", "path.open('ab')", "open(name, 'w')", "hub.open(x)"],
)
def test_a_bounded_reader_is_allowed(source):
    assert list(unbounded(source)) == []
