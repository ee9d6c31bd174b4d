"""The same request gives the byte-same plan: twice, under any hash seed, in any process."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys

import pytest

from tgi_deploy.operations.planning import plan as planning
from tgi_deploy.operations.planning.documents import no_plan_document, plan_document
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.planner import advice
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog

REQUESTS = (
    OptionTexts(model="llama3-13b", budget="5"),
    OptionTexts(model="mixtral-8x7b", regions=("us-west-2", "eu-west-1"), market="any", prefer="value"),
    OptionTexts(model="qwen2.5-72b", budget="0.5"),
)


def digest() -> str:
    """Return the digest of all answers, with a freshly read catalog."""
    catalog = open_catalog()
    made = [planning.plan(texts, catalog, {}) for texts in REQUESTS]
    documents = [plan_document(one) if isinstance(one, Plan) else no_plan_document(one) for one in made]
    return hashlib.sha256(json.dumps(documents, default=str).encode()).hexdigest()


@pytest.mark.slow
def test_planning_twice_gives_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "make_plan", make_plan)  # neither is shared with other tests
    monkeypatch.setattr(advice, "near_misses", inspect.unwrap(advice.near_misses))
    assert digest() == digest()


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "20240501"])
def test_the_hash_seed_changes_nothing(seed: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import test_determinism; print(test_determinism.digest())"],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path)), "AWS_CONFIG_FILE": "/nonexistent"},
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.stdout.strip() == digest()
