"""The printed policy allows no privilege escalation: known methods, judged by IAM's rules."""

from __future__ import annotations

import copy
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from builders.iam import allows

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.targets.aws.policy import makes_roles, policy
from tgi_deploy.targets.ec2.external_end import external_end
from tgi_deploy.targets.ec2.secrets import Secrets, SecretSource, delivery

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "policy" / "escalations.toml").read_text(encoding="utf-8"))
ACTIONS = read_actions()
PRINTED = policy(ACTIONS, tuple(ACTIONS.features))
BOUNDARY = ACTIONS.boundary
ARN = CASES["boundary"]["arn"]
MOMENT = datetime(2030, 1, 9, tzinfo=UTC)
ROLE = "arn:aws:iam::123456789012:role/tgi-deploy/us-east-1/demo/x-machine"


def works(document, attempt):
    """Return whether every request of the attempt is allowed."""
    return all(allows(document, *request) for request in attempt["requests"])


def about(case):
    return case["about"]


def test_known_privilege_escalations_are_blocked():
    assert [about(attempt) for attempt in CASES["attempt"] if works(PRINTED, attempt)] == []


@pytest.mark.parametrize("case", CASES["bounded"], ids=about)
def test_a_created_role_stays_within_the_boundary(case):
    assert allows(BOUNDARY.document(), *case["request"]) is case["works"]


@pytest.mark.parametrize("action", ["iam:CreateRole", "iam:PutRolePolicy"])
def test_a_bounded_role_can_be_created(action):
    assert allows(PRINTED, action, ROLE, {"iam:PermissionsBoundary": ARN})
    assert BOUNDARY.arn("123456789012", "aws") == ARN


def test_without_the_condition_the_escalation_is_detected():
    """Otherwise the tests above could pass with any policy."""
    open_ = copy.deepcopy(PRINTED)
    for statement in open_["Statement"]:
        if "iam:CreateRole" in statement["Action"]:
            del statement["Condition"]
    found = {attempt["about"] for attempt in CASES["attempt"] if works(open_, attempt)}
    assert {"a role without a boundary", "a policy for a role of ours that has no boundary"} <= found


def test_the_boundary_allows_what_the_roles_need():
    key = SecretSource(reference="env:KEY")
    secrets = delivery(Secrets(hub_token=key, api_key=key), name="demo", deployment_id="1", region="us-east-1")
    ends = external_end(name="demo", deployment_id="1", region="us-east-1", expires=MOMENT, machine_key="instance")
    tunnel = delivery(Secrets(tunnel=True), name="demo", deployment_id="1", region="us-east-1").resources
    needed = [item for role in (*secrets.resources, *ends, *tunnel) for item in role.properties.get("statements", ())]
    assert len(needed) == 3
    for statement in needed:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        for resource in resources:
            arn = resource.replace("{partition}", "aws").replace("{account}", "123456789012")
            for action in statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]:
                assert allows(BOUNDARY.document(), action, arn, {"aws:ResourceTag/tgi-deploy:id": "1"}), (action, arn)


def test_every_feature_that_creates_roles_requires_the_boundary():
    making = {name for name in ACTIONS.features if makes_roles(ACTIONS, (name,))}
    assert making == {"secrets", "external-ttl", "tunnel"}
    for name in making:
        alone = policy(ACTIONS, (name,))
        assert not allows(alone, "iam:CreateRole", ROLE, {})
        assert allows(alone, "iam:CreateRole", ROLE, {"iam:PermissionsBoundary": ARN})


@pytest.mark.parametrize(
    ("pattern", "arn", "fits"),
    [
        ("arn:aws:iam::*:policy/b", "arn:aws:iam::1:policy/b", True),
        ("arn:aws:iam::*:policy/b", "arn:aws:iam::1:policy/x:policy/b", False),
        ("arn:aws:iam::*:role/t/*", "arn:aws:iam::1:role/t/a/b", True),
        ("arn:aws:iam::*:role/t/*", "arn:aws:iam::1:role/tt/a", False),
        ("arn:aws:ec2:*::image/*", "arn:aws:ec2:r:1:image/i", False),
    ],
)
def test_wildcards_stay_within_their_arn_segment(pattern, arn, fits):
    document = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": pattern}]}
    assert allows(document, "iam:CreateRole", arn) is fits


def test_an_explicit_denial_wins():
    both = [{"Effect": effect, "Action": "iam:*", "Resource": "*"} for effect in ("Allow", "Deny")]
    assert allows({"Statement": both[:1]}, "iam:CreateUser", "arn:aws:iam::1:user/x")
    assert not allows({"Statement": both}, "iam:CreateUser", "arn:aws:iam::1:user/x")
