"""The allowed imports between packages (docs/architecture.md), and which package may use which third-party library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from builders.sources import nodes

import tgi_deploy

PACKAGE = Path(tgi_deploy.__file__).parent
# Shared modules, which every package may import.
SHARED = {
    "bounded_files", "bounded_json", "clock", "data_files", "errors", "extras", "files", "futures", "secret",
    "templating", "text", "__init__",
}  # fmt: skip

# What each package may import besides itself and the shared modules.
ALLOWED = {
    "values": set(),
    "engines": {"values"},
    "planner": {"engines", "values"},
    # Its grammar comes as a value: it knows no engine, no cloud and no file.
    "diagnosis": {"values"},
    "reconcile": {"diagnosis", "values"},
    "catalog": {"engines", "values"},
    "hub": {"catalog", "values"},
    "targets": {"reconcile", "diagnosis", "catalog", "values"},
    "state": {"values"},
    "rollout": {"values"},
    "readiness": {"engines", "reconcile", "diagnosis", "values"},
    "operations": {
        "planner", "engines", "diagnosis", "reconcile", "readiness", "rollout", "catalog", "targets", "values",
    },
    # The stub server uses the engines' release data but not their arithmetic, which it checks.
    "sandbox": {"engines", "catalog", "values"},
    "cli": {"api", "values"},
    # Types of outcomes are named for whoever writes text from them.
    "api": {
        "operations", "planner", "diagnosis", "reconcile", "readiness", "catalog", "targets", "sandbox", "values",
        "wiring",
    },
    "__init__": {"api"},
    "wiring": {
        "operations", "planner", "engines", "diagnosis", "reconcile", "readiness", "catalog", "targets", "values",
        "hub", "state", "sandbox",
    },
}  # fmt: skip
# All other packages may use only `engines/protocol.py`.
KNOW_ENGINES = {"engines", "sandbox", "wiring"}
PROTOCOL = "engines.protocol"
# The same for targets: only `targets/protocol.py`.
KNOW_TARGETS = {"targets", "wiring"}
TARGET_PROTOCOL = "targets.protocol"
TARGETS = {"docker", "ec2", "kubernetes", "sagemaker"}
# Within operations/: what each part may import of the others, beside the modules at its top.
PARTS = {
    "report": set(),
    "planning": {"report"},
    "launching": {"planning"},
    "checking": {"planning", "launching"},
    "watching": {"planning", "launching"},
    "removing": {"watching"},
    "deploying": {"planning", "launching", "checking", "watching", "removing"},
    "results": {"report", "planning", "launching", "checking", "watching", "removing", "deploying"},
}
THIRD_PARTY = {
    "click": {"cli"},
    "msgspec": {"values", "errors", "sandbox"},
    "rich": {"cli"},
    "jinja2": {"templating"},
    "font_lato": {"operations"},
    "resvg_py": {"operations"},
    "boto3": {"targets"},
    "cryptography": {"targets"},
    "botocore": {"targets", "sandbox"},
    "docker": {"targets"},
    "pynvml": {"targets"},
    "huggingface_hub": {"hub"},
    "tenacity": {"targets"},
    "moto": {"sandbox"},
    "psutil": {"sandbox"},
    "werkzeug": {"sandbox"},
    "flask": {"sandbox"},
    "urllib3": {"sandbox", "targets"},
    "websockets": {"sandbox", "targets"},
    "yaml": {"sandbox", "targets"},
}
TYPES_ONLY = {f"mypy_boto3_{name}" for name in ("ec2", "iam", "scheduler", "ssm", "sts")}


def modules():
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def layer_of(module):
    return module.partition("/")[0].removesuffix(".py")


class _Imports(ast.NodeVisitor):
    """Collects every imported module of a file, those under `if TYPE_CHECKING:` separately."""

    def __init__(self):
        self.found: list[tuple[str, bool]] = []
        self._types_only = False

    def visit_If(self, node):
        is_guard = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        self._types_only, before = self._types_only or is_guard, self._types_only
        self.generic_visit(node)
        self._types_only = before

    def visit_Import(self, node):
        self.found += [(alias.name, self._types_only) for alias in node.names]

    def visit_ImportFrom(self, node):
        assert node.level == 0, "relative imports hide the layer"
        names = (
            [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "tgi_deploy" else [node.module]
        )
        self.found += [(name, self._types_only) for name in names]


def imports_of(source):
    visitor = _Imports()
    visitor.visit(nodes(source)[0])
    return visitor.found


def violations(module, source):
    """Return each forbidden import of `source`, as the file `module`."""
    layer = layer_of(module)
    for name, types_only in imports_of(source):
        top, _, rest = name.partition(".")
        if top == "tgi_deploy":
            yield from _own(module, layer, rest.partition(".")[0] or "__init__")
            yield from _parts(module, rest)
            yield from _engines(module, layer, rest)
            yield from _targets(module, layer, rest)
        elif top in THIRD_PARTY and layer not in THIRD_PARTY[top]:
            yield f"{module} imports {top}"
        elif top not in THIRD_PARTY and not _is_standard(top) and not (types_only and top in TYPES_ONLY):
            yield f"{module} imports {top}, which no layer owns"


def _own(module, layer, target):
    if target in {*SHARED, "__version__", layer}:
        return
    if module == "__main__.py":
        return
    if target not in ALLOWED.get(layer, set()):
        yield f"{module} imports {target}"


def _parts(module, target):
    """Of two modules in operations/: the part that one imports against the order. At its top no part is known."""
    if not (module.startswith("operations/") and target.startswith("operations.")):
        return
    mine, theirs = module.split("/")[1], target.split(".")[1]
    if theirs in PARTS and theirs not in {mine, *PARTS.get(mine, set())}:
        yield f"{module} imports operations.{theirs}"


def _engines(module, layer, target):
    """Check imports of a concrete engine; one engine never imports another."""
    if not target.startswith("engines.") or target == PROTOCOL:
        return
    is_another = layer == "engines" and _folder(target) not in {None, _folder(module.replace("/", "."))}
    is_arithmetic = layer == "sandbox" and target.count(".") > 1 and not target.endswith(".release")
    if layer not in KNOW_ENGINES or is_another or is_arithmetic:
        yield f"{module} imports {target}"


def _targets(module, layer, target):
    """Check imports of a concrete target; one target never imports another, except shared AWS code."""
    if not target.startswith("targets.") or target == TARGET_PROTOCOL:
        return
    is_another = layer == "targets" and target.split(".")[1] in TARGETS - set(module.split("/"))
    if layer not in KNOW_TARGETS or is_another:
        yield f"{module} imports {target}"


def _folder(target):
    """The engine's, None for what engines share."""
    name = target.split(".")[1]
    return name if (PACKAGE / "engines" / name).is_dir() else None


def _is_standard(top):
    return top in sys.stdlib_module_names


def test_imports_follow_the_layers():
    assert [one for module in modules() for one in violations(module, (PACKAGE / module).read_text())] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("planner/search.py", "from tgi_deploy.reconcile import model"),
        ("planner/search.py", "from tgi_deploy.catalog.catalog import Catalog"),
        ("planner/search.py", "from tgi_deploy.engines.tgi import Tgi"),
        ("planner/search.py", "import click"),
        ("planner/search.py", "import msgspec"),
        ("engines/tgi/fit.py", "from tgi_deploy.planner.plan import make_plan"),
        ("engines/protocol.py", "from tgi_deploy.engines.tgi import Tgi"),
        ("operations/planning/plan.py", "from tgi_deploy.engines.tgi import Tgi"),
        ("sandbox/engine/memory.py", "from tgi_deploy.engines.tgi.memory import memory_budget"),
        ("operations/planning/plan.py", "from tgi_deploy.wiring import open_catalog"),
        ("values/model.py", "from tgi_deploy.planner.plan import make_plan"),
        ("reconcile/diff.py", "import boto3"),
        ("diagnosis/reader.py", "from tgi_deploy.reconcile.ports import Clock"),
        ("diagnosis/reader.py", "from tgi_deploy.catalog.phases import read_phases"),
        ("sandbox/machines.py", "from tgi_deploy.diagnosis.reader import read"),
        ("catalog/prices.py", "from tgi_deploy.planner.cost import served_usd_per_hour"),
        ("targets/container.py", "from tgi_deploy.planner.search import Search"),
        ("catalog/store.py", "from tgi_deploy.targets.protocol import Deployable"),
        ("operations/deploying/up.py", "from tgi_deploy.hub.client import HuggingFaceHub"),
        ("operations/deploying/up.py", "import rich.live"),
        ("operations/planning/plan.py", "from tgi_deploy.operations.launching.attempt import Attempt"),
        ("operations/watching/listing.py", "from tgi_deploy.operations.removing import receipt"),
        ("operations/context.py", "from tgi_deploy.operations.planning.option_texts import OptionTexts"),
        ("cli/status.py", "from tgi_deploy.sandbox import control"),
        ("cli/status.py", "from tgi_deploy.operations.watching.status import status"),
        ("cli/status.py", "if TYPE_CHECKING:\n    from tgi_deploy.wiring import Setup"),
        ("wiring.py", "from tgi_deploy.cli.frame import command"),
        ("cli/plan.py", "from tgi_deploy.planner.rank import sort_key"),
        ("cli/views/plan.py", "if TYPE_CHECKING:\n    from tgi_deploy.planner.why_not import Variant"),
        ("cli/up.py", "import boto3"),
        ("operations/artifacts.py", "def f():\n    import yaml"),
        ("targets/ec2/instance.py", "import requests"),
        ("targets/ec2/launch.py", "from tgi_deploy.targets.docker.resources import resources"),
        ("targets/aws/api.py", "from tgi_deploy.targets.ec2.target import Ec2Target"),
        ("targets/ec2/launch.py", "from tgi_deploy.planner.rank import distance"),
        ("operations/deploying/up.py", "from tgi_deploy.targets.ec2.launch import Ec2Settings"),
        ("cli/status.py", "from tgi_deploy.values.base import Value\nfrom tgi_deploy.wiring import context"),
        ("state/local.py", "from tgi_deploy.cli import output"),
        ("errors.py", "from tgi_deploy.planner import plan"),
    ],
)
def test_a_forbidden_import_is_detected(module, source):
    assert len(list(violations(module, source))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("wiring.py", "from tgi_deploy.sandbox import control"),
        ("cli/status.py", "from tgi_deploy.api import Client"),
        ("operations/deploying/up.py", "from tgi_deploy.reconcile.ports import Clock"),
        ("operations/deploying/up.py", "from tgi_deploy.operations.planning.option_texts import OptionTexts"),
        ("operations/deploying/up.py", "from tgi_deploy.operations.context import Context"),
        ("planner/plan.py", "from tgi_deploy.errors import InputError\nimport json"),
        ("planner/search.py", "from tgi_deploy.engines.protocol import Engine"),
        ("engines/tgi/fit.py", "from tgi_deploy.engines.tgi import memory"),
        ("engines/tgi/pins.py", "from tgi_deploy.engines.flag_values import value_problem"),
        ("targets/ec2/instance.py", "import botocore.exceptions"),
        ("targets/ec2/instance.py", "from tgi_deploy.targets.aws.api import Api"),
        ("targets/docker/launch.py", "from tgi_deploy.targets.container import container_for"),
        ("operations/deploying/up.py", "from tgi_deploy.targets.protocol import Attempt"),
    ],
)
def test_an_allowed_import_is_accepted(module, source):
    assert list(violations(module, source)) == []
