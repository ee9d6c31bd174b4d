"""Storms, signals to the caller, skipped calls, and machines that never boot."""

from __future__ import annotations

import signal
import subprocess
import sys

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tgi_deploy.sandbox.faults import FaultTable, Storm, read_fault
from tgi_deploy.sandbox.wire import BadRequestError, Call


def call(action, **params):
    return Call(method="POST", path="/", service="ec2", region="r", action=action, params=params, body=b"")


def strikes(storm, action, count=2000):
    return [storm.strikes(action, ordinal) for ordinal in range(count)]


def test_a_storm_is_reproducible_by_seed():
    assert strikes(Storm(seed=7), "RunInstances") == strikes(Storm(seed=7), "RunInstances")
    assert strikes(Storm(seed=7), "RunInstances") != strikes(Storm(seed=8), "RunInstances")


def test_a_storm_matches_its_probabilities():
    struck = strikes(Storm(seed=1, throttle=0.3, lost_reply=0.1, capacity=0.2, not_found=0.0), "RunInstances")
    assert 0.25 < struck.count("throttle") / len(struck) < 0.35
    assert 0.1 < struck.count("capacity") / len(struck) < 0.16
    assert "capacity" not in strikes(Storm(seed=1), "DescribeImages")
    assert set(strikes(Storm(throttle=0, lost_reply=0, capacity=0, not_found=0), "RunInstances")) == {""}


def test_not_found_applies_only_to_lookups_by_id():
    table = FaultTable()
    table.add(read_fault({"name": "storm", "throttle": 0, "lost_reply": 0, "capacity": 0, "not_found": 1}))
    named = table.take_for_call(call("DescribeInstances", **{"InstanceId.1": "i-1"}))
    assert named is not None
    assert named.code == "InvalidInstanceID.NotFound"
    assert table.take_for_call(call("DescribeInstances")) is None


def test_explicit_faults_take_precedence_over_a_storm():
    table = FaultTable()
    table.add(read_fault({"name": "storm", "throttle": 1}))
    table.add(read_fault({"action": "RunInstances", "code": "Asked"}))
    assert [table.take_for_call(call("RunInstances")).code for _ in range(2)] == ["Asked", "RequestLimitExceeded"]
    assert len(table.pending()) == 1
    table.clear()
    assert table.pending() == ()
    assert table.take_for_call(call("RunInstances")) is None


def test_the_first_calls_pass():
    table = FaultTable()
    table.add(read_fault({"action": "RunInstances", "code": "Third", "skip": 2}))
    assert [table.take_for_call(call("Other"))] == [None]
    hits = [table.take_for_call(call("RunInstances")) for _ in range(4)]
    assert [hit and hit.code for hit in hits] == [None, None, "Third", None]


@pytest.mark.parametrize("document", [{"name": "signal", "signal": "STOP"}, {"name": "storm", "throttle": "wild"}])
def test_invalid_storms_are_rejected(document):
    with pytest.raises(BadRequestError):
        read_fault(document)


def test_a_storm_over_the_wire(cloud):
    cloud.fault(name="storm", throttle=1)
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        cloud.ec2.describe_subnets()
    cloud.control("DELETE", "faults")
    assert cloud.ec2.describe_subnets()["Subnets"]


@pytest.fixture
def victim():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def client_of(cloud, process):
    """Return a client that identifies itself as `process`."""
    return cloud_client(cloud, user_agent_appid=f"pid-{process.pid}")


def cloud_client(cloud, **settings):
    return boto3.Session().client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=cloud.url,
        aws_access_key_id=cloud.access_key,
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, **settings),
    )


def groups(cloud):
    return {one["GroupName"] for one in cloud.ec2.describe_security_groups()["SecurityGroups"]} - {"default"}


def test_killed_before_the_call_takes_effect(cloud, victim):
    cloud.fault(name="signal", action="CreateSecurityGroup")
    with pytest.raises(ConnectionClosedError):
        client_of(cloud, victim).create_security_group(GroupName="one", Description="d")
    assert victim.wait(30) == -signal.SIGKILL
    assert groups(cloud) == set()


def test_killed_after_it_took_effect(cloud, victim):
    cloud.fault(name="signal", action="CreateSecurityGroup", after=True)
    with pytest.raises(ConnectionClosedError):
        client_of(cloud, victim).create_security_group(GroupName="two", Description="d")
    assert victim.wait(30) == -signal.SIGKILL
    assert groups(cloud) == {"two"}


def test_terminated_after_the_reply_was_sent(cloud, victim):
    cloud.fault(name="signal", action="CreateSecurityGroup", signal="TERM", replied=True)
    assert client_of(cloud, victim).create_security_group(GroupName="three", Description="d")["GroupId"]
    assert victim.wait(30) == -signal.SIGTERM
    assert groups(cloud) == {"three"}


def test_an_unidentified_process_is_not_signaled(cloud, victim):
    cloud.fault(name="signal", action="CreateSecurityGroup", signal="TERM")
    assert cloud.ec2.create_security_group(GroupName="four", Description="d")["GroupId"]
    assert victim.poll() is None


def test_a_dark_machine_never_boots(cloud):
    cloud.fault(name="dark", times=2)
    instance = cloud.run("#!/bin/sh\necho up\n")
    cloud.wait(lambda: cloud.state(instance) == "running")
    (machine,) = cloud.control("GET", "machines")["machines"]
    assert machine["booted"] is False
    assert cloud.console(instance) == ""
    cloud.ec2.terminate_instances(InstanceIds=[instance])
    cloud.wait(lambda: cloud.state(instance) == "terminated")
