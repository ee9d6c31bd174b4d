"""Target-specific words stay in `targets/` and `sandbox/`: its name, its provider's name, and the words of its SDK.
Data under `profiles/` and help texts may name a provider. Each exception has its reason here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from builders.sources import nodes

import tgi_deploy
from tgi_deploy import wiring

PACKAGE = Path(tgi_deploy.__file__).parent
AT_HOME = ("targets", "sandbox")
NAMES = (*wiring.target_names(), "aws", "amazon", "boto", "boto3", "botocore", "iam", "ssm", "ami")
WORD = re.compile(rf"(?i)(?<![a-z])(?:{'|'.join(NAMES)})(?![a-z])")

SHOWN = "help and examples show a user what to type"
PRICES = "reads a provider's prices, types and permissions: data under profiles/aws"
LINES = "reads logs of machines, which container runtimes and agents write into"
ALLOWED = {
    "catalog/actions.py": PRICES,
    "catalog/hardware.py": PRICES,
    "catalog/prices.py": PRICES,
    "catalog/quotas.py": PRICES,
    "catalog/config.py": "a key that model configurations have: a state-space model",
    "cli/diagnose.py": SHOWN,
    "cli/main.py": SHOWN,
    "cli/plan.py": SHOWN,
    "cli/render.py": SHOWN,
    "cli/sandbox.py": "prints the variables that lead AWS's own tools to the sandbox",
    "diagnosis/lines.py": LINES,
    "operations/watching/runbook.py": "a page shows how to run the same container by hand",
    "values/plan_request.py": "the options of targets, as arguments of the Python API",
    "wiring.py": "composes the targets",
}


def words(source):
    """Names and texts of a module that say more than its comments and docstrings: what the program acts by."""
    bodies = [node.body for node in nodes(source) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    result = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in result:
            yield node.value
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield getattr(node, "module", None) or ""


def found_in(source):
    return {match[0] for text in words(source) for match in WORD.finditer(text.replace("_", " "))}


def modules():
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return sorted(path.as_posix() for path in paths if path.parts[0] not in AT_HOME)


def test_target_words_appear_only_in_target_code():
    found = {module: found_in((PACKAGE / module).read_text(encoding="utf-8")) for module in modules()}
    assert {module: names for module, names in found.items() if names and module not in ALLOWED} == {}
    assert sorted(module for module, names in found.items() if names) == sorted(ALLOWED)


@pytest.mark.parametrize(
    "source",
    [
        'if target == "docker":\n    pass',
        "def on_docker():\n    pass",
        'command = f"aws s3 cp {path}"',
        "from tgi_deploy.targets.ec2.launch import Ec2Settings",
        "docker_endpoint()",
        "given.ami",
    ],
)
def test_a_target_word_is_detected(source):
    assert len(found_in(source)) == 1


@pytest.mark.parametrize("source", ['"""What Docker does."""', "# EC2 is late\nlate = True", "admin = 1", "family = 2"])
def test_other_words_are_accepted(source):
    assert found_in(source) == set()
