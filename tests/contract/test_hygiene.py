"""Nothing specific to a machine or workplace is committed, and files stay readable."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from pathlib import Path

import pytest
from builders.sources import nodes

REPOSITORY = Path(__file__).parents[2]

# Assembled from parts, so that this file does not match itself.
# The home of the containers that logs are recorded from is /root.
FORBIDDEN = {
    "a path of one machine": re.compile(
        r"/(?:work/(?:main|shared|\.)|root/(?!\.cache/vllm/)|home/(?!(?:ubuntu|me|user)\b)[a-z]+/|Users/[a-z]+/)"
    ),
    "a temporary environment": re.compile(r"/tm" + "p/(?:venv|brief|bash_jobs)"),
    "a workplace": re.compile(
        "farm" + "-studio|sub" + r"agents?\b|\.lib" + r"rary/|\.\./sha" + "red/|issues " + "show"
    ),
    "a package mirror": re.compile(r"(?:--|_|PIP_)(?:extra-)?index-url[ =]https?://(?!pypi\.org)", re.IGNORECASE),
    "a private key": re.compile("-----BEGIN " + "[A-Z ]*PRIVATE KEY"),
    "an access key": re.compile(r"\bAKIA(?!IOSFODNN7EXAMPLE)[0-9A-Z]{16}\b"),
}


BROAD = {"Exception", "BaseException"}


def tracked_files():
    if not (REPOSITORY / ".git").exists():
        pytest.skip("needs the repository, not a copy of its files")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True)  # noqa: S607 -- git of the developer
    return [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name and (REPOSITORY / name).is_file()]


def test_no_local_paths_or_names_are_committed():
    found = [
        f"{path.relative_to(REPOSITORY)}: {what}: {match[0]}"
        for path in tracked_files()
        for what, pattern in FORBIDDEN.items()
        if (match := pattern.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "see /work/" + "main/x",
        "/home/" + "jane/x",
        "cd /tm" + "p/venv/bin",
        "--index-url " + "https://mirror.example/x",
    ],
)
def test_a_forbidden_word_is_detected(text):
    assert any(pattern.search(text) for pattern in FORBIDDEN.values())


def function_lengths():
    for path in sorted((REPOSITORY / "tgi_deploy").rglob("*.py")):
        for node in nodes(path.read_text()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.end_lineno - node.lineno + 1, f"{path.name}:{node.name}"


def test_functions_stay_small():
    lengths = sorted(function_lengths())
    assert lengths[-1][0] <= 80, lengths[-1]
    numbers = [length for length, _ in lengths]
    assert statistics.median(numbers) <= 10
    assert numbers[int(len(numbers) * 0.95)] <= 45


def test_files_stay_short():
    longest = max((len(path.read_text().splitlines()), path.name) for path in REPOSITORY.rglob("tgi_deploy/**/*.py"))
    assert longest[0] <= 600, longest


def swallows_anything(source):
    """Return whether a handler catches every error without reraising it."""
    for node in nodes(source):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in BROAD)
            if broad and not isinstance(node.body[-1], ast.Raise):
                return True
    return False


def test_only_the_outermost_except_is_broad():
    sources = sorted((REPOSITORY / "tgi_deploy").rglob("*.py"))
    assert [path.name for path in sources if swallows_anything(path.read_text())] == ["frame.py"]


@pytest.mark.parametrize("handler", ["except:", "except Exception:", "except BaseException as error:"])
def test_a_broad_except_is_detected(handler):
    assert swallows_anything(f"try:\n    f()\n{handler}\n    pass")
    assert not swallows_anything(f"try:\n    f()\n{handler}\n    clean()\n    raise")
