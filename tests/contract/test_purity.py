"""Pure packages do no I/O, and only `catalog/` reads `profiles/`; checked in the source code."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from builders.sources import nodes

import tgi_deploy
from tgi_deploy.values.base import Document, Value

PACKAGE = Path(tgi_deploy.__file__).parent
PURE = ("planner", "engines", "diagnosis", "reconcile", "values")

# Modules that access files, the environment, the clock, randomness or the network.
IMPURE_MODULES = frozenset(
    {
        "fileinput", "glob", "http", "importlib", "io", "os", "pathlib", "pkgutil", "random", "secrets", "shutil",
        "socket", "sqlite3", "subprocess", "sys", "tempfile", "time", "urllib", "uuid",
    }
)  # fmt: skip
DATA_FILES = "tgi_deploy.data_files"
IMPURE_OWN = (f"{DATA_FILES}.", "tgi_deploy.bounded_files.")
IMPURE_CALLS = frozenset({"open", "__import__", "input", "print"})
IMPURE_METHODS = frozenset(
    {
        "environ", "getenv", "iterdir", "open", "read_bytes", "read_text", "today", "utcnow", "write_bytes",
        "write_text",
    }
)  # fmt: skip
DATA_FOLDER = "profiles_dir"


def impurities(source):
    """Return everything in `source` that accesses its machine."""
    for node in nodes(source):
        yield from _imported(node)
        if isinstance(node, ast.Name) and node.id in IMPURE_CALLS:
            yield node.id
        elif isinstance(node, ast.Attribute) and (node.attr in IMPURE_METHODS or _is_clock(node)):
            yield f".{node.attr}"


def _imported(node):
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        if name.partition(".")[0] in IMPURE_MODULES or f"{name}.".startswith(IMPURE_OWN):
            yield name


def _is_clock(node):
    """Return whether it is `datetime.now`; `now` of a clock that was passed in is allowed."""
    return node.attr == "now" and isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date"}


def data_readers(source):
    """Return every use of the data folder in `source`: its function, imported or accessed through the module."""
    for node in nodes(source) if DATA_FOLDER in source else ():
        if isinstance(node, ast.ImportFrom) and node.module == DATA_FILES:
            yield from (alias.name for alias in node.names if alias.name == DATA_FOLDER)
        elif isinstance(node, ast.Attribute) and node.attr == DATA_FOLDER and _is_module(node.value):
            yield node.attr


def _is_module(node):
    return getattr(node, "id", getattr(node, "attr", "")) == "data_files"


def found_in(search, *layers):
    paths = sorted(path for layer in layers for path in (PACKAGE / layer).rglob("*.py"))
    assert paths
    return [f"{path}: {one}" for path in paths for one in search(path.read_text(encoding="utf-8"))]


def test_pure_packages_do_no_io():
    assert found_in(impurities, *PURE) == []


def test_only_the_catalog_reads_profiles():
    rooms = ("cli", "hub", "operations", "readiness", "sandbox", "state", "targets", *PURE)
    assert found_in(data_readers, *rooms) == []


@pytest.mark.parametrize(
    "source",
    [
        "open('x')",
        "with open('x') as file:\n    file",
        "def f(path):\n    return path.read_text()",
        "def f(path):\n    return path.read_bytes()",
        "def f(path):\n    return path.open()",
        "from pathlib import Path",
        "import importlib.resources",
        "from importlib import resources",
        "import os",
        "import os.path",
        "def f(os):\n    return os.environ['HOME']",
        "def f():\n    import time",
        "from time import time",
        "import random",
        "from datetime import datetime\ndatetime.now()",
        "from datetime import date\ndate.today()",
        "from tgi_deploy import data_files",
        "from tgi_deploy.data_files import templates_dir",
        "import tgi_deploy.data_files",
        "from tgi_deploy import bounded_files",
    ],
)
def test_impure_code_is_detected(source):
    assert list(impurities(source))


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)",
        "def f(clock):\n    return clock.now()",
        "import json\njson.loads('{}')",
        "import threading\nthreading.Lock()",
        "from tgi_deploy.errors import InputError",
        "from tgi_deploy.planner import cost",
    ],
)
def test_a_passed_value_is_not_impure(source):
    assert list(impurities(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from tgi_deploy.data_files import profiles_dir",
        "from tgi_deploy import data_files\ndata_files.profiles_dir()",
        "import tgi_deploy.data_files\ntgi_deploy.data_files.profiles_dir()",
    ],
)
def test_a_second_reader_is_detected(source):
    assert list(data_readers(source)) == ["profiles_dir"]


def test_an_option_with_that_name_is_not_a_reader():
    assert list(data_readers("def f(setup):\n    return setup.profiles_dir")) == []


def test_values_are_frozen_and_keyword_only():
    """msgspec does not inherit these options, so each subclass must repeat them."""
    for module in ("base", "container", "engine", "hardware", "plan_document", "probing", "serving"):
        importlib.import_module(f"tgi_deploy.values.{module}")
    importlib.import_module("tgi_deploy.wiring")
    kinds = list(subclasses(Value))
    assert kinds
    for kind in kinds:
        config = kind.__struct_config__
        assert config.frozen, kind
        assert config.forbid_unknown_fields is not issubclass(kind, Document), kind
        fields = inspect.signature(kind).parameters.values()
        assert all(field.kind is field.KEYWORD_ONLY for field in fields), kind


def subclasses(kind):
    for below in kind.__subclasses__():
        yield below
        yield from subclasses(below)
