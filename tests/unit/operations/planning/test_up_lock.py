"""`up --lock` in the sandbox proposes exactly the locked plan."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def sandbox(tool):
    yield
    assert tool("sandbox", "stop")[0] == 0


def test_up_proposes_the_locked_choice(tool, edited, sandbox):
    args = ("up", "--sandbox", "--dry-run", "--lock")
    exit_code, out, _ = tool(*args, edited("same.lock").name)
    assert exit_code == 0, out
    assert "g5.xlarge" in out
    old = edited("old.lock", chosen={"instance_type": "g5.12xlarge", "num_shard": 4, "quantize": "none"})
    exit_code, out, err = tool(*args, old.name)
    assert (exit_code, out) == (4, "")
    assert "error[stale_plan]" in err
    exit_code, out, _ = tool(*args, old.name, "--force")
    assert exit_code == 0, out
    assert "g5.12xlarge" in out
