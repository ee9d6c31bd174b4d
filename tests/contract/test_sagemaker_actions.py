"""profiles/sagemaker/actions.json lists exactly the actions that the target calls, on no more than it has to."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name
from builders.aws_profiles import allowed_actions
from policy_sentry.querying.all import get_service_prefix_data

import tgi_deploy
from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.targets.aws.errors import iam_action
from tgi_deploy.targets.aws.policy import makes_roles, policy
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.targets.sagemaker.requests import role_statements

TARGETS = Path(tgi_deploy.__file__).parent / "targets"
MODULES = (*(TARGETS / "sagemaker").glob("*.py"), TARGETS / "aws" / "role.py", TARGETS / "aws" / "schedule.py")
SERVICES = (
    *("sagemaker", "sagemaker-runtime", "application-autoscaling", "logs", "pricing", "service-quotas", "scheduler"),
    *("cloudwatch", "iam", "sts"),
)
ACTIONS = read_actions("sagemaker")
LISTED = {grant.action for grant in ACTIONS.grants}
# Of roles for machines, which this target doesn't make.
OF_PROFILES = ("InstanceProfile",)
LONGEST_POLICY = 5400


@cache
def operations():
    """SDK method → the actions of services that have it."""
    found = {}
    for service in SERVICES:
        model = botocore.session.get_session().get_service_model(service)
        for name in model.operation_names:
            found.setdefault(xform_name(name), set()).add(iam_action(service, name))
    return found


def called():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in operations():
                yield path.stem, node.value


def test_every_call_is_in_the_table():
    missing = {call for call in called() if not operations()[call[1]] & LISTED}
    assert {call for call in missing if not any(word in xform(call[1]) for word in OF_PROFILES)} == set()


def xform(method):
    return "".join(word.title() for word in method.split("_"))


def test_every_action_is_called_or_explained():
    used = {action for _, method in called() for action in operations()[method]}
    assert {grant.action for grant in ACTIONS.grants if not grant.implied} - used == set()


@pytest.mark.parametrize("grant", ACTIONS.grants, ids=lambda grant: f"{grant.feature}-{grant.action}")
def test_an_action_exists_and_accepts_its_resources(grant):
    service, _, name = grant.action.partition(":")
    data = get_service_prefix_data(service)
    accepted = [kind for kind in data["privileges"][name]["resource_types"] if kind]
    patterns = [data["resources"][kind]["arn"].split(":")[2] for kind in accepted]
    for resource in grant.scope.resources:
        assert resource == "*" if not patterns else resource == "*" or resource.split(":")[2] in patterns


def test_only_read_actions_are_allowed_on_all_resources():
    wide = {grant.action for grant in ACTIONS.grants if grant.scope.resources == ("*",)}
    assert all(action.partition(":")[2].startswith(("Describe", "Get", "List")) for action in wide)


def test_changing_actions_need_our_tag():
    for grant in ACTIONS.grants:
        changes = grant.action.startswith(("sagemaker:Delete", "sagemaker:Update", "sagemaker:Create"))
        assert not changes or "tgi-deploy:id" in str(grant.scope.condition), grant.action


def test_the_complete_policy_fits_the_size_limit():
    document = policy(ACTIONS, tuple(ACTIONS.features))
    assert set(allowed_actions(document)) == LISTED
    assert len("".join(json.dumps(document).split())) < LONGEST_POLICY


def test_a_plain_deployment_creates_no_roles():
    assert not makes_roles(ACTIONS, ACTIONS.core)
    assert makes_roles(ACTIONS, ("create-role",))


def test_the_boundary_allows_what_created_roles_need():
    bounds = {item["Sid"]: item for item in ACTIONS.boundary.statements}
    options = SageMakerOptions(create_role=True, weights="s3://my-sagemaker-bucket/model/")
    for statement in role_statements("demo", "us-east-1", options):
        bound = bounds[statement["Sid"]]
        assert set(in_list(statement["Action"])) <= set(in_list(bound["Action"])), statement["Sid"]


def in_list(value):
    return value if isinstance(value, list) else [value]


def test_the_printed_commands_name_the_target():
    assert "--boundary --target sagemaker)" in ACTIONS.boundary.creation
    assert "--boundary --target sagemaker)" in ACTIONS.boundary.renewal("arn")
