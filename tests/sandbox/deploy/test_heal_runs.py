"""`up --heal` in the sandbox: the first machine fails realistically, the second is launched with a changed plan."""

from __future__ import annotations

import pytest

UP = ("up", "tinyllama-1.1b", "--budget", "3", "--yes", "--heal", "--ready", "fast")


@pytest.mark.parametrize(
    ("fault", "code", "what"), [("oom-warmup", "oom_warmup_prefill", "--set max-batch-prefill-tokens=")]
)
def test_heal_fixes_the_failure_and_reports_it(program, fault, code, what):
    program.fault(name="engine", engine=fault)
    result = program.here(*UP)
    assert result.code == 0, result.out + result.err
    (healed,) = result.json["data"]["healed"]
    assert (healed["code"], healed["what"].startswith(what)) == (code, True)
    assert [item["code"] for item in result.json["warnings"]].count("plan_adjusted") == 1
    assert "trying to fix" in result.err
    assert len(program.instances()) == 1


def test_a_failure_that_heal_cannot_fix_leaves_nothing(program):
    program.fault(name="engine", engine="gated", times=5)
    result = program.here(*UP)
    assert (result.code, result.json["data"]["finding"]) == (5, "gated_no_token")
    assert program.instances() == []


def test_heal_and_lock_exclude_each_other(program, tmp_path):
    lock = tmp_path / "plan.lock.json"
    assert program.run("plan", "tinyllama-1.1b", "--budget", "3", "--lock", str(lock)).code == 0
    result = program.here("up", "--lock", str(lock), "--yes", "--heal")
    assert (result.code, result.json["errors"][0]["code"]) == (2, "conflicting_options")
