"""Errors keep their class when facts are added to them, and those facts are typed."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from builders.sources import nodes

import tgi_deploy
from tgi_deploy.errors import DeployError, Failure, InputError

PACKAGE = Path(tgi_deploy.__file__).parent
MODULES = (
    "tgi_deploy.errors",
    "tgi_deploy.reconcile.errors",
    "tgi_deploy.targets.aws.errors",
    "tgi_deploy.targets.docker.errors",
)
CLASSES = sorted(
    {
        found
        for module in MODULES
        for _, found in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        if issubclass(found, DeployError)
    },
    key=lambda found: found.__name__,
)
ARGUMENTS = {"code": "c", "message": "m", "hint": "h", "data": {}, "action": "ec2:RunInstances", "cause": KeyError("x")}
# What `--json` prints of an error, the command line alone takes.
READERS = {"cli/outcome.py", "cli/stopping.py"}


def made(kind):
    needed = [name for name, item in inspect.signature(kind).parameters.items() if item.default is item.empty]
    return kind(**{name: ARGUMENTS[name] for name in needed})


@pytest.mark.parametrize("kind", CLASSES)
def test_a_copy_keeps_class_exit_code_and_extra_fields(kind):
    error = made(kind)
    own = {name: value for name, value in vars(error).items() if name not in {"problem", "failure"}}
    again = error.copy(hint="do this", failure=Failure(phase="loading"))
    assert (type(again), again.exit_code, again.code, str(again)) == (kind, error.exit_code, error.code, error.message)
    assert {name: getattr(again, name) for name in own} == own
    assert (again.hint, again.data["phase"]) == ("do this", "loading")
    assert error.failure is None


def test_errors_are_immutable():
    error = InputError("bad_name", "m")
    with pytest.raises(AttributeError):
        error.hint = "another"
    with pytest.raises(AttributeError):
        error.data = {}


def test_a_copy_prints_its_new_message():
    assert str(InputError("bad_name", "old").copy(message="new")) == "new"


def test_no_code_reads_the_printed_keys_of_an_error():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "sandbox" not in path.parts
        for node in nodes(path.read_text(encoding="utf-8"))
        if isinstance(node, ast.Attribute) and node.attr == "data"
        if isinstance(node.value, ast.Name) and node.value.id in {"error", "failure", "caught"}
    }
    assert found <= READERS
