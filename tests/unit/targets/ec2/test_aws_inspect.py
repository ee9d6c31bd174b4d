from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError
from builders.aws_profiles import profile_data

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.checking.local_checks import Workstation
from tgi_deploy.reconcile.errors import PermissionDeniedError
from tgi_deploy.targets.aws.errors import ErrorTable, translate
from tgi_deploy.targets.docker.host_checks import Installation
from tgi_deploy.targets.ec2.account_probe import Ec2Inspector, exit_of
from tgi_deploy.targets.ec2.inspection import RehearsedLaunch
from tgi_deploy.targets.reply import Reply

G_ON_DEMAND = "L-DB2E81BA"
DENIED = {
    "code": "UnauthorizedOperation",
    "status": 403,
    "message": "You are not authorized to perform this operation.",
}


@pytest.fixture
def inspector(bench):
    return Ec2Inspector(region="us-east-1", sessions=bench.sessions)


@pytest.fixture
def launch(bench):
    cloud = bench.cloud()
    place = cloud.placements("g6e.xlarge", subnet=None)[0]
    image = cloud.image(architecture="x86_64", wanted=None)
    return RehearsedLaunch(
        image=image.id,
        instance_type="g6e.xlarge",
        subnet=place.subnet,
        network=place.network,
        market="spot",
        tags={"tgi-deploy:id": "abc"},
        instance_profile=None,
    )


def test_identity_and_clock(inspector):
    who = inspector.identity()
    assert (who.account, who.arn.startswith("arn:aws:")) == ("123456789012", True)
    assert abs(who.skew_s) < 60


def test_clock_skew_is_detected(bench):
    ahead = Ec2Inspector(
        region="us-east-1", sessions=bench.sessions, now=lambda: datetime.now(UTC) + timedelta(hours=1)
    )
    assert 3500 < ahead.identity().skew_s < 3700


def test_regions(bench):
    def status(region):
        return Ec2Inspector(region=region, sessions=bench.sessions).region_status()

    assert status("us-east-1") == "opt-in-not-required"


def test_the_sandbox_has_generous_quotas_and_a_fault_that_lowers_them(bench, inspector):
    assert inspector.quota(G_ON_DEMAND) == 768
    bench.fault(name="low-quota", vcpus=4)
    assert inspector.quota(G_ON_DEMAND) == 4
    assert inspector.quota(G_ON_DEMAND) == 768
    with pytest.raises(DeployError):
        inspector.quota("L-00000000")


def test_usage_counts_what_the_quota_counts(bench, inspector):
    bench.launch()
    assert [item.instance_type for item in inspector.usage(("g*", "vt*"), "on-demand")] == ["g6e.xlarge"]
    assert inspector.usage(("g*", "vt*"), "spot") == ()
    assert inspector.usage(("p*",), "on-demand") == ()
    assert bench.calls("DescribeInstances")[-1]["Filter.1.Value.1"] == "pending"


def test_free_addresses(inspector, launch):
    assert inspector.free_addresses(launch.subnet) > 4000


def test_an_endpoint_of_this_computer_routes_nothing(inspector, launch):
    assert inspector.default_route(launch.subnet, launch.network) is None


def table(*routes, subnet=None):
    return {"Associations": [{"SubnetId": subnet} if subnet else {"Main": True}], "Routes": list(routes)}


IGW = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "active"}
NAT = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1", "State": "active"}
LOCAL = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([], ""),
        ([table(LOCAL)], ""),
        ([table(LOCAL, IGW)], "internet gateway igw-1"),
        ([table(LOCAL, IGW), table(LOCAL, NAT, subnet="s")], "NAT gateway nat-1"),
        ([table(LOCAL, IGW), table(LOCAL, subnet="s")], ""),
        ([table(LOCAL, IGW), table(LOCAL, NAT, subnet="other")], "internet gateway igw-1"),
        ([table({**NAT, "State": "blackhole"})], ""),
        ([table({"DestinationCidrBlock": "0.0.0.0/0", "NetworkInterfaceId": "eni-1"})], "appliance eni-1"),
        ([table({"DestinationIpv6CidrBlock": "::/0", "GatewayId": "igw-1"})], "internet gateway igw-1"),
    ],
)
def test_egress_is_the_default_route_of_the_subnets_table(tables, expected):
    assert exit_of([Reply(item) for item in tables], "s") == expected


def test_dry_runs_in_the_sandbox_are_allowed_and_create_nothing(bench, inspector, launch):
    verdicts = {action: inspector.rehearse(action, launch) for action in inspector.actions}
    assert set(verdicts.values()) == {"allowed", "unproved"}
    assert [action for action, verdict in verdicts.items() if verdict == "unproved"] == [
        "ec2:GetConsoleOutput",
        "ec2:CancelSpotInstanceRequests",
    ]
    assert bench.cloud().find({}) == ()
    assert bench.calls("RunInstances") == [], "the log tells rehearsals from the real thing"
    (rehearsed,) = bench.calls("DryRun:RunInstances")
    assert rehearsed["InstanceMarketOptions.MarketType"] == "spot"
    assert rehearsed["TagSpecification.1.Tag.1.Key"] == "tgi-deploy:id"


def test_a_denied_dry_run_is_distinguished_from_a_failed_one(bench, inspector, launch):
    bench.fault(action="DryRun:RunInstances", **DENIED)
    assert inspector.rehearse("ec2:RunInstances", launch) == "denied"
    bench.fault(action="DryRun:RunInstances", code="InvalidParameterValue")
    assert inspector.rehearse("ec2:RunInstances", launch) == "unproved"
    bench.fault(action="DryRun:RunInstances", code="RequestLimitExceeded", status=503)
    with pytest.raises(DeployError):
        inspector.rehearse("ec2:RunInstances", launch)


def test_launch_faults_do_not_affect_dry_runs(bench, inspector, launch):
    bench.fault(name="capacity")
    assert inspector.rehearse("ec2:RunInstances", launch) == "allowed"


AWS_TEXT = (
    "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/Dev/me is not "
    "authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:us-east-1:123456789012:instance/* because no "
    "identity-based policy allows the ec2:CreateTags action. Encoded authorization failure message: AbCd"
)
SCP_TEXT = (
    "User: arn:x:y is not authorized to perform: ssm:GetParameters with an explicit deny in a service control policy"
)


@pytest.mark.parametrize(
    ("code", "message", "action", "words"),
    [
        ("UnauthorizedOperation", AWS_TEXT, "ec2:CreateTags", "ec2:CreateTags is not allowed for arn:aws:sts::1234"),
        ("UnauthorizedOperation", AWS_TEXT, "ec2:CreateTags", "on arn:aws:ec2:us-east-1:123456789012:instance/*"),
        ("UnauthorizedOperation", "No.", "ec2:RunInstances", "ec2:RunInstances is not allowed for these credentials"),
        ("AccessDeniedException", SCP_TEXT, "ssm:GetParameters", "with an explicit deny in a service control policy"),
        ("403", "<Message>User: arn:x is not authorized to perform: ssm:GetParameters</Message>", "ssm:GetParameters",
         "for arn:x (403)"),
    ],
)  # fmt: skip
def test_a_denial_names_action_and_caller(code, message, action, words):
    table_ = ErrorTable.of(profile_data("errors.json"))
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    error = translate(ClientError(response, "RunInstances"), table_, doing="launching", service="ec2", creating=True)
    assert isinstance(error, PermissionDeniedError)
    assert error.action == action
    assert words in error.message
    assert "Encoded" not in error.message
    assert "doctor --policy" in error.hint


def test_the_service_quotas_are_called_by_their_own_name():
    table_ = ErrorTable.of(profile_data("errors.json"))
    error = translate(
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetServiceQuota"),
        table_, doing="reading", service="service-quotas", creating=False,
    )  # fmt: skip
    assert error.action == "servicequotas:GetServiceQuota"


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_this_computer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    here = Workstation(home=tmp_path / "state")
    assert here.state_folder() == str(tmp_path / "state")
    assert (here.has("json"), here.has("no_such_package_at_all")) == (True, False)


def test_the_container_engine_and_gpus_of_this_computer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    here = Installation()
    assert here.cards() == ()
    with pytest.raises(DeployError, match="no 'docker' command"):
        here.engine()
    program(tmp_path, "docker", "exit 1")
    with pytest.raises(DeployError, match="does not answer"):
        here.engine()
    program(tmp_path, "docker", 'echo \'"29.1.0" {"runc": {}, "nvidia": {}}\'')
    assert here.engine().runtimes == ("nvidia", "runc")
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA L4, 23034 MiB'; echo 'NVIDIA L4, 23034 MiB'")
    assert len(here.cards()) == 2


def test_a_state_folder_that_is_a_file(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(DeployError) as caught:
        Workstation(home=tmp_path / "state").state_folder()
    assert caught.value.code == "state_unusable"
