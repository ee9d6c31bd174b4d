"""Roles created by `up` have the permissions boundary."""

from __future__ import annotations

import json

import pytest

from tgi_deploy.catalog.actions import read_actions

ACTIONS = read_actions()
ACCOUNT = "123456789012"
BOUNDARY = ACTIONS.boundary.arn(ACCOUNT, "aws")
UP = ("up", "llama3-8b", "--yes", "--no-wait", "--api-key-from-env", "KEY", "--ttl", "1h", "--external-ttl")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_made_up_0123456789")
    monkeypatch.setenv("KEY", "made-up-key-0123456789")


def test_every_role_of_a_deployment_has_the_boundary(program):
    assert program.here(*UP).code == 0
    made = program.calls("CreateRole")
    assert len(made) == 2
    assert {call["params"]["PermissionsBoundary"] for call in made} == {BOUNDARY}
    assert program.here("down", "llama3-8b", "--yes").code == 0


def test_without_the_boundary_nothing_is_created(program):
    program.client("iam").delete_policy(PolicyArn=BOUNDARY)
    result = program.here(*UP)
    assert (result.code, result.json["errors"][0]["code"]) == (1, "boundary_missing")
    assert "aws iam create-policy --policy-name tgi-deploy-boundary" in result.json["errors"][0]["hint"]
    assert program.calls("CreateSecurityGroup") == []


def test_a_boundary_missing_midway_leaves_nothing(program):
    program.client("iam").delete_policy(PolicyArn=BOUNDARY)
    result = program.here(*UP, "--no-preflight")
    assert (result.code, result.json["errors"][0]["code"]) == (1, "boundary_missing")
    assert len(program.calls("CreateSecurityGroup")) == len(program.calls("DeleteSecurityGroup")) == 1
    assert program.calls("RunInstances") == []
    assert program.instances() == []


def test_the_printed_command_creates_the_boundary(program):
    program.client("iam").delete_policy(PolicyArn=BOUNDARY)
    document = program.run("doctor", "--policy", "--boundary").out
    program.client("iam").create_policy(PolicyName=ACTIONS.boundary.name, PolicyDocument=document)
    result = program.here(*UP)
    assert (result.code, [item for item in result.json["warnings"] if item["code"].startswith("boundary")]) == (0, [])


def test_the_boundary_limits_what_machines_may_do(program):
    up = program.here(*UP)
    made = {item["key"]: item["id"] for item in up.json["data"]["deployment"]["resources"]}
    wide = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam, ssm = program.client("iam"), program.client("ssm")
    iam.put_role_policy(RoleName=made["machine-role"], PolicyName="wide", PolicyDocument=json.dumps(wide))
    ssm.put_parameter(Name="/production/database", Value="x", Type="SecureString")
    assert "AccessDenied" in program.parameter("get", "/production/database")
    assert "error" not in program.parameter("get", made["api-key"])
