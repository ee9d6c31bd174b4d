from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from fakes.cloud import FakeCloud
from fakes.computer import FakeClock, request

from tgi_deploy.operations.deploying.smoke import Job, overall, prove_all, smoke, smoke_name
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.reconcile.programs import Reply
from tgi_deploy.values.base import as_dict

READY = {"phases": [{"phase": "launching", "took_s": 3.0}, {"phase": "loading", "took_s": 20.0}]}
PROOF = {"steps": [{"name": "health", "took_ms": 4.0}, {"name": "longest", "took_ms": 1500.0}]}
MADE = [
    {"kind": "security-group", "id": "sg-1", "region": "us-east-1"},
    {"kind": "instance", "id": "i-1", "region": "us-east-1"},
]
UP = {"ready": READY, "proof": PROOF, "deployment": {"chosen": {"instance_type": "g6.xlarge"}, "resources": MADE}}
STUCK = {"phase": "loading", "deployment": "smoke-x", "still_billed": {"machine": "i-1", "region": "us-east-1"}}
DOWN = {"receipt": {"cost": {"usd": 0.12}}}
FINDING = {
    "code": "oom_load",
    "phase": "loading",
    "cause": "too big",
    "evidence": "CUDA out of memory",
    "remedy": "less",
}
JOB = Job(
    model="phi3-mini",
    name="smoke-phi3-mini-abc123",
    plan_words=("--ttl", "1h"),
    everywhere=("--sandbox",),
    machine_kind="instance",
)


def reply(code=0, data=None, error=None):
    errors = [{"code": error, "message": f"it was {error}", "hint": "do this"}] if error else []
    return Reply(exit_code=code, envelope={"exit_code": code, "data": data or {}, "errors": errors})


def first(result):
    return result.failures[0][0]


@dataclass
class FakePrograms:
    """Answers by command; remembers the words."""

    answers: dict[str, Reply] = field(default_factory=dict)
    ran: list[tuple[str, ...]] = field(default_factory=list)
    stopping: bool = False
    meet: threading.Barrier | None = None
    clock: FakeClock = field(default_factory=FakeClock)

    def run(self, words):
        self.ran.append(tuple(words))
        self.clock.seconds += {"up": 100, "diagnose": 1, "down": 30}[words[0]]
        if self.meet is not None and words[0] == "up":
            self.meet.wait()
        known = {"up": reply(data=UP), "down": reply(data=DOWN), "diagnose": reply(data={"findings": [FINDING]})}
        return {**known, **self.answers}[words[0]]

    @property
    def commands(self):
        return [words[0] for words in self.ran]


def smoked(job=JOB, **answers):
    programs = FakePrograms(answers)
    (result,) = smoke(programs, [job], at_once=1, clock=programs.clock)
    return result, programs


def test_up_prove_and_down():
    result, programs = smoked()
    assert programs.ran == [
        ("up", "phi3-mini", "--name", JOB.name, "--yes", "--on-failure", "keep", "--ttl", "1h", "--sandbox"),
        ("down", JOB.name, "--yes", "--sandbox"),
    ]
    assert (result.exit_code, result.failures, result.usd) == (0, (), 0.12)
    assert result.chosen["instance_type"] == "g6.xlarge"
    names = [case.name for case in result.cases]
    assert names == [
        "launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready",
        "proof health", "proof longest", "removal",
    ]  # fmt: skip
    took = {case.name: case.took_s for case in result.cases}
    assert (took["loading"], took["proof longest"], took["removal"], result.took_s) == (20.0, 1.5, 30.0, 130.0)


def test_a_failed_engine_is_diagnosed_then_removed():
    data = {"phase": "loading", "phase_elapsed_s": 7.5, "phases": READY["phases"][:1], "evidence": "CUDA oom"}
    result, programs = smoked(up=reply(5, data, "engine_failed"))
    assert programs.commands == ["up", "diagnose", "down"]
    assert result.exit_code == 5
    loading = next(case for case in result.cases if case.name == "loading")
    assert loading.took_s == 7.5
    assert loading.problem.code == "engine_failed"
    for said in ("hint: do this", "CUDA oom", "oom_load", "too big", "remedy: less"):
        assert said in loading.text
    assert [case.name for case in result.cases if case.skipped] == ["warming_up", "ready"]


def test_the_remedy_takes_precedence_over_the_machine_state():
    result, _ = smoked(up=reply(5, {"phase": "loading", "remedy": "less context"}, "engine_failed"))
    assert "hint: less context" in first(result).text
    assert "do this" not in first(result).text


def test_an_engine_that_fails_once_it_is_ready_fails_the_case_of_that_phase():
    result, _ = smoked(up=reply(5, {"phase": "ready"}, "engine_failed"))
    assert [case.name for case in result.cases if case.problem] == ["ready"]


def test_a_broken_promise_fails_its_own_case():
    result, _ = smoked(up=reply(5, {"step": "together"}, "together_failed"))
    failed = [case.name for case in result.cases if case.problem]
    assert failed == ["proof together"]


@pytest.mark.parametrize("code", [2, 3, 4])
def test_an_up_that_created_nothing_is_not_removed(code):
    """In particular a deployment whose name was taken, because it is somebody else's."""
    result, programs = smoked(up=reply(code, {}, "no_feasible_plan"))
    assert programs.commands == ["up"]
    assert result.exit_code == code
    assert result.cases[-1].skipped


@pytest.mark.parametrize("made", [{"outcome": "kept", "phase": "proof"}, {"exists": [{"id": "i-1"}]}])
def test_resources_created_before_an_input_error_are_removed(made):
    result, programs = smoked(up=reply(2, made, "secret_unusable"))
    assert programs.commands == ["up", "down"]
    assert result.exit_code == 2


def test_a_killed_up_is_cleaned_up():
    result, programs = smoked(up=Reply(exit_code=-9))
    assert programs.commands == ["up", "down"]
    assert (result.exit_code, first(result).problem.code) == (1, "process_killed")


@pytest.mark.parametrize(
    ("outcome", "commands"), [("removed", ["up"]), ("removing", ["up", "down"]), ("not_removed", ["up", "down"])]
)
def test_an_interrupted_up_is_removed_unless_already_removed(outcome, commands):
    result, programs = smoked(up=reply(130, {"outcome": outcome}, "interrupted"))
    assert programs.commands == commands
    assert result.exit_code == 130


def test_leftovers_have_the_most_severe_exit_code():
    left = [{"kind": "instance", "id": "i-1", "region": "us-east-1", "command": "aws ec2 terminate-instances"}]
    result, _ = smoked(up=reply(5, {}, "engine_failed"), down=reply(6, {"not_removed": left}, "left_behind"))
    assert result.exit_code == 6
    assert [as_dict(item) for item in result.left] == left
    assert result.cases[-1].problem.code == "left_behind"


@pytest.mark.parametrize("down", [Reply(exit_code=-9), reply(1, {}, "internal_error"), reply(4, {}, "locked")])
@pytest.mark.parametrize("up", [reply(data=UP), reply(5, STUCK, "engine_failed")])
def test_a_failed_removal_reports_the_machine(up, down):
    result, _ = smoked(up=up, down=down)
    assert result.exit_code == 6
    (left,) = result.left
    assert (left.id, left.region) == ("i-1", "us-east-1")
    assert left.command == f"tgi-deploy down {JOB.name} --sandbox"
    assert result.failures[-1][1].code == (down.error.get("code") or "process_killed")


def test_an_interrupted_removal_exits_130():
    result, _ = smoked(down=reply(130, {}, "interrupted"))
    assert (result.exit_code, result.left) == (130, ())


def test_a_failed_removal_without_resources_leaves_nothing():
    result, _ = smoked(up=reply(1, {}, "cloud_unreachable"), down=reply(1, {}, "cloud_unreachable"))
    assert (result.exit_code, result.left) == (1, ())


def test_deployments_are_proved_regardless_of_earlier_failures(around):
    """An unknown one, then an existing one."""
    up(around.context(), request(wait=True))
    unknown, known = prove_all(around.context(), ("nowhere", "demo"), "fast", lambda release: (release,))
    assert (unknown.smoked.exit_code, first(unknown.smoked).problem.code) == (2, "unknown_deployment")
    assert unknown.error is not None
    assert known.proof is not None
    assert {case.name for case in known.smoked.cases} >= {"proof health", "proof info"}


def test_a_deployment_is_proved_against_its_recorded_plan(around, monkeypatch):
    up(around.context(), request(wait=True))
    (other,) = prove_all(around.context(), ("demo",), "full", lambda _release: ("0.0.1",))
    assert other.error.code == "wrong_version"
    log = "[tgi-deploy] phase=starting-engine\nSetting max batch total tokens to 17\n"
    monkeypatch.setattr(FakeCloud, "console", lambda *_: log)
    (short,) = prove_all(around.context(), ("demo",), "full", lambda release: (release,))
    assert short.error.code == "kv_capacity_short"


def test_a_deployment_restarted_without_its_gpu_fails_the_proof(around, monkeypatch):
    up(around.context(), request(wait=True))
    warning = "Could not import Flash Attention enabled models: System cpu doesn't support flash/paged attention"
    log = f"[tgi-deploy] phase=starting-engine\nWARN {warning}\nrouter: Connected\n"
    monkeypatch.setattr(FakeCloud, "console", lambda *_: log)
    (wrong,) = prove_all(around.context(), ("demo",), "fast", lambda release: (release,))
    assert (wrong.error.code, wrong.error.exit_code) == ("wrong_device", 5)
    assert "System cpu" in wrong.error.message


def test_jobs_run_together():
    programs = FakePrograms(meet=threading.Barrier(3, timeout=60))
    jobs = [Job(model=name, name=f"smoke-{name}") for name in ("a", "b", "c")]
    results = smoke(programs, jobs, at_once=3, clock=FakeClock())
    assert [result.job.model for result in results] == ["a", "b", "c"]


def test_nothing_new_starts_while_stopping():
    programs = FakePrograms(stopping=True)
    (result,) = smoke(programs, [JOB], at_once=1, clock=FakeClock())
    assert programs.ran == []
    assert result.exit_code == 130


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 3), 3), ((3, 5), 5), ((5, 130), 130), ((130, 6), 6), ((1, 5), 5)]
)
def test_the_most_severe_exit_code_wins(codes, expected):
    results = [smoked(up=reply(code, {"outcome": "removed"}, "x" if code else None))[0] for code in codes if code != 6]
    results += [smoked(down=reply(6, {}, "left_behind"))[0] for code in codes if code == 6]
    assert overall(results) == expected


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama3-8b", "smoke-llama3-8b-abc123"),
        ("org/Some_Model.v2", "smoke-some-model-v2-abc123"),
        ("x" * 60, f"smoke-{'x' * 26}-abc123"),
    ],
)
def test_names(model, name):
    assert smoke_name(model, "abc123") == name
    assert len(name) <= 40
