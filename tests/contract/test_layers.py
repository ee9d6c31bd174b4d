"""Who may import whom: the arrows of docs/architecture.md, and which layer owns which third-party package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import tgi_deploy

PACKAGE = Path(tgi_deploy.__file__).parent
SHARED = {"bounded_files", "bounded_json", "errors", "futures", "resources", "secret", "__init__"}

# What each layer may import of our own, beside itself and the shared modules.
ALLOWED = {
    "planner": set(),
    "reconcile": set(),
    "catalog": {"planner"},
    "render": {"planner"},
    "targets": {"planner", "reconcile", "render"},
    "app": {"planner", "reconcile", "catalog", "render", "targets"},
    "adapters": {"reconcile", "planner", "catalog"},
    "state": {"reconcile", "planner", "catalog"},
    "sandbox": {"reconcile", "planner", "catalog"},
    "cli": {"app", "planner", "reconcile", "catalog", "render", "targets"},
}
# Within app/: what each part may import of the others, beside app/context.py and app/survey.py.
PARTS = {
    "planning": set(),
    "launching": {"planning"},
    "checking": {"planning", "launching"},
    "watching": {"planning", "launching"},
    "removing": {"watching"},
    "deploying": {"planning", "launching", "checking", "watching", "removing"},
}
WIRING = "cli/wiring.py"
# A command that has nothing but a type to name may name it; at run time only wiring knows what acts.
THIRD_PARTY = {
    "click": {"cli"},
    "rich": {"cli"},
    "jinja2": {"render"},
    "font_lato": {"render"},
    "resvg_py": {"render"},
    "boto3": {"adapters"},
    "botocore": {"adapters", "sandbox"},
    "docker": {"adapters"},
    "pynvml": {"adapters"},
    "huggingface_hub": {"adapters"},
    "tenacity": {"adapters"},
    "moto": {"sandbox"},
    "werkzeug": {"sandbox"},
    "flask": {"sandbox"},
    "yaml": {"sandbox"},
}
TYPES_ONLY = {f"mypy_boto3_{name}" for name in ("ec2", "iam", "scheduler", "ssm", "sts")}


def modules():
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def layer_of(module):
    return module.partition("/")[0].removesuffix(".py")


class _Imports(ast.NodeVisitor):
    """Every imported module of a file; those under `if TYPE_CHECKING:` apart."""

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
    visitor.visit(ast.parse(source))
    return visitor.found


def violations(module, source):
    """Each import of `source`, as the file `module`, that no arrow allows."""
    layer = layer_of(module)
    for name, types_only in imports_of(source):
        top, _, rest = name.partition(".")
        if top == "tgi_deploy":
            yield from _own(module, layer, rest.partition(".")[0] or "__init__", types_only=types_only)
            yield from _parts(module, rest)
        elif top in THIRD_PARTY and layer not in THIRD_PARTY[top]:
            yield f"{module} imports {top}"
        elif top not in THIRD_PARTY and not _is_standard(top) and not (types_only and top in TYPES_ONLY):
            yield f"{module} imports {top}, which no layer owns"


def _own(module, layer, target, *, types_only):
    if target in {*SHARED, "__version__", layer}:
        return
    if module in {WIRING, "__main__.py"} or (layer == "cli" and types_only):
        return
    if target not in ALLOWED.get(layer, set()):
        yield f"{module} imports {target}"


def _parts(module, target):
    """Of two modules in app/: the part that one imports against the order. At the top of app/ no part is known."""
    if not (module.startswith("app/") and target.startswith("app.")):
        return
    mine, theirs = module.split("/")[1], target.split(".")[1]
    if theirs in PARTS and theirs not in {mine, *PARTS.get(mine, set())}:
        yield f"{module} imports app.{theirs}"


def _is_standard(top):
    return top in sys.stdlib_module_names


@pytest.mark.parametrize("module", modules())
def test_imports_follow_the_arrows(module):
    assert list(violations(module, (PACKAGE / module).read_text())) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("planner/memory.py", "from tgi_deploy.reconcile import model"),
        ("planner/memory.py", "from tgi_deploy.catalog.catalog import Catalog"),
        ("planner/memory.py", "import click"),
        ("reconcile/diff.py", "import boto3"),
        ("catalog/store.py", "from tgi_deploy.render import artifacts"),
        ("app/deploying/up.py", "from tgi_deploy.adapters.aws import ec2"),
        ("app/deploying/up.py", "import rich.live"),
        ("app/planning/plan.py", "from tgi_deploy.app.launching.attempt import Attempt"),
        ("app/watching/listing.py", "from tgi_deploy.app.removing import receipt"),
        ("app/context.py", "from tgi_deploy.app.planning.wish import Wish"),
        ("cli/up.py", "from tgi_deploy.sandbox import control"),
        ("cli/up.py", "import boto3"),
        ("render/artifacts.py", "def f():\n    import yaml"),
        ("adapters/aws/ec2.py", "import requests"),
        ("state/local.py", "from tgi_deploy.cli import output"),
        ("errors.py", "from tgi_deploy.planner import types"),
    ],
)
def test_a_forbidden_arrow_is_found(module, source):
    assert len(list(violations(module, source))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cli/wiring.py", "from tgi_deploy.sandbox import control"),
        ("cli/sandbox.py", "if TYPE_CHECKING:\n    from tgi_deploy.sandbox.control import SandboxInfo"),
        ("app/deploying/up.py", "from tgi_deploy.reconcile.ports import Clock"),
        ("app/deploying/up.py", "from tgi_deploy.app.planning.wish import Wish"),
        ("app/deploying/up.py", "from tgi_deploy.app.context import Context"),
        ("planner/plan.py", "from tgi_deploy.errors import InputError\nimport json"),
        ("adapters/aws/ec2.py", "import botocore.exceptions"),
    ],
)
def test_an_allowed_arrow_is_not(module, source):
    assert list(violations(module, source)) == []
