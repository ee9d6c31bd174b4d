"""Every finding: observation → severity, code, and required words of the message."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest
from builders.plans import candidate, profile
from fakes.inspection import ARN, BOUNDARY, BOUNDARY_ARN, FakeInspector, FakeInstallation, FakeWorkstation, survey_of

from tgi_deploy import wiring
from tgi_deploy.cli.doctor import findings_text
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.checking import local_checks
from tgi_deploy.operations.results.checking import doctor_result
from tgi_deploy.reconcile.errors import PermissionDeniedError, ThrottledError
from tgi_deploy.targets.docker.host_checks import Engine, host_findings
from tgi_deploy.targets.ec2 import account_checks, launch_checks
from tgi_deploy.targets.ec2.inspection import AccountPolicy, Identity
from tgi_deploy.targets.ec2.quota import Headroom
from tgi_deploy.targets.ec2.region import MachineImage
from tgi_deploy.values.base import replaced

DENIED = PermissionDeniedError("x is not allowed", action="x:Y")
NOBODY = DeployError("no_credentials", "needs credentials", hint="aws configure")
ROOM = Headroom(code="L-DB2E81BA", name="G and VT", region="us-east-1", needed=48, limit=64, used=8)


def who(skew_s):
    return Identity(account="1", arn=ARN, skew_s=skew_s)


def bounding(**changes):
    return AccountPolicy(arn=BOUNDARY_ARN, document=BOUNDARY.document() | changes)


@pytest.mark.parametrize(
    ("finding", "severity", "code", "words"),
    [
        (account_checks.identity_finding(who(0)), "ok", "identity", ARN),
        (account_checks.identity_finding(NOBODY), "error", "no_credentials", "credentials"),
        (account_checks.identity_finding(ThrottledError("slow")), "warning", "not_checked", "slow"),
        (account_checks.clock_finding(who(29)), "ok", "clock", "within 30 s"),
        (account_checks.clock_finding(who(-31)), "warning", "clock_skew", "31 s behind"),
        (account_checks.clock_finding(who(300)), "warning", "clock_skew", "300 s ahead of"),
        (account_checks.clock_finding(who(301)), "error", "clock_skew", "rejected beyond 300 s"),
        (account_checks.region_finding("eu-west-1", "opt-in-not-required"), "ok", "region", "enabled"),
        (account_checks.region_finding("eu-west-1", "opted-in"), "ok", "region", "enabled"),
        (account_checks.region_finding("me-south-1", "not-opted-in"), "error", "region_disabled", "me-south-1"),
        (account_checks.region_finding("xx-west-1", ""), "error", "unknown_region", "does not exist"),
        (account_checks.region_finding("eu-west-1", DENIED), "warning", "not_checked", "not allowed"),
        (account_checks.quota_finding(ROOM, "g6e.12xlarge"), "ok", "quota", "limit 64, in use 8, needed 48"),
        (account_checks.quota_finding(replace(ROOM, used=17), "g6e.12xlarge"), "error", "quota_exceeded", "rejected"),
        (
            account_checks.quota_finding(replace(ROOM, limit=0), "g6e.12xlarge", elsewhere=True),
            "warning", "quota_exceeded", "fallbacks",
        ),
        (account_checks.quota_finding(replace(ROOM, limit=None), "g6e.xlarge"), "warning", "not_checked", "unknown"),
        (account_checks.quota_finding(None, "p6-b200.48xlarge"), "warning", "not_checked", "is unknown"),
        (account_checks.boundary_finding(bounding(), BOUNDARY), "ok", "boundary", BOUNDARY_ARN),
        (account_checks.boundary_finding(None, BOUNDARY), "error", "boundary_missing", "no policy"),
        (account_checks.boundary_finding(bounding(Version="x"), BOUNDARY), "warning", "boundary_differs", "too many"),
        (account_checks.boundary_finding(DENIED, BOUNDARY), "warning", "not_checked", "not allowed"),
        (account_checks.zones_finding("g6.xlarge", "r", ["ra", "rb"]), "ok", "zones", "ra, rb"),
        (account_checks.addresses_finding("subnet-1", 3), "ok", "subnet", "3 free"),
        (account_checks.addresses_finding("subnet-1", 0), "warning", "subnet_full", "0 free"),
        (account_checks.addresses_finding("subnet-1", DENIED), "warning", "not_checked", "not allowed"),
        (account_checks.route_finding("s", "internet gateway igw-1", public=True), "ok", "route", "igw-1"),
        (account_checks.route_finding("s", "internet gateway igw-1", public=False), "error", "no_public_address", ""),
        (account_checks.route_finding("s", "NAT gateway nat-1", public=False), "ok", "route", "nat-1"),
        (account_checks.route_finding("s", "", public=True), "error", "no_egress_route", "no default route"),
        (account_checks.route_finding("s", None, public=True), "ok", "route", "this computer"),
        (account_checks.route_finding("s", DENIED, public=True), "warning", "not_checked", "not allowed"),
        (
            account_checks.route_finding("s", "NAT gateway nat-1", public=True, static_ip=True),
            *("error", "no_public_address", "a static IP address needs an internet gateway"),
        ),
        (account_checks.static_ip_finding("r", (4, 5)), "ok", "addresses", "4 of at most 5"),
        (account_checks.static_ip_finding("r", (5, 5)), "error", "quota_exceeded", "5 of at most 5"),
        (account_checks.static_ip_finding("r", DENIED), "warning", "not_checked", "not allowed"),
        (launch_checks.user_data_finding("x" * 5000), "ok", "user_data", "5,000 of 16,384"),
        (launch_checks.user_data_finding("ü" * 8000), "warning", "user_data_near_limit", "16,000 of"),
        (local_checks.python_finding(FakeWorkstation()), "ok", "python", "3.12.1"),
        (local_checks.state_finding(FakeWorkstation()), "ok", "state_folder", "writable"),
        (
            local_checks.state_finding(FakeWorkstation(folder=DeployError("state_unusable", "full", hint="h"))),
            "error", "state_unusable", "full",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)  # fmt: skip
def test_observations_become_findings(finding, severity, code, words):
    assert (finding.severity, finding.code) == (severity, code)
    assert words in finding.message
    assert finding.hint or severity != "error", "an error has a remedy"


def test_without_a_clock_to_compare_nothing_is_reported():
    assert account_checks.clock_finding(who(None)) is None


def test_permissions_are_one_line_and_each_denial_has_its_own():
    verdicts = {
        "ec2:DescribeInstances": "allowed",
        "ec2:RunInstances": "denied",
        "ec2:TerminateInstances": "denied",
        "ec2:GetConsoleOutput": "unproved",
        "ec2:CreateTags": ThrottledError("slow"),
    }
    found = account_checks.permission_findings(verdicts, ARN)
    assert [(item.severity, item.code) for item in found] == [
        ("ok", "permissions"),
        ("error", "permission_denied"),
        ("warning", "not_checked"),
        ("ok", "permissions_unproved"),
        ("warning", "not_checked"),
    ]
    assert found[1].message == f"ec2:RunInstances is not allowed for {ARN}"
    assert "doctor --policy" in found[1].hint
    assert found[1].data["action"] == "ec2:RunInstances"


@pytest.mark.parametrize(
    ("size_gib", "snapshot_gib", "nvme", "code"),
    [(100, 15, True, "disk"), (40, 30, True, "disk_tight"), (20, 8, False, "disk_short"), (100, None, True, "disk")],
)
def test_the_root_volume_must_hold_image_and_weights(size_gib, snapshot_gib, nvme, code):
    storage = replaced(candidate().storage, weights_on_nvme=nvme, weights_bytes=26 * 10**9, image_bytes=18 * 2**30)
    assert launch_checks.disk_finding(candidate(storage=storage), size_gib, snapshot_gib).code == code


def test_the_image_finding_names_its_source():
    image = MachineImage(id="ami-1", root_device="/dev/sda1", minimum_gib=8, source="--ami")
    assert launch_checks.image_finding(image, "us-east-1").message == "ami-1 in us-east-1 (--ami)"


def gated(**survey):
    model = replaced(profile().model, gated=True, hub_id="org/gated", revision=None)
    parameter = survey.pop("parameter", None)
    return launch_checks.hub_finding(survey_of(FakeInspector(), **survey), model, token_parameter=parameter)


def raising(code):
    def access(_hub_id, _revision):
        raise DeployError(code, f"{code} happened", hint="do this")

    return access


@pytest.mark.parametrize(
    ("survey", "severity", "code"),
    [
        ({}, "error", "hub_token_missing"),
        ({"parameter": "/p"}, "warning", "not_checked"),
        ({"hub_token": True}, "warning", "not_checked"),
        ({"hub_token": True, "hub_access": raising("hub_gated")}, "error", "hub_gated"),
        ({"hub_token": True, "hub_access": raising("hub_not_found")}, "error", "hub_not_found"),
        ({"hub_token": True, "hub_access": raising("hub_unreachable")}, "warning", "not_checked"),
        ({"hub_token": True, "hub_access": lambda _hub_id, _revision: None}, "ok", "hub_access"),
    ],
)
def test_access_to_a_gated_model(survey, severity, code):
    finding = gated(**survey)
    assert (finding.severity, finding.code) == (severity, code)


def test_an_open_model_does_not_contact_the_hub():
    found = launch_checks.hub_finding(
        survey_of(FakeInspector(), hub_token=True, hub_access=raising("asked")), profile().model, token_parameter=None
    )
    assert (found.severity, found.code) == ("ok", "hub_access")


def test_the_missing_extra_of_the_chosen_target_is_a_warning_with_its_install_command():
    found = local_checks.extras_findings(FakeWorkstation(packages=("moto",)), wiring.targets(), "docker")
    assert [item.data.get("extra") for item in found] == [None, "docker"]
    assert "pip install 'docker" in found[1].hint


def test_extras_that_the_chosen_target_does_not_need_are_no_warning():
    (found,) = local_checks.extras_findings(FakeWorkstation(packages=("moto",)), wiring.targets(), "ec2")
    assert (found.severity, found.data["installed"]) == ("ok", ["sandbox"])
    assert "not installed: hub (models that are not in the catalog), docker (the target docker)" in found.message


@pytest.mark.parametrize(
    ("installation", "codes"),
    [
        (FakeInstallation(), ["ok docker", "ok nvidia_runtime", "ok gpu"]),
        (FakeInstallation(docker=DeployError("docker_missing", "m", hint="h")), ["error docker_missing"]),
        (
            FakeInstallation(docker=Engine(version="29", runtimes=("runc",)), gpus=()),
            ["ok docker", "error nvidia_runtime_missing", "error no_gpu"],
        ),
    ],
)
def test_a_complete_docker_host_has_no_findings(installation, codes):
    found = host_findings(installation)
    assert [f"{item.severity} {item.code}" for item in found] == codes


def test_each_finding_is_one_line_with_its_complete_remedy():
    short = account_checks.quota_finding(replace(ROOM, limit=0), "g6e.12xlarge")
    text = click.unstyle(findings_text((local_checks.python_finding(FakeWorkstation()), short)))
    first, *_, remedy, last = text.splitlines()
    assert first.split() == ["ok", "python", "3.12.1"]
    assert remedy.strip() == f"→ {replace(ROOM, limit=0).command}"
    assert last == "1 error, 0 warnings, 1 ok"


def test_the_document_counts_findings():
    document = doctor_result((local_checks.python_finding(FakeWorkstation()),)).to_dict()
    assert document["summary"] == {"ok": 1, "warning": 0, "error": 0}
    assert document["findings"][0].keys() == {"severity", "code", "message", "remedy", "data"}
