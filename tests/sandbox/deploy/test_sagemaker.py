"""The real command line against SageMaker in the sandbox, whose endpoints take time and run the stub server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from builders.waiting import eventually

NAME = "tgi-deploy-demo"
UP = ("up", "llama3-8b", "--name", "demo", "--target", "sagemaker", "--region", "us-east-1", "--ready", "fast", "--yes")


def done(program, *words):
    """Return the data of a command that succeeds."""
    ran = program.here(*words)
    assert ran.code == 0, ran.json["errors"]
    return ran.json["data"]


def everything(program):
    """Return what exists of SageMaker and beside it, by kind."""
    api = program.client("sagemaker")
    scaled = program.client("application-autoscaling").describe_scalable_targets(ServiceNamespace="sagemaker")
    roles = program.client("iam").list_roles(PathPrefix="/tgi-deploy/")["Roles"]
    groups = program.client("scheduler").list_schedule_groups(NamePrefix="tgi-deploy")["ScheduleGroups"]
    found = {
        "models": [item["ModelName"] for item in api.list_models()["Models"]],
        "configs": [item["EndpointConfigName"] for item in api.list_endpoint_configs()["EndpointConfigs"]],
        "endpoints": [item["EndpointName"] for item in api.list_endpoints()["Endpoints"]],
        "alarms": [item["AlarmName"] for item in program.client("cloudwatch").describe_alarms()["MetricAlarms"]],
        "scaled": [item["ResourceId"] for item in scaled["ScalableTargets"]],
        "roles": [item["RoleName"] for item in roles],
        "schedules": [item["Name"] for item in groups],
    }
    return {kind: names for kind, names in found.items() if names}


def test_an_endpoint_is_brought_up_asked_updated_rolled_back_and_removed(program):
    done(program, *UP[:-3], "--yes")  # with the planned load
    assert done(program, "ask", "demo", "Hello")["answer"]
    opened = done(program, "open", "demo")
    assert opened["url"].endswith(f"/endpoints/{NAME}/invocations")
    assert opened["curl"].startswith(
        f"aws sagemaker-runtime invoke-endpoint --region us-east-1 --endpoint-name {NAME} "
    )
    assert "Connected" in program.run("logs", "demo", "--sandbox").out
    done(program, *UP, "--quantize", "fp8")
    assert everything(program)["models"] == [f"{NAME}-r2"]
    done(program, "rollback", "demo", "--yes")
    kinds = everything(program)
    assert (kinds["models"], kinds["configs"], kinds["endpoints"]) == ([f"{NAME}-r3"], [f"{NAME}-r3"], [NAME])
    (receipt,) = done(program, "down", "demo", "--yes")["receipts"]
    assert everything(program) == {}
    assert [item["id"] for item in receipt["resources"] if item["kind"] == "endpoint"] == [
        f"{NAME}-r1", f"{NAME}-r2", f"{NAME}-r3"
    ]  # fmt: skip


def test_weights_that_do_not_fit_are_diagnosed_from_the_log_and_the_name_is_free(program):
    program.fault(name="engine", engine="oom-load", times=1000)
    failed = program.here(*UP, "--on-failure", "remove")
    assert failed.code == 5
    (error,) = failed.json["errors"]
    assert "out_of_memory" in json.dumps(error) or "oom" in json.dumps(error)
    assert everything(program) == {}
    program.control("DELETE", "faults")
    done(program, *UP)


def test_an_update_that_fails_leaves_the_former_revision_in_service(program):
    done(program, *UP)
    program.fault(name="engine", engine="oom-load", times=1000)
    failed = program.here(*UP, "--quantize", "fp8", "--on-failure", "remove")
    assert failed.code == 5
    kinds = everything(program)
    assert (kinds["models"], kinds["configs"], kinds["endpoints"]) == ([f"{NAME}-r1"], [f"{NAME}-r1"], [NAME])
    done(program, "ask", "demo", "Hello")


class Streams(threading.Thread):
    """Streams one answer after another through the runtime. `cut` are those that were refused or incomplete."""

    def __init__(self, program):
        super().__init__(daemon=True)
        self.runtime = program.client("sagemaker-runtime", config=Config(retries={"total_max_attempts": 1}))
        self.ending = threading.Event()
        self.whole, self.cut = 0, []

    def run(self):
        body = json.dumps({"inputs": "go on", "parameters": {"max_new_tokens": 1024}, "stream": True})
        asked = {"EndpointName": NAME, "Body": body, "ContentType": "application/json"}
        while not self.ending.is_set():
            try:
                answer = self.runtime.invoke_endpoint_with_response_stream(**asked)["Body"]
                text = b"".join(event["PayloadPart"]["Bytes"] for event in answer)
                assert b'"generated_text":"' in text
                self.whole += 1
            except (ClientError, EventStreamError, KeyError, AssertionError) as error:
                self.cut.append(repr(error))


def test_an_update_neither_refuses_a_request_nor_cuts_a_stream(program):
    done(program, *UP)
    crowd = [Streams(program) for _ in range(3)]
    for streams in crowd:
        streams.start()
    done(program, *UP, "--quantize", "fp8")
    for streams in crowd:
        streams.ending.set()
        streams.join(30)
    assert [streams.cut for streams in crowd] == [[], [], []]
    assert all(streams.whole > 3 for streams in crowd)


def test_a_range_is_left_to_aws_and_a_number_is_set_at_once(program):
    done(program, *UP)
    assert done(program, "scale", "demo", "2")["replicas"] == 2
    assert [item["status"] for item in done(program, "status", "demo")["replicas"]] == ["ready", "ready"]
    done(program, *UP, "--replicas", "1..3")
    scaling = program.client("application-autoscaling")
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 3)
    done(program, "down", "demo", "--yes")
    assert everything(program) == {}


@pytest.mark.parametrize("limit", [("--idle-timeout", "10m"), ("--max-spend", "5")])
def test_limits_that_nothing_would_hold_are_refused(program, limit):
    refused = program.here(*UP, *limit)
    assert (refused.code, everything(program)) == (2, {})


LONG = (*UP, "--instance", "ml.g6.xlarge", "--context", "8192", "--output-tokens", "1500:4000")


def pasted(program, line):
    """Return what a line prints in a shell with the sandbox's credentials."""
    known = {"AWS_ENDPOINT_URL": program.url, "AWS_ACCESS_KEY_ID": program.access_key, "AWS_SECRET_ACCESS_KEY": "any"}
    words = shlex.split(line)
    words[0] = sys.executable
    return subprocess.run(words, env=os.environ | known, capture_output=True, check=True, timeout=60).stdout.decode()


def test_answers_of_more_than_a_minute_are_planned_and_asked_for_as_streams_only(program):
    shown = program.run("plan", *LONG[1:2], *LONG[4:8], *LONG[11:]).out
    assert "streaming only" in "".join(shown.splitlines()[:15])
    done(program, *LONG)
    whole = len(program.calls("InvokeEndpoint"))
    assert done(program, "ask", "demo", "Hello")["answer"]
    opened = done(program, "open", "demo")
    assert opened["curl"].startswith("python3 -c ")
    for line in (opened["curl"], f"python3 -c {shlex.quote(opened['python'])}"):
        assert "invoke_endpoint_with_response_stream" in line
        assert '"generated_text":"' in pasted(program, line)
    assert len(program.calls("InvokeEndpoint")) == whole
    assert len(program.calls("InvokeEndpointWithResponseStream")) >= 3


def test_answers_of_less_than_a_minute_may_be_asked_for_as_a_whole(program):
    done(program, *UP)
    opened = done(program, "open", "demo")
    assert "invoke-endpoint " in opened["curl"]
    assert opened["first"] == 'eval "$(tgi-deploy sandbox start)"'
    assert "generated_text" in pasted(program, f"python3 -c {shlex.quote(opened['python'])}")


def test_an_alarm_during_an_update_brings_the_former_revision_back(program):
    done(program, *UP)
    alarms = program.client("cloudwatch")

    def set_off():
        while not alarms.describe_alarms(AlarmNames=[f"{NAME}-r2"])["MetricAlarms"]:
            time.sleep(0.02)
        alarms.set_alarm_state(AlarmName=f"{NAME}-r2", StateValue="ALARM", StateReason="a test")

    setter = threading.Thread(target=set_off, daemon=True)
    setter.start()
    failed = program.here(*UP, "--quantize", "fp8", "--on-failure", "remove")
    setter.join(10)
    assert failed.code in {1, 5}
    assert f"{NAME}-r2" in json.dumps(failed.json["errors"])
    kinds = everything(program)
    assert (kinds["models"], kinds["configs"], "alarms" in kinds) == ([f"{NAME}-r1"], [f"{NAME}-r1"], False)
    done(program, "ask", "demo", "Hello")


WHOLE_LIFE = (*UP, "--create-role", "--ttl", "2h", "--replicas", "1..3")


@pytest.mark.parametrize("left", ["an endpoint that runs", "what a schedule has left"])
def test_gc_removes_an_endpoint_without_a_record_and_all_that_belongs_to_it(program, left):
    done(program, *WHOLE_LIFE)
    done(program, *WHOLE_LIFE, "--quantize", "fp8")
    kinds = {"models", "configs", "endpoints", "alarms", "scaled", "roles", "schedules"}
    assert everything(program).keys() == kinds
    shutil.rmtree(program.home / "sandbox" / "records" / "deployments")
    asked = ("gc", "--target", "sagemaker", "--region", "us-east-1", "--older-than", "0s", "--yes")
    if left == "an endpoint that runs":
        kept = done(program, *asked)
        assert (kept["orphans"], everything(program).keys()) == ([], kinds)
        asked = (*asked, "--include-unrecorded")
    else:
        program.client("sagemaker").delete_endpoint(EndpointName=NAME)
        eventually(lambda: "endpoints" not in everything(program))
    assert done(program, *asked)["removed"] == ["demo"]
    assert everything(program) == {}
