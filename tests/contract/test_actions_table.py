"""profiles/aws/actions.json lists exactly the actions that the AWS targets call, so the printed policy stays exact."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name
from builders.aws_profiles import allowed_actions

import tgi_deploy
from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.errors import InputError
from tgi_deploy.targets.aws.errors import iam_action
from tgi_deploy.targets.aws.policy import policy
from tgi_deploy.targets.ec2.account_checks import ON_OURS
from tgi_deploy.targets.ec2.dry_run import REQUESTS
from tgi_deploy.targets.ec2.preflight import CREATING

TARGETS = Path(tgi_deploy.__file__).parent / "targets"
SERVICES = ("ec2", "iam", "scheduler", "service-quotas", "ssm", "sts")
# AWS's limit for the characters of a managed policy, without spaces, is 6,144; new features need some of them.
LONGEST_POLICY = 5400


@cache
def operations(service):
    """SDK method → action of the service."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): iam_action(service, name) for name in model.operation_names}


def texts(tree):
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def called(path):
    """Return every SDK method that a module calls, with the services that it uses."""
    found = texts(ast.parse(path.read_text()))
    services = [service for service in SERVICES if service in found] or ["ec2"]
    services += ["ec2"] if "ec2" not in services else []
    return {
        text: {operations(service)[text] for service in services if text in operations(service)}
        for text in found
        if any(text in operations(service) for service in services)
    }


MODULES = sorted((*TARGETS.glob("aws/*.py"), *TARGETS.glob("ec2/*.py")))
GRANTS = read_actions().grants
LISTED = {grant.action for grant in GRANTS}


def test_every_call_is_in_the_table():
    calls = {(path.stem, method): actions for path in MODULES for method, actions in called(path).items()}
    missing = {call: sorted(actions) for call, actions in calls.items() if not actions & LISTED}
    assert missing == {}, "add these to profiles/aws/actions.json"


def test_a_call_missing_from_the_table_is_detected(tmp_path):
    module = tmp_path / "strange.py"
    module.write_text("api.ask('create_vpc', 'making a network')")
    assert called(module) == {"create_vpc": {"ec2:CreateVpc"}}
    assert "ec2:CreateVpc" not in LISTED


def test_every_action_of_the_table_is_called_or_explained():
    used = {action for path in MODULES for actions in called(path).values() for action in actions}
    idle = {grant.action for grant in GRANTS if not grant.implied} - used
    assert idle == set()


def test_actions_exist():
    known = {action for service in SERVICES for action in operations(service).values()}
    permission_only = {"iam:PassRole", "ssmmessages:OpenDataChannel"}
    assert LISTED - known == permission_only


def test_dry_run_actions_are_listed():
    assert set(REQUESTS) <= LISTED
    assert set(CREATING) <= set(REQUESTS)
    assert set(ON_OURS) <= set(REQUESTS)


def test_changing_actions_are_allowed_only_on_our_resources():
    for grant in GRANTS:
        if grant.action in ON_OURS:
            assert grant.scope.condition == {"Null": {"aws:ResourceTag/tgi-deploy:id": "false"}}, grant.action


def test_only_read_actions_are_allowed_on_all_resources():
    wide = {grant.action for grant in GRANTS if grant.scope.resources == ("*",)}
    assert all(action.partition(":")[2].startswith(("Describe", "Get", "List")) for action in wide)


def test_the_complete_policy_fits_the_size_limit():
    actions = read_actions()
    document = policy(actions, tuple(actions.features))
    assert set(allowed_actions(document)) == LISTED
    sids = [statement["Sid"] for statement in document["Statement"]]
    assert len(set(sids)) == len(sids)
    assert all(sid.isalnum() for sid in sids)
    assert len("".join(json.dumps(document).split())) < LONGEST_POLICY


def test_an_unknown_feature_is_rejected_with_the_known_ones():
    with pytest.raises(InputError, match="'lunch' is not a feature") as caught:
        policy(read_actions(), ("lunch",))
    assert "launch, watch, remove" in caught.value.hint
