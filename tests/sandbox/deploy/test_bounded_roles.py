"""Roles that `up` makes carry the boundary; the printed policy allows what is asked of IAM and the parameter store."""

from __future__ import annotations

import json

import boto3
import pytest
from builders.iam import allows

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.sandbox import api
from tgi_deploy.targets.ec2.policy import policy

ACTIONS = read_actions()
PRINTED = policy(ACTIONS, tuple(ACTIONS.features))
ACCOUNT = "123456789012"
BOUNDARY = ACTIONS.boundary.arn(ACCOUNT, "aws")
UP = ("up", "llama3-8b", "--yes", "--no-wait", "--api-key-from-env", "KEY", "--ttl", "1h", "--external-ttl")
SERVICES = ("iam", "ssm")  # the log does not show what a call of the scheduler is about


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_made_up_0123456789")
    monkeypatch.setenv("KEY", "made-up-key-0123456789")


def client(program, service):
    return boto3.client(
        service,
        endpoint_url=program.url,
        aws_access_key_id=program.access_key,
        aws_secret_access_key="x",
        region_name="us-east-1",
    )


class Requests:
    """What the calls of a run are to IAM: action, resource and keys. Roles are remembered by their name."""

    def __init__(self):
        self.roles = {}

    def of(self, call):
        """As [action, resource, keys], one for each permission that the call needs."""
        action, given = f"{call['service']}:{call['action']}", call["params"]
        if call["service"] == "iam":
            return self._of_iam(action, given)
        names = given.get("Names") or [given.get("Name") or given.get("ResourceId") or ""]
        keys = {"ssm:Overwrite": str(given["Overwrite"]).lower()} if "Overwrite" in given else {}
        owner = "" if names[0].startswith("/aws/") else ACCOUNT
        return [(action, f"arn:aws:ssm:us-east-1:{owner}:parameter{name}", keys) for name in names]

    def _of_iam(self, action, given):
        if action == "iam:CreateRole":
            arn = f"arn:aws:iam::{ACCOUNT}:role{given['Path']}{given['RoleName']}"
            self.roles[given["RoleName"]] = (arn, {"iam:PermissionsBoundary": given["PermissionsBoundary"]})
        if "PolicyArn" in given and "RoleName" not in given:
            return [(action, given["PolicyArn"], {})]
        if "InstanceProfileName" in given:
            named = given["InstanceProfileName"]
            profile = (action, f"arn:aws:iam::{ACCOUNT}:instance-profile/tgi-deploy/us-east-1/llama3-8b/{named}", {})
            passed = "RoleName" in given and action == "iam:AddRoleToInstanceProfile"
            return [profile, *([self._passed(given["RoleName"], "ec2.amazonaws.com")] if passed else [])]
        return [(action, *self.roles.get(given.get("RoleName"), (f"arn:aws:iam::{ACCOUNT}:role/", {})))]

    def _passed(self, role, service):
        return ("iam:PassRole", self.roles[role][0], {"iam:PassedToService": service})


def test_every_role_of_a_deployment_carries_the_boundary(program):
    assert program.here(*UP).code == 0
    made = program.calls("CreateRole")
    assert len(made) == 2
    assert {call["params"]["PermissionsBoundary"] for call in made} == {BOUNDARY}
    assert program.here("down", "llama3-8b", "--yes").code == 0


def test_the_printed_policy_allows_what_is_asked_of_iam_and_the_parameter_store(program):
    """With resources and conditions, by IAM's rules: moto's own enforcement looks at actions alone."""
    assert program.here(*UP).code == 0
    assert program.here("down", "llama3-8b", "--yes").code == 0
    asked = Requests()
    calls = [call for call in program.all_calls() if call["service"] in SERVICES]
    needed = [request for call in calls for request in asked.of(call)]
    names = {action for action, _, _ in needed}
    assert {"iam:CreateRole", "iam:PutRolePolicy", "iam:PassRole", "ssm:PutParameter", "iam:DeleteRole"} <= names
    assert [request for request in needed if not allows(PRINTED, *request)] == []


def test_without_the_boundary_nothing_is_made(program):
    client(program, "iam").delete_policy(PolicyArn=BOUNDARY)
    said = program.here(*UP)
    assert (said.code, said.json["errors"][0]["code"]) == (1, "boundary_missing")
    assert "aws iam create-policy --policy-name tgi-deploy-boundary" in said.json["errors"][0]["hint"]
    assert program.calls("CreateSecurityGroup") == []


def test_a_boundary_found_missing_on_the_way_leaves_nothing(program):
    client(program, "iam").delete_policy(PolicyArn=BOUNDARY)
    said = program.here(*UP, "--no-preflight")
    assert (said.code, said.json["errors"][0]["code"]) == (1, "boundary_missing")
    assert len(program.calls("CreateSecurityGroup")) == len(program.calls("DeleteSecurityGroup")) == 1
    assert program.calls("RunInstances") == []
    assert program.instances() == []


def test_the_command_that_is_named_makes_the_boundary_that_up_looks_for(program):
    client(program, "iam").delete_policy(PolicyArn=BOUNDARY)
    document = program.run("doctor", "--policy", "--boundary").out
    client(program, "iam").create_policy(PolicyName=ACTIONS.boundary.name, PolicyDocument=document)
    said = program.here(*UP)
    assert (said.code, [item for item in said.json["warnings"] if item["code"].startswith("boundary")]) == (0, [])


def test_what_the_boundary_leaves_out_no_machine_may_do(program):
    up = program.here(*UP)
    made = {item["key"]: item["id"] for item in up.json["data"]["deployment"]["resources"]}
    wide = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam, ssm = client(program, "iam"), client(program, "ssm")
    iam.put_role_policy(RoleName=made["machine-role"], PolicyName="wide", PolicyDocument=json.dumps(wide))
    ssm.put_parameter(Name="/production/database", Value="x", Type="SecureString")
    endpoint = api.Endpoint(url=program.url, access_key=program.access_key, instance_id=made["instance@1.1"])
    with pytest.raises(api.ApiError, match="AccessDenied"):
        api.ssm(endpoint, "us-east-1", "GetParameter", {"Name": "/production/database"})
    assert api.ssm(endpoint, "us-east-1", "GetParameter", {"Name": made["api-key"]})["Parameter"]["Name"]
