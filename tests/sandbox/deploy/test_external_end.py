"""A machine whose own timer never runs is terminated from outside."""

from __future__ import annotations

import json

import boto3
import pytest
from builders.waiting import eventually

from tgi_deploy.sandbox import api, control


@pytest.fixture
def fast(tmp_path, monkeypatch):
    """A separate sandbox, in which timers and schedules run 300 times as fast."""
    home = tmp_path / "state"
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(home))
    info = control.start(home / "sandbox", speed=600.0, timer_speed=300.0)
    yield info
    control.stop(home / "sandbox")


def states(info):
    ec2 = boto3.client(
        "ec2",
        endpoint_url=info.endpoint_url,
        aws_access_key_id=info.access_key,
        aws_secret_access_key="x",
        region_name="us-east-1",
    )
    return [item["State"]["Name"] for group in ec2.describe_instances()["Reservations"] for item in group["Instances"]]


@pytest.mark.slow
def test_the_schedule_terminates_a_machine_whose_timer_is_dead(fast, capsys):
    from tgi_deploy.cli import frame  # noqa: PLC0415 -- after the state folder is set
    from tgi_deploy.cli.main import ROOT  # noqa: PLC0415 -- startup time

    def run(*words):
        code = frame.run(ROOT, (*words, "--sandbox", "--json"))
        return code, json.loads(capsys.readouterr().out)

    api.control(fast.endpoint, "POST", "/_sandbox/faults", {"name": "dark", "times": 2})
    words = ("up", "llama3-13b", "--yes", "--no-wait", "--ttl", "5m")
    assert run(*words, "--name", "none")[0] == 0
    assert run(*words, "--name", "belt", "--external-ttl")[0] == 0
    eventually(lambda: sorted(states(fast)) == ["running", "terminated"])
    assert states(fast)[0] == "running"  # by the same moment, and with nobody outside to end it
    for name in ("belt", "none"):
        code, answer = run("down", name, "--yes")
        assert (code, answer["data"]["removed"]) == (0, [name])


@pytest.mark.slow
def test_the_schedule_deletes_an_endpoint_that_sagemaker_was_still_creating(fast, capsys):
    from tgi_deploy.cli import frame  # noqa: PLC0415 -- after the state folder is set
    from tgi_deploy.cli.main import ROOT  # noqa: PLC0415 -- startup time

    def run(*words):
        code = frame.run(ROOT, (*words, "--sandbox", "--json"))
        return code, json.loads(capsys.readouterr().out)

    hosting = boto3.client(
        "sagemaker",
        endpoint_url=fast.endpoint_url,
        aws_access_key_id=fast.access_key,
        aws_secret_access_key="x",
        region_name="us-east-1",
    )
    words = ("up", "llama3-8b", "--target", "sagemaker", "--region", "us-east-1", "--yes", "--no-wait", "--ttl", "5m")
    assert run(*words, "--name", "demo")[0] == 0
    assert hosting.list_endpoints()["Endpoints"]
    eventually(lambda: not hosting.list_endpoints()["Endpoints"])
    assert hosting.list_models()["Models"]
    code, answer = run("down", "demo", "--yes")
    assert (code, answer["data"]["removed"]) == (0, ["demo"])
    assert hosting.list_models()["Models"] == hosting.list_endpoint_configs()["EndpointConfigs"] == []
