"""The printed policy is sufficient, and every action is needed: up, logs and down under moto's IAM enforcement.

What this does not prove: moto looks at actions alone. It knows no resource narrower than "*" for these calls and
ignores most conditions, so that the test takes both away; and it asks for no action beyond the one that is called (no
ec2:CreateTags for tags in a creating call, no iam:PassRole).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from builders.aws_profiles import allowed_actions, profile_data
from moto.core import enable_iam_authentication
from moto.server import ThreadedMotoServer

from tgi_deploy import wiring
from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.targets.aws.errors import ErrorTable
from tgi_deploy.targets.aws.policy import policy
from tgi_deploy.targets.aws.session import SessionFactory
from tgi_deploy.targets.ec2.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("policy")  # one server, and clients that are slow to create
REGION = "us-east-1"
pace = wiring._pace
ADMINISTRATOR = {"region_name": REGION, "aws_access_key_id": "administrator", "aws_secret_access_key": "x"}
ACTIONS = read_actions()
CORE = allowed_actions(policy(ACTIONS, ACTIONS.core))
# Missing these is only a warning: less is known.
ONLY_KNOWING = {
    "ec2:DescribeRegions": "asked by doctor alone",
    "ec2:DescribeRouteTables": "never asked on an endpoint of this computer",
    "servicequotas:GetServiceQuota": "preflight warns and goes on",
}
# moto allows these regardless of the policy.
UNENFORCED = {
    "ec2:CreateTags": "asked for no permission to tag in a creating call",
    "sts:GetCallerIdentity": "nobody needs permission to ask who they are",
}
BY_VERB = {
    "up": ("Authorize", "Create", "Describe", "GetParameters", "Run"),
    "logs": ("GetConsoleOutput",),
    "down": ("Delete", "Release", "Terminate"),
}


def needed_by(command: str) -> list[str]:
    known = {*ONLY_KNOWING, *UNENFORCED}
    return [action for action in CORE if action.partition(":")[2].startswith(BY_VERB[command]) and action not in known]


@cache
def administrator(url: str, service: str) -> Any:
    return boto3.client(service, endpoint_url=url, **ADMINISTRATOR)


@dataclass
class Account:
    """One moto server and a user with the policy; the administrator is asked while nothing is enforced."""

    url: str
    capsys: Any
    left: bool = False

    def client(self, service: str) -> Any:
        return administrator(self.url, service)

    def allow(self, *, without: str = "") -> None:
        document = policy(ACTIONS, ACTIONS.core)
        allowed = [action for action in allowed_actions(document) if action != without]
        statement = {"Effect": "Allow", "Action": allowed, "Resource": "*"}
        self.client("iam").put_user_policy(
            UserName="deployer",
            PolicyName="deploy",
            PolicyDocument=json.dumps({"Version": document["Version"], "Statement": [statement]}),
        )

    def run(self, *words: str) -> dict[str, Any]:
        with enable_iam_authentication():
            frame.run(ROOT, (*words, "--json"))
        answer: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return answer

    def up(self, *words: str) -> dict[str, Any]:
        request = ("llama3-13b", "--budget", "5", "--name", "demo", "--allow-cidr", "203.0.113.7/32")
        return self.run("up", *request, "--no-wait", "--yes", *words)

    def down(self) -> dict[str, Any]:
        return self.run("down", "demo", "--yes")

    def groups(self) -> list[str]:
        return [group["GroupName"] for group in self.client("ec2").describe_security_groups()["SecurityGroups"]]

    def machines(self) -> list[str]:
        ec2 = self.client("ec2")
        alive = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        found = ec2.describe_instances(Filters=alive)["Reservations"]
        return [item["InstanceId"] for group in found for item in group["Instances"]]

    def leave_behind(self, action: str) -> None:
        """Create a resource with our tags that only `action` can remove."""
        ec2 = self.client("ec2")
        tags = [{"Key": "tgi-deploy:deployment", "Value": "demo"}, {"Key": "tgi-deploy:id", "Value": "abc"}]
        zone = f"{REGION}a"
        if action == "ec2:DeleteVolume":
            made = ec2.create_volume(AvailabilityZone=zone, Size=1)["VolumeId"]
        elif action == "ec2:DeleteNetworkInterface":
            subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
            made = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
        elif action == "ec2:ReleaseAddress":
            made = ec2.allocate_address(Domain="vpc")["AllocationId"]
        else:
            return
        ec2.create_tags(Resources=[made], Tags=tags)
        self.left = True


@cache
def connected(url: str) -> SessionFactory:
    """One set of clients for all runs: creating them takes longer than all calls of a run."""
    return SessionFactory(table=ErrorTable.of(profile_data("errors.json")), endpoint_url=url)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client("iam", endpoint_url=url, **ADMINISTRATOR).create_user(UserName="deployer")
    yield url
    running.stop()


@pytest.fixture(scope="module")
def key(server: str) -> dict[str, str]:
    made: dict[str, str] = boto3.client("iam", endpoint_url=server, **ADMINISTRATOR).create_access_key(
        UserName="deployer"
    )["AccessKey"]
    return made


@pytest.fixture
def account(server: str, key: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[Account]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    monkeypatch.setattr(wiring, "_pace", lambda **_: pace(sandbox=True))
    monkeypatch.setattr(Connection, "sessions", connected(server))
    made = Account(url=server, capsys=capsys)
    made.allow()
    yield made
    made.allow()
    if made.left or made.groups() != ["default"]:
        assert made.down()["exit_code"] == 0
    assert (made.machines(), made.groups()) == ([], ["default"])


def test_the_policy_is_enough_for_up_logs_and_down(account):
    up = account.up()
    assert (up["exit_code"], up["errors"]) == (0, [])
    assert len(account.machines()) == 1
    assert "permission_denied" not in {item["code"] for item in up["warnings"]}
    assert "not allowed" not in json.dumps(account.run("logs", "demo"))
    assert "not allowed" not in json.dumps(account.run("list"))
    down = account.down()
    assert (down["exit_code"], down["errors"]) == (0, [])


@pytest.mark.parametrize("action", needed_by("up"))
def test_up_without_one_action_fails_and_names_it(account, action):
    account.allow(without=action)
    up = account.up("--no-preflight")
    assert up["exit_code"] == 1
    assert up["errors"][0]["code"] == "permission_denied"
    assert f"{action} is not allowed for arn:aws:iam::123456789012:user/deployer" in up["errors"][0]["message"]
    assert "doctor --policy" in up["errors"][0]["hint"]
    assert account.machines() == []


@pytest.mark.parametrize("action", ["ec2:RunInstances", "ec2:CreateSecurityGroup", "ec2:CreateLaunchTemplate"])
def test_preflight_names_the_action_before_anything_is_created(account, action):
    account.allow(without=action)
    up = account.up()
    assert (up["exit_code"], up["errors"][0]["code"]) == (1, "permission_denied")
    assert f"{action} is not allowed for" in up["errors"][0]["message"]
    assert account.groups() == ["default"]


def test_logs_without_permission_name_the_action(account):
    (action,) = needed_by("logs")
    account.up()
    account.allow(without=action)
    logs = account.run("logs", "demo")
    assert logs["exit_code"] == 1
    assert f"{action} is not allowed for" in logs["errors"][0]["message"]


@pytest.mark.parametrize("action", needed_by("down"))
def test_down_without_one_action_fails_and_names_it(account, action):
    account.up()
    account.leave_behind(action)
    account.allow(without=action)
    down = account.down()
    assert down["exit_code"] in {1, 6}
    assert f"{action} is not allowed for" in json.dumps([down["errors"], down["data"]])


def test_a_denied_check_is_a_warning(account):
    account.allow(without="servicequotas:GetServiceQuota")
    up = account.up()
    assert up["exit_code"] == 0
    (reported,) = [item["message"] for item in up["warnings"] if item["code"] == "not_checked"]
    assert "servicequotas:GetServiceQuota is not allowed" in reported


def test_doctor_names_every_action_that_is_missing(account):
    account.allow(without="ec2:RunInstances")
    document = account.run("doctor", "llama3-13b", "--budget", "5")
    assert document["exit_code"] == 1
    denied = [item for item in document["data"]["findings"] if item["code"] == "permission_denied"]
    assert [item["data"]["action"] for item in denied] == ["ec2:RunInstances"]


def test_every_action_of_the_policy_is_removed_once_or_listed():
    taken = {action for command in BY_VERB for action in needed_by(command)}
    assert taken.isdisjoint({*ONLY_KNOWING, *UNENFORCED})
    assert taken | {*ONLY_KNOWING, *UNENFORCED} == set(CORE)
