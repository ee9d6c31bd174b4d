"""Many deployments in the sandbox, by the real command line: counts calls and batches, not time."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

NUMBER = 30


def load_bench():
    path = Path(__file__).parents[3] / "scripts" / "bench_fleet.py"
    spec = importlib.util.spec_from_file_location("bench_fleet", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_fleet"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fleet(program):
    made = load_bench().Fleet.open(program.home)
    made.fill(NUMBER)
    return made


def counted(program, *words):
    program.control("DELETE", "calls")
    result = program.here(*words)
    calls = program.control("GET", "calls")["calls"]
    return result, Counter(call["action"] for call in calls)


def test_many_deployments_are_searched_and_removed_together(program, fleet):
    pages = load_bench().pages(NUMBER)
    result, calls = counted(program, "list")
    assert len(result.json["data"]["deployments"]) == NUMBER
    assert calls.total() <= pages + 2
    result, calls = counted(program, "status")
    assert len(result.json["data"]["deployments"]) == NUMBER
    assert all(item["drift"] == [] for item in result.json["data"]["deployments"])
    assert calls.total() <= pages + 2
    result, calls = counted(program, "down", "--all", "--yes")
    assert result.code == 0
    assert len(result.json["data"]["receipts"]) == NUMBER
    assert calls["TerminateInstances"] == 1
    assert calls["DeleteSecurityGroup"] <= NUMBER * 2, "one more look at most: a volume may outlive its machine a while"
    assert calls["DeleteLaunchTemplate"] == NUMBER
    assert program.instances() == []


def test_resources_changed_by_hand_are_reported_and_removed(program):
    assert program.here("up", "llama3-13b", "--budget", "5", "--name", "tampered", "--no-wait", "--yes").code == 0
    ec2 = program.client("ec2")
    (status,) = program.here("status", "tampered").json["data"]["deployments"]
    assert "security_group_drift" not in {item["code"] for item in status["drift"]}
    ids = {item["kind"]: item["id"] for item in status["resources"]}
    ec2.authorize_security_group_ingress(
        GroupId=ids["security-group"], IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="0.0.0.0/0"
    )
    ec2.delete_tags(Resources=[ids["launch-template"]])
    ec2.stop_instances(InstanceIds=[ids["instance"]])
    (status,) = program.here("status", "tampered").json["data"]["deployments"]
    reported = {item["code"]: item["message"] for item in status["drift"]}
    assert "allows 0.0.0.0/0 to tcp 22" in reported["security_group_drift"]
    assert ids["instance"] in reported["not_running"]
    (of_all,) = program.here("status").json["data"]["deployments"]
    assert {item["code"] for item in of_all["drift"]} == set(reported)
    assert program.here("down", "tampered", "--yes").code == 0
    assert program.instances() == []
    groups = ec2.describe_security_groups()["SecurityGroups"]
    assert [group["GroupName"] for group in groups if group["GroupName"].startswith("tgi-deploy")] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []


def test_an_unreadable_record_is_reported_and_the_others_are_handled(program):
    load_bench().Fleet.open(program.home).fill(3)
    record = program.home / "sandbox" / "records" / "deployments" / "demo-0001" / "deployment.json"
    record.write_text("{")
    result = program.here("status")
    assert (result.code, [item["code"] for item in result.json["warnings"]]) == (0, ["corrupt_record"])
    assert len(result.json["data"]["deployments"]) == 3
    result = program.here("down", "--all", "--yes")
    assert (result.code, [item["code"] for item in result.json["errors"]]) == (1, ["corrupt_record"])
    assert [row["name"] for row in program.instances()] == ["demo-0001"]
    record.unlink()
    assert program.here("down", "--all", "--yes").code == 0
    assert program.instances() == []
