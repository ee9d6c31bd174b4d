"""`doctor` and the preflight of a launch, by the real command line against the sandbox."""

from __future__ import annotations

import json

import pytest

from tgi_deploy import wiring

REQUEST = ("llama3-13b", "--budget", "5")
DENIED = {
    "code": "UnauthorizedOperation",
    "status": 403,
    "message": "You are not authorized to perform this operation.",
}
QUOTA_REQUEST = "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-DB2E81BA"


def found(result, severity):
    return {item["code"] for item in result.json["data"]["findings"] if item["severity"] == severity}


def test_a_model_in_the_sandbox_has_no_findings(program):
    result = program.here("doctor", *REQUEST)
    assert result.code == 0, result.out
    assert found(result, "error") == set()
    assert {"identity", "clock", "region", "machine_image", "zones", "permissions", "quota"} <= found(result, "ok")
    assert {"subnet", "disk", "user_data", "hub_access", "state_folder"} <= found(result, "ok")
    assert result.json["data"]["summary"]["error"] == 0
    assert program.instances() == []


def test_doctor_without_a_model_checks_the_account(program):
    result = program.here("doctor")
    assert result.code == 0
    assert "quota" not in found(result, "ok")


def test_a_low_quota_is_an_error_with_the_request_to_run(program):
    program.fault(name="low-quota")
    result = program.run("doctor", *REQUEST, "--instance", "g6e.xlarge", "--sandbox")
    assert result.code == 1
    assert "limit 0, in use 0, needed 4 vCPUs" in " ".join(result.out.split())
    assert f"→ {QUOTA_REQUEST} --desired-value 4 --region us-east-1" in result.out
    assert "error[quota_exceeded]" in result.err


def test_preflight_stops_before_anything_is_created(program):
    program.fault(action="DryRun:RunInstances", **DENIED)
    result = program.here("up", *REQUEST, "--no-wait", "--yes")
    assert result.code == 1
    (error,) = result.json["errors"]
    assert error["code"] == "permission_denied"
    assert "ec2:RunInstances is not allowed" in error["message"]
    assert program.calls("CreateSecurityGroup") == []
    assert program.here("up", *REQUEST, "--no-wait", "--yes").code == 0


def test_preflight_makes_at_most_eight_calls(program):
    def calls(*more):
        program.here("up", *REQUEST, "--dry-run", *more)
        return len(program.all_calls())

    without = calls("--no-preflight")
    assert calls() - 2 * without <= 8


def test_doctor_warnings_are_in_the_envelope(program):
    program.fault(action="GetServiceQuota", code="AccessDeniedException", status=400, message="no")
    result = program.here("up", *REQUEST, "--dry-run")
    assert result.code == 0
    (reported,) = [item["message"] for item in result.json["warnings"] if item["code"] == "not_checked"]
    assert "servicequotas:GetServiceQuota is not allowed" in reported


def test_a_quota_exceeded_at_launch_prints_the_increase_request(program):
    program.fault(name="quota", times=9)
    result = program.here("up", *REQUEST, "--instance", "g6e.xlarge", "--no-wait", "--yes")
    assert result.code == 1
    (error,) = result.json["errors"]
    assert error["code"] == "quota_exceeded"
    assert f"{QUOTA_REQUEST} --desired-value 772 --region us-east-1" in error["hint"], "more than the limit of 768"
    assert result.json["data"]["quotas"][0]["limit_vcpus"] == 768
    assert len(program.calls("RunInstances")) == 1


def test_the_next_run_remembers_pools_without_capacity(program):
    program.fault(name="capacity", times=1)
    assert program.here("up", *REQUEST, "--no-wait", "--yes").code == 0
    program.here("down", "llama3-13b", "--yes")
    again = program.run("up", *REQUEST, "--no-wait", "--yes", "--sandbox")
    assert "us-east-1a/g5.xlarge/on-demand: InsufficientInstanceCapacity" in again.err
    assert "skipped for now" in again.err
    zones = [call["params"]["Placement.AvailabilityZone"] for call in program.calls("RunInstances")]
    assert zones == ["us-east-1a", "us-east-1b", "us-east-1b"]
    program.here("down", "llama3-13b", "--yes")


def test_without_credentials_doctor_reports_the_rest(program, monkeypatch, tmp_path):
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(tmp_path))
    result = program.run("doctor", *REQUEST, "--json")
    assert result.code == 1
    assert result.json["errors"][0]["code"] == "no_credentials"
    assert {"python", "state_folder", "extras"} <= found(result, "ok")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--for", "launch"), "conflicting_options"),
        (("--policy", "--for", "launch", "--all"), "conflicting_options"),
        (("--boundary",), "conflicting_options"),
        (("--policy", "--for", "launch", "--boundary"), "conflicting_options"),
        (("--policy", "--for", "lunch"), "bad_option_value"),
    ],
)
def test_invalid_policy_options_are_rejected(program, words, code):
    result = program.run("doctor", *words, "--json")
    assert (result.code, result.json["errors"][0]["code"]) == (2, code)


def test_the_printed_policy_can_be_pasted(program):
    document = json.loads(program.run("doctor", "--policy").out)
    assert document["Version"] == "2012-10-17"
    assert "ssm:PutParameter" not in json.dumps(document)
    assert "ssm:PutParameter" in program.run("doctor", "--policy", "--all").out
    alone = json.loads(program.run("doctor", "--policy", "--for", "remove").out)
    assert {statement["Sid"] for statement in alone["Statement"]} == {"Ours"}


def test_the_boundary_is_printed_with_the_policy_and_alone(program):
    alone = program.run("doctor", "--policy", "--boundary")
    beside = program.run("doctor", "--policy", "--for", "secrets", "--json").json["data"]["boundary"]
    assert json.loads(alone.out) == beside["policy"]
    assert beside["name"] in beside["command"]
    assert '--policy-document "$(tgi-deploy doctor --policy --boundary)"' in beside["command"]
    assert beside["command"] in program.run("doctor", "--policy", "--all").err
    assert program.run("doctor", "--policy", "--json").json["data"]["boundary"] is None
    assert program.run("doctor", "--policy").err == ""


def test_offline_does_not_contact_the_hub(program, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_nothing")
    monkeypatch.setattr(wiring, "_hub", lambda: pytest.fail("asked"))
    result = program.here("doctor", "gemma2-2b", "--budget", "5", "--offline")
    assert result.code == 0


def test_in_the_sandbox_any_token_may_read_a_gated_model(program):
    result = program.here("doctor", "gemma2-2b", "--budget", "5")
    assert "hub_access" in found(result, "ok")
    assert result.json["warnings"] == []


def test_without_a_free_address_no_machine_is_launched(program):
    ec2 = program.client("ec2")
    for _ in range(5):
        ec2.allocate_address(Domain="vpc")
    assert "quota_exceeded" in found(program.here("doctor", "llama3-13b", "--budget", "5", "--static-ip"), "error")
    for more in ((), ("--no-preflight",)):
        result = program.here("up", "llama3-13b", "--budget", "5", "--yes", "--name", "demo", "--static-ip", *more)
        (problem,) = result.json["errors"]
        assert (result.code, problem["code"]) == (1, "quota_exceeded")
        assert "--quota-code L-0263D0A3 --desired-value 6 --region us-east-1" in problem["hint"]
    assert program.control("GET", "machines")["machines"] == []
    assert program.here("list").json["data"]["deployments"] == []
