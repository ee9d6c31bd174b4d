"""The simulator on generated histories, on those that once failed, and on planted bugs."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from simulation import planted
from simulation.history import (
    CALL_FAULTS,
    EVENTS,
    MACHINE_FAULTS,
    WRITE_FAULTS,
    Command,
    Fault,
    History,
    from_json,
    make,
)
from simulation.rules import read_rules
from simulation.run import run
from simulation.schedule import Schedule
from simulation.shrink import MOST_STEPS, shrink

from tgi_deploy.reconcile import executor

CASES = sorted((Path(__file__).parents[1] / "cases" / "simulation").glob("*.json"))
FEW, AT_ONCE, ALL = 25, 100, 2000
MODEL_RULES = {
    "late_s",
    "ahead_s",
    "client token",
    "names are unique",
    "groups in use",
    "endings take time",
    "shutdown behavior",
    "machines end themselves",
    "reads are repeated",
    "stop and start",
    "launched last",
    "what is billed",
    "rules are revoked",
    "addresses",
}


def broken_rules(report):
    """Return the description of a failure."""
    return "\n".join([*report.log, *(f"{name}: {text}" for name, text in report.broken)])


@pytest.mark.parametrize(
    "seeds",
    [
        range(FEW),
        *(pytest.param(range(first, first + AT_ONCE), marks=pytest.mark.slow) for first in range(FEW, ALL, AT_ONCE)),
    ],
    ids=str,
)
def test_no_history_breaks_an_invariant(seeds):
    for seed in seeds:
        report = run(make(seed))
        assert not report.broken, f"scripts/simulate.py show {seed}\n{broken_rules(report)}"


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_histories_that_once_failed_pass(path):
    history = from_json(path.read_text(encoding="utf-8"))
    assert history.steps <= MOST_STEPS
    report = run(history)
    assert not report.broken, broken_rules(report)


def test_a_run_depends_only_on_its_history():
    history = make(3)
    assert len(history.commands) > 1
    assert run(history).log == run(history).log


def test_time_advances_during_any_pause():
    schedule = Schedule()
    schedule.now = 76.9
    schedule.sleep(None, 1e-16)
    assert schedule.now > 76.9


def test_a_failing_history_is_shrunk(monkeypatch):
    """With a new token per request and no lookup, one truncated reply is enough for a second machine."""
    tokens = iter(range(10**6))
    monkeypatch.setattr(executor, "_token", lambda _deployment, _resource: f"token-{next(tokens)}")
    monkeypatch.setattr(executor.Executor, "_find", lambda *_words: None)
    noise = Fault(kind="throttled", command=1, among="requests", at=3)
    cut = Fault(kind="cut", command=0, among="changes", at=3)
    commands = tuple(Command(user=user, verb="up", name=name, at_s=0.0) for user, name in ((0, "demo"), (1, "other")))
    history = History(seed=1, commands=commands, faults=(noise, cut), late_s={"volume": 3.0})
    assert "one machine" in run(history).names
    small = shrink(history, "one machine")
    assert (small.commands, small.faults, small.late_s) == (commands[:1], (cut,), {})


def test_every_rule_has_a_source():
    for rule in read_rules():
        assert rule.what
        assert rule.source.startswith(("https://", "tests/", "templates/", "tgi_deploy/")), rule
        if not rule.source.startswith("https://"):
            path = rule.source.split()[0].rstrip(",")
            assert (planted.REPOSITORY / path).exists(), rule


def test_every_fault_is_a_rule():
    names = Counter(rule.name for rule in read_rules())
    assert names == Counter({*CALL_FAULTS, *WRITE_FAULTS, *MACHINE_FAULTS, *EVENTS, *MODEL_RULES})


def test_every_planted_bug_applies():
    for bug in planted.bugs():
        source = planted.planted_source(bug)
        ast.parse(source)
        assert source != bug.path.read_text(encoding="utf-8")


def test_every_class_of_planted_bugs_has_at_least_three():
    groups = Counter(bug.group for bug in planted.bugs())
    assert min(groups.values()) >= 3, groups
    assert sum(groups.values()) >= 40
