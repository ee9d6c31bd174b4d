"""Stored secrets, roles, instance profiles and schedules: created, updated, found by tags and removed, on the wire."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.errors import InputError
from tgi_deploy.reconcile.errors import BadRequestError, ExistsError, InUseError, PermissionDeniedError
from tgi_deploy.secret import Secret
from tgi_deploy.targets.ec2 import cloud as aws_cloud
from tgi_deploy.targets.ec2.commands import removal_command
from tgi_deploy.targets.ec2.external_end import external_end
from tgi_deploy.targets.ec2.secrets import Secrets, SecretSource, delivery
from tgi_deploy.values.resource import Found

CANARY = "hf_canary0123456789"
IDENTITY = "0123456789ab"
REGION = "us-east-1"
BOUNDARY = read_actions().boundary
BOUNDARY_ARN = BOUNDARY.arn("123456789012", "aws")


def tags(key, **changes):
    return {
        "Name": "tgi-deploy-demo",
        "tgi-deploy:deployment": "demo",
        "tgi-deploy:id": IDENTITY,
        "tgi-deploy:key": key,
        "tgi-deploy:spec": "s1",
    } | changes


def wanted(**secrets):
    """The resources of a deployment with a hub token and an API key, by key."""
    given = {
        "hub_token": SecretSource(reference="env:HF_TOKEN"),
        "api_key": SecretSource(reference="env:KEY"),
    } | secrets
    made = delivery(Secrets(**given), name="demo", deployment_id=IDENTITY, region=REGION)
    return {item.key: item for item in made.resources}


@pytest.fixture
def cloud(bench):
    return replace(bench.cloud(), secret_of=lambda reference: Secret(f"{CANARY}-{reference}"))


@pytest.fixture
def make(cloud):
    """Create and complete one, with what it refers to filled in."""

    def make(resource, token="t", **filled):  # noqa: S107 -- a request token
        handler = cloud.handler(resource.kind)
        properties = {**resource.properties, **filled}
        found = handler.create(properties, tags=tags(resource.key), token=token)
        handler.update(found.attributes, properties)
        return found

    return make


@pytest.fixture
def role(make):
    return make(wanted()["machine-role"])


@pytest.fixture
def profile(make, role):
    return make(wanted()["instance-profile"], role=role.id)


def client(bench, service):
    return bench.sessions.client(service, REGION)


def test_a_secret_is_stored_encrypted_under_its_own_name_with_its_tags(bench, cloud, make):
    made = make(wanted()["hub-token"])
    assert made.id == f"/tgi-deploy/demo-{IDENTITY}/hub-token"
    (call,) = bench.calls("PutParameter")
    assert (call["Type"], call["Overwrite"]) == ("SecureString", False)
    assert {tag["Key"] for tag in call["Tags"]} >= {"tgi-deploy:id", "tgi-deploy:spec"}
    stored = client(bench, "ssm").get_parameter(Name=made.id, WithDecryption=True)["Parameter"]
    assert stored["Value"] == f"{CANARY}-env:HF_TOKEN"
    (found,) = cloud.handler("parameter").find({"tgi-deploy:deployment": "demo", "tgi-deploy:key": "hub-token"})
    assert (found.id, found.spec, found.place) == (made.id, "s1", REGION)
    assert found.attributes["created"]


def test_a_stored_secret_is_never_overwritten(make, cloud):
    make(wanted()["hub-token"])
    with pytest.raises(ExistsError):
        make(wanted()["hub-token"])


def test_an_error_does_not_quote_the_secret(bench, make):
    message = f"Value '{CANARY}-env:HF_TOKEN' at 'value' failed to satisfy a constraint"
    bench.fault(action="PutParameter", code="ValidationException", message=message)
    with pytest.raises(BadRequestError) as caught:
        make(wanted()["hub-token"])
    assert "Value '***'" in caught.value.message
    assert CANARY not in "".join(map(str, (caught.value, caught.value.args, caught.value.__cause__)))


def test_the_role_may_read_its_own_two_parameters_and_nothing_else(bench, role):
    policy = client(bench, "iam").get_role_policy(RoleName=role.id, PolicyName="tgi-deploy")["PolicyDocument"]
    folder = f"arn:aws:ssm:us-east-1:123456789012:parameter/tgi-deploy/demo-{IDENTITY}"
    (statement,) = policy["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Action": "ssm:GetParameter",
        "Resource": [f"{folder}/hub-token", f"{folder}/api-key"],
    }


def test_only_ec2_may_assume_the_regional_role(bench, role):
    made = client(bench, "iam").get_role(RoleName=role.id)["Role"]
    assert made["Path"] == "/tgi-deploy/us-east-1/demo/"
    (statement,) = made["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "ec2.amazonaws.com"}


def test_a_role_has_the_permissions_boundary(bench, role):
    made = client(bench, "iam").get_role(RoleName=role.id)["Role"]
    assert made["PermissionsBoundary"]["PermissionsBoundaryArn"] == BOUNDARY_ARN


def test_without_the_boundary_no_role_is_created_and_the_command_is_printed(bench, make):
    client(bench, "iam").delete_policy(PolicyArn=BOUNDARY_ARN)
    with pytest.raises(BadRequestError) as caught:
        make(wanted()["machine-role"])
    assert caught.value.code == "boundary_missing"
    assert BOUNDARY_ARN in caught.value.message
    assert BOUNDARY.creation in caught.value.hint
    assert client(bench, "iam").list_roles(PathPrefix="/tgi-deploy/")["Roles"] == []


def test_iam_resources_are_listed_only_in_their_region(bench, profile):
    assert [found.kind for found in bench.cloud().find({})] == ["role", "instance-profile"]
    assert bench.cloud("eu-west-1").find({}) == ()


def test_adding_the_role_to_the_profile_twice_changes_nothing(bench, cloud, profile, role):
    cloud.handler("instance-profile").update(profile.attributes, {"role": role.id})
    held = client(bench, "iam").get_instance_profile(InstanceProfileName=profile.id)["InstanceProfile"]["Roles"]
    assert [item["RoleName"] for item in held] == [role.id]
    assert len(bench.calls("AddRoleToInstanceProfile")) == 1


def test_a_role_is_not_added_twice_after_a_lost_reply(bench, cloud, make, role):
    bench.fault(name="lost-reply", action="AddRoleToInstanceProfile")
    profile = make(wanted()["instance-profile"], role=role.id)
    held = client(bench, "iam").get_instance_profile(InstanceProfileName=profile.id)["InstanceProfile"]["Roles"]
    assert len(held) == 1


def test_a_role_that_is_not_visible_yet_is_awaited(bench, make):
    bench.fault(action="PutRolePolicy", code="NoSuchEntity", status=404, times=3)
    make(wanted()["machine-role"])
    assert len(bench.calls("PutRolePolicy")) == 4
    assert bench.clock.seconds == 9


@pytest.mark.parametrize(
    "message",
    [
        "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        "IAM Instance Profile arn:aws:iam::1:instance-profile/p has no associated IAM Roles",
    ],
)
def test_a_launch_waits_for_a_new_instance_profile(bench, message):
    bench.fault(action="RunInstances", code="InvalidParameterValue", message=message, times=2)
    assert bench.launch().id
    assert len(bench.calls("RunInstances")) == 3


def test_profiles_and_roles_are_deleted_with_their_attachments(bench, cloud, profile, role):
    with pytest.raises(InUseError):
        cloud.handler("role").delete(role.attributes)
    iam = client(bench, "iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    iam.put_role_policy(RoleName=role.id, PolicyName="by-hand", PolicyDocument=document)
    other = iam.create_policy(PolicyName="more", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role.id, PolicyArn=other)
    for found in (profile, role):
        cloud.handler(found.kind).delete(found.attributes)
        assert cloud.handler(found.kind).read(found.attributes) is None
        cloud.handler(found.kind).delete(found.attributes)
    assert cloud.find({}) == ()


@pytest.fixture
def end(make):
    role, schedule = external_end(
        name="demo",
        deployment_id=IDENTITY,
        region=REGION,
        expires=datetime(2030, 1, 9, 12, tzinfo=UTC),
        machine_key="instance",
    )
    made = make(role)
    return schedule, {"role": made.attributes["arn"], "instance": "i-0123456789abcdef0"}


def scheduled(bench):
    return client(bench, "scheduler").get_schedule(Name="end", GroupName=f"tgi-deploy-demo-{IDENTITY}")


def test_the_schedule_runs_once_five_minutes_after_the_limit(bench, make, end):
    resource, filled = end
    make(resource, **filled)
    made = scheduled(bench)
    assert made["ScheduleExpression"] == "at(2030-01-09T12:05:00)"
    assert made["ActionAfterCompletion"] == "DELETE"
    assert made["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
    assert json.loads(made["Target"]["Input"]) == {"InstanceIds": ["i-0123456789abcdef0"]}


def test_updating_the_schedule_moves_it(bench, cloud, make, end):
    resource, filled = end
    found = make(resource, **filled)
    moved = {**resource.properties, **filled, "at": "2031-01-01T00:00:00"}
    cloud.handler("schedule").update(found.attributes, moved)
    assert scheduled(bench)["ScheduleExpression"] == "at(2031-01-01T00:00:00)"


def test_the_schedule_follows_the_limit_and_cannot_be_lifted(bench, cloud, make, end):
    resource, filled = end
    make(resource, **filled)
    role, group = (cloud.handler(kind).find({"tgi-deploy:id": IDENTITY}) for kind in ("role", "schedule"))
    seen = (*role, *group, a_machine())
    cloud.move_outside_end(seen, datetime(2030, 1, 9, 15, tzinfo=UTC))
    moved = scheduled(bench)
    assert moved["ScheduleExpression"] == "at(2030-01-09T15:05:00)"
    assert json.loads(moved["Target"]["Input"]) == {"InstanceIds": ["i-0123456789abcdef0"]}
    with pytest.raises(InputError) as caught:
        cloud.move_outside_end(seen, None)
    assert caught.value.code == "external_end_fixed"
    cloud.move_outside_end((), None)


def a_machine():
    attributes = {"id": "i-0123456789abcdef0"}
    return Found(
        key="instance", kind="instance", place=REGION, attributes=attributes, tags={}, state="running", is_machine=True
    )  # fmt: skip


def test_a_role_the_scheduler_cannot_assume_yet_is_awaited(bench, make, end):
    message = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
    bench.fault(action="CreateSchedule", code="ValidationException", message=message, times=2)
    make(end[0], **end[1])
    assert scheduled(bench)["State"] == "ENABLED"


def test_a_schedule_is_deleted_with_its_group(bench, cloud, make, end):
    found = make(end[0], **end[1])
    handler = cloud.handler("schedule")
    (seen,) = handler.find({"tgi-deploy:id": IDENTITY})
    assert (seen.id, seen.alive, seen.spec) == (found.id, True, "s1")
    handler.delete(found.attributes)
    assert handler.read(found.attributes) is None
    handler.delete(found.attributes)
    assert client(bench, "scheduler").list_schedules()["Schedules"] == []


def test_a_schedule_group_being_changed_is_awaited(bench, cloud, make, end):
    found = make(end[0], **end[1])
    bench.fault(action="DeleteScheduleGroup", code="ConflictException", status=409)
    with pytest.raises(InUseError):
        cloud.handler("schedule").delete(found.attributes)


def test_the_schedule_may_terminate_only_this_deployment(bench, make, end):
    policy = client(bench, "iam").get_role_policy(
        RoleName=f"tgi-deploy-{IDENTITY}-us-east-1-end", PolicyName="tgi-deploy"
    )["PolicyDocument"]
    (statement,) = policy["Statement"]
    assert statement["Action"] == "ec2:TerminateInstances"
    assert statement["Condition"] == {"StringEquals": {"aws:ResourceTag/tgi-deploy:id": IDENTITY}}


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("DescribeParameters", "parameter"),
        ("ListRoles", "role"),
        ("ListInstanceProfiles", "instance-profile"),
        ("ListScheduleGroups", "schedule"),
    ],
)
def test_a_denied_search_is_noted_once_and_others_continue(bench, action, kind):
    bench.group()
    bench.fault(action=action, code="AccessDenied", status=403, times=9)
    cloud = bench.cloud()
    for _ in range(2):
        assert [found.kind for found in cloud.find({})] == ["security-group"]
    assert list(cloud.unsearched) == [(REGION, kind)]
    assert len(bench.calls(action)) == 1


def test_a_denied_required_search_is_an_error(bench):
    bench.fault(action="ListRoles", code="AccessDenied", status=403)
    with pytest.raises(PermissionDeniedError, match="ListRoles"):
        bench.cloud().handler("role").find({"tgi-deploy:id": "x"})


def test_a_denied_search_for_machines_is_always_an_error(bench):
    bench.fault(action="DescribeInstances", code="UnauthorizedOperation", status=403)
    with pytest.raises(PermissionDeniedError):
        bench.cloud().find({})


def test_every_side_kind_has_a_handler_and_a_command_that_removes_it(bench):
    services = {"ssm", "iam", "scheduler"}
    for kind in [kind for kind in bench.cloud().kinds if bench.cloud().handler(kind).rare]:
        for command in removal_command(kind, "x-1", REGION).split(" && "):
            tool, service, verb, *options = command.split()
            assert (tool, service in services) == ("aws", True)
            model = client(bench, service).meta.service_model
            operation = "".join(part.capitalize() for part in verb.split("-"))
            members = {name.lower() for name in model.operation_model(operation).input_shape.members}
            assert {word[2:].replace("-", "") for word in options if word.startswith("--")} - {"region"} <= members


def test_the_removal_commands_of_an_instance_profile_work(bench, profile, role):
    """The role's name in the command follows from the profile's."""
    words = removal_command("instance-profile", profile.id, REGION)
    assert f"--role-name {role.id} " in words


def test_names_fit_their_limits():
    name, identity, region = "m" * 40, "0" * 12, "ap-northeast-1"
    made = delivery(
        Secrets(hub_token=SecretSource(reference="env:T")), name=name, deployment_id=identity, region=region
    ).resources
    ends = external_end(
        name=name, deployment_id=identity, region=region, expires=datetime.now(UTC), machine_key="instance"
    )
    for item in (*made, *ends):
        limit = 1011 if item.kind == "parameter" else 64
        assert len(item.properties["name"]) <= limit, item.key
    assert aws_cloud._KINDS.index("schedule") < aws_cloud._KINDS.index("instance")  # deleted after it
