from __future__ import annotations

import pytest
from fakes.cloud import FakeCloud
from fakes.computer import FakeComputer, request

from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.watching.diagnose import diagnose_deployment

OOM = "Starting shard\ntorch.OutOfMemoryError: CUDA out of memory. hf_abcdefghijkl\nError: ShardCannotStart\n"


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    return made


def examined(around, monkeypatch, log=""):
    monkeypatch.setattr(FakeCloud, "console", lambda _cloud, _id: log)
    return diagnose_deployment(around.context(), "demo")


def test_the_remedy_uses_the_console_and_the_plan(around, monkeypatch):
    (finding,) = examined(around, monkeypatch, OOM).reading.findings
    assert finding.code == "oom_load"
    assert "--name demo" in finding.remedy_line
    assert "MODEL" not in finding.remedy_line
    assert "hf_abc" not in finding.evidence


def test_the_remedys_command_keeps_the_callers_limits(tmp_path, monkeypatch):
    around = FakeComputer(home=tmp_path)
    up(around.context(), request(settings={"ttl_s": 7200, "idle_s": 600}))
    (finding,) = examined(around, monkeypatch, OOM).reading.findings
    command = finding.commands[0].removeprefix("tgi-deploy up ").split()
    for flag, value in (("--budget", "5"), ("--ttl", "2h"), ("--idle-timeout", "10m"), ("--name", "demo")):
        assert command[command.index(flag) + 1] == value


def test_the_machines_state_reason_is_read(around, monkeypatch):
    (machine,) = around.world.running()
    around.world.reasons[machine.id] = "Server.SpotInstanceTermination"
    found = examined(around, monkeypatch)
    assert [item.code for item in found.reading.findings] == ["spot_reclaimed"]
    assert found.machine.state == "terminated"


def test_a_healthy_deployment_has_no_finding(around, monkeypatch):
    assert examined(around, monkeypatch, "Starting shard\nrouter: Connected\n").reading.findings == ()


def test_diagnosing_changes_nothing(around, monkeypatch):
    before = around.context().store.load("demo")
    examined(around, monkeypatch, OOM)
    assert around.context().store.load("demo") == before


def test_an_unknown_name_is_bad_input(around):
    with pytest.raises(InputError) as caught:
        diagnose_deployment(around.context(), "nobody")
    assert caught.value.code == "unknown_deployment"


def test_the_reason_for_a_state_is_not_a_line_of_the_log(around, monkeypatch):
    (machine,) = around.world.running()
    around.world.reasons[machine.id] = "Server.SpotInstanceTermination"
    (finding,) = examined(around, monkeypatch, "hello\n").reading.findings
    assert (finding.code, finding.line) == ("spot_reclaimed", 0)
    assert finding.evidence.startswith("EC2 state reason")
