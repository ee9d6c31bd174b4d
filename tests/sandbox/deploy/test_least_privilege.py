"""The printed policy against real calls: sufficient for each feature, nothing unused, no access to others.

Commands run in the sandbox; each recorded call becomes the requests that IAM would judge, with resources and condition
keys (tests/builders/iam_requests.py), and IAM's documented rules decide (tests/builders/iam.py).
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders.iam import allows
from builders.iam_requests import Requests
from cloudsplaining.scan.policy_document import PolicyDocument

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.targets.aws.policy import policy
from tgi_deploy.targets.ec2.account_checks import ON_OURS

pytestmark = pytest.mark.xdist_group("least privilege")
ACTIONS = read_actions()
EVERYTHING = policy(ACTIONS, tuple(ACTIONS.features))
UP = ("up", "llama3-13b", "--yes", "--name", "demo", "--budget", "5")
QUICK = (*UP, "--no-wait")
DOWN = ("down", "demo", "--yes")
CIDRS = ("--allow-cidr", "203.0.113.7/32", "--allow-cidr", "203.0.113.8/32")
# The commands for each feature, in addition to launch, watch and remove.
RUNS = {
    "launch": ((*QUICK, "--ttl", "2h"), ("extend", "demo", "--ttl", "4h"), DOWN),
    "watch": ((*UP, "--tls"), ("status", "demo"), ("list",), ("logs", "demo"), DOWN),
    "remove": (QUICK, DOWN, ("gc", "--yes")),
    "doctor": (("doctor", "llama3-13b", "--budget", "5"),),
    "spot": ((*QUICK, "--market", "spot"), DOWN),
    "networks": ((*QUICK, *CIDRS), (*QUICK, *CIDRS[:2]), DOWN),
    "pause": (UP, ("stop", "demo", "--yes"), ("start", "demo", "--yes"), ("restart", "demo", "--yes"), DOWN),
    "secrets": ((*QUICK, "--api-key-from-env", "KEY", "--plaintext"), DOWN),
    "external-ttl": (
        (*QUICK, "--ttl", "2h", "--external-ttl"),
        ("extend", "demo", "--ttl", "4h"),
        DOWN,
    ),
    "static-ip": ((*UP, "--static-ip"), DOWN),
    "tunnel": ((*UP, "--tunnel", "--ready", "fast"), ("exec", "demo", "true"), DOWN),
}
# Granted, but not requested by any command above.
NOT_ASKED = {
    "ec2:DescribeRouteTables": "never asked on an endpoint of this computer",
    "iam:CreateServiceLinkedRole": "EC2 asks in the caller's name, once an account",
    "ssm:ResumeSession": "the Session Manager plugin asks, after a connection broke",
    "ssm:TerminateSession": "the plugin asks, where an agent is too old for a flag",
    "ssmmessages:OpenDataChannel": "the plugin asks",
    "iam:DetachRolePolicy": "where somebody attached a policy to our role",
}
# Searches for what a feature that was not used may have left: if they are not allowed, that is a warning.
SEARCHES = {
    "iam:ListInstanceProfiles",
    "iam:ListRoles",
    "scheduler:ListScheduleGroups",
    "ssm:DescribeParameters",
}


def leave_parts(program):
    """Create a volume, an interface and an address with our tags, as leftovers of a terminated machine."""
    ec2 = program.client("ec2")
    machine = ec2.describe_instances()["Reservations"][-1]["Instances"][0]
    tags = [tag for tag in machine["Tags"] if tag["Key"] in {"tgi-deploy:deployment", "tgi-deploy:id"}]
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    ec2.create_tags(Resources=[volume, interface, address], Tags=tags)


def calls_of(program, words):
    before = len(program.all_calls())
    run = program.here(*words)
    assert run.code == 0, run.out + run.err
    return program.all_calls()[before:]


@pytest.fixture(scope="module")
def by_feature():
    return {}


@pytest.fixture
def asked(program, by_feature, monkeypatch):
    """Return every IAM request of the commands of each feature."""
    monkeypatch.setenv("KEY", "made-up-key-0123456789")
    for feature, runs in RUNS.items():
        if feature in by_feature:
            continue
        requests, found = Requests(), []
        for words in runs:
            if feature == "remove" and words == DOWN:
                leave_parts(program)
            found += [request for call in calls_of(program, words) for request in requests.of(call)]
        by_feature[feature] = found
    return by_feature


def features_for(feature):
    """The sandbox has a hub token, and `doctor` also checks what storing one takes."""
    also = ("secrets",) if feature == "doctor" else ()
    return tuple(dict.fromkeys((*ACTIONS.core, feature, *also)))


def allowed(document, request):
    return allows(document, request.action, request.resource, request.keys)


def refused(document, requests, *, tolerated=SEARCHES):
    found = {request.action: request for request in requests if not allowed(document, request)}
    return [request for action, request in sorted(found.items()) if action not in tolerated]


def alone(statement):
    return {"Statement": [statement]}


def test_the_policy_allows_every_call_of_each_feature(asked):
    """`doctor` dry-runs actions on made-up ids, which proves no denial."""
    for feature in RUNS:
        tolerated = SEARCHES | ON_OURS if feature == "doctor" else SEARCHES
        assert refused(policy(ACTIONS, features_for(feature)), asked[feature], tolerated=tolerated) == [], feature


def test_without_its_statements_a_feature_is_denied(asked):
    """Otherwise a feature's statements would be unnecessary."""
    for feature in set(RUNS) - set(ACTIONS.core):
        others = tuple(name for name in features_for(feature) if name != feature)
        assert refused(policy(ACTIONS, others), asked[feature]), feature


def test_every_action_of_every_statement_is_needed(asked):
    requests = {str(request): request for found in asked.values() for request in found}.values()
    idle = {
        (statement["Sid"], action)
        for statement in EVERYTHING["Statement"]
        for action in statement["Action"]
        if action not in NOT_ASKED
        and not any(request.action == action and allowed(alone(statement), request) for request in requests)
    }
    assert idle == set()
    assert {request.action for request in requests} & set(NOT_ASKED) == set()


def test_the_same_calls_on_foreign_resources_are_denied(asked):
    """Except what a launch uses (image, subnet, group, template): EC2 can't limit that by our tag."""
    foreign = [other for found in asked.values() for request in found if (other := of_others(request))]
    assert {request.action for request in foreign} >= {
        *("ec2:TerminateInstances", "ec2:StopInstances", "ec2:CreateTags", "ec2:DeleteVolume", "ec2:ReleaseAddress"),
        *("ssm:PutParameter", "ssm:DeleteParameter", "iam:CreateRole", "iam:PassRole", "scheduler:DeleteScheduleGroup"),
    }
    let_through = {str(request) for request in foreign if allowed(EVERYTHING, request)}
    assert let_through == set()


def of_others(request):
    """Return the same request for a foreign resource; None if it concerns none of our resources."""
    keys = {
        key: value for key, value in request.keys.items() if not key.startswith(("aws:RequestTag", "aws:ResourceTag"))
    }
    if len(keys) < len(request.keys) and request.action != "ec2:RunInstances" and "ec2:CreateAction" not in keys:
        return replace(request, keys=keys)
    if "tgi-deploy" in request.resource:
        return replace(request, resource=request.resource.replace("tgi-deploy", "production"))
    return None


@pytest.mark.parametrize("feature", [*ACTIONS.features, "everything"])
def test_a_policy_linter_finds_nothing(feature):
    """Privilege escalation, exposed resources, leaked data and credentials, as cloudsplaining knows them."""
    found = PolicyDocument(EVERYTHING if feature == "everything" else policy(ACTIONS, features_for(feature)))
    assert found.allows_privilege_escalation == []
    assert found.permissions_management_without_constraints == []
    assert found.write_actions_without_constraints == []
    assert found.tagging_actions_without_constraints == []
    assert found.allows_data_exfiltration_actions == []
    assert found.credentials_exposure == []
    assert found.service_wildcard == []


def test_the_linter_detects_an_escalation():
    open_ = json.loads(json.dumps(EVERYTHING).replace("arn:aws:iam::*:role/tgi-deploy/*", "*"))
    found = PolicyDocument(open_)
    assert found.permissions_management_without_constraints
