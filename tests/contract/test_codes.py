"""`explain CODE` explains every code that the program prints."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from builders.sources import nodes

from tgi_deploy.catalog.phases import read_former_codes, read_tool_codes
from tgi_deploy.operations.watching.explain import all_codes

REPOSITORY = Path(__file__).parents[2]
SHOWN_BY = (
    "Error",
    "Problem",
    "Rejection",
    "PlanOption",
    "warning",
    "error",
)
# The sandbox's own errors occur only if it is started by hand, and are self-explanatory.
SOURCES = [path for path in (REPOSITORY / "tgi_deploy").rglob("*.py") if "sandbox" not in path.parts]
TABLES = [
    "profiles/docker/errors.json",
    "profiles/kubernetes/errors.json",
    *(REPOSITORY / "profiles/engines/tgi/releases").glob("*.json"),
]


def in_code(path):
    for node in nodes(path.read_text(encoding="utf-8")):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        is_super = name == "__init__" and path.name == "errors.py"
        if is_super or name.endswith(SHOWN_BY):
            given = [*node.args[:1], *(item.value for item in node.keywords if item.arg == "code")]
            yield from (item.value for item in given if isinstance(item, ast.Constant) and isinstance(item.value, str))


def in_tables(value):
    if isinstance(value, dict):
        yield from [value["code"]] if isinstance(value.get("code"), str) else []
        yield from (code for item in value.values() for code in in_tables(item))
    if isinstance(value, list):
        yield from (code for item in value for code in in_tables(item))


def shown():
    found = {code for path in SOURCES for code in in_code(path)}
    tables = [json.loads((REPOSITORY / path).read_text(encoding="utf-8")) for path in TABLES]
    return {code for code in found if code.isidentifier() and code.islower()} | set(in_tables(tables))


def test_every_printed_code_is_explained():
    codes = shown()
    assert {"no_capacity", "quota_exceeded", "arch_no_kernels", "bad_option_value", "security_group_drift"} <= codes
    assert codes - {item.code for item in all_codes("tgi")} == set()


def test_no_code_is_explained_twice():
    codes = [item["code"] for item in read_tool_codes()]
    assert len(codes) == len(set(codes))


def test_a_former_code_has_a_current_replacement():
    known = {item.code for item in all_codes("tgi")}
    former = read_former_codes()
    assert set(former.values()) <= known
    assert set(former).isdisjoint(known)


def test_no_two_codes_have_the_same_meaning():
    meanings = [item["meaning"] for item in read_tool_codes()]
    assert len(meanings) == len(set(meanings))
    assert {item["kind"] for item in read_tool_codes()} == {"error", "rejection", "warning"}
