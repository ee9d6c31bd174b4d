"""The use case: this computer first, then the account, then the launch; nothing is raised."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.computer import FakeComputer, on, plan
from fakes.inspection import ARN, FakeInspector, FakeInstallation, FakeWorkstation, survey_of

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.checking.doctor import DoctorRequest, doctor
from tgi_deploy.reconcile.errors import PermissionDeniedError
from tgi_deploy.targets.ec2.options import Ec2Options
from tgi_deploy.values.base import replaced

G = on("g6e.xlarge", quota="L-DB2E81BA")


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path)


def examine(around, inspector, *, wanted=None, target="ec2", **changes):
    survey = changes.pop("survey", survey_of(inspector))
    ec2, docker = around.targets(survey=survey)
    docker = replace(docker, installation=changes.pop("installation", FakeInstallation()))
    request = {
        "context": around.context(targets=(ec2, docker)),
        "workstation": FakeWorkstation(),
        "target": target,
        "options": Ec2Options(),
        "environ": {},
        "plan": wanted,
    }
    return doctor(DoctorRequest(**(request | changes)))


def codes(findings, *severities):
    return [item.code for item in findings if not severities or item.severity in severities]


def test_a_model_is_checked_from_the_interpreter_to_the_hub(around):
    found = examine(around, FakeInspector(), wanted=plan(chosen=G))
    assert codes(found) == [
        "python", "state_folder", "extras", "identity", "clock", "region", "machine_image", "zones",
        "permissions", "quota", "subnet", "route", "disk", "user_data", "hub_access",
    ]  # fmt: skip
    assert codes(found, "warning", "error") == []
    assert around.world.creations == []


def test_without_a_model_only_the_account_is_checked(around):
    inspector = FakeInspector()
    found = examine(around, inspector)
    assert codes(found)[-5:] == ["clock", "region", "machine_image", "zones", "permissions"]
    assert not any(asked.startswith("quota") for asked in inspector.asked)


def test_every_action_has_a_dry_run(around):
    inspector = FakeInspector(verdicts={"ec2:DeleteVolume": "denied", "ec2:CreateSecurityGroup": "denied"})
    found = examine(around, inspector, wanted=plan(chosen=G))
    assert set(inspector.actions) <= set(inspector.asked)
    denied = {item.data["action"]: item.severity for item in found if "action" in item.data}
    assert denied == {"ec2:DeleteVolume": "warning", "ec2:CreateSecurityGroup": "error"}


def test_without_credentials_everything_else_is_reported(around):
    nobody = DeployError("no_credentials", "nobody", hint="aws configure")
    found = examine(around, FakeInspector(who=nobody, status=nobody), wanted=plan(chosen=G))
    assert codes(found) == ["python", "state_folder", "extras", "no_credentials"]
    assert codes(found, "error") == ["no_credentials"]


def test_without_a_connection_everything_else_is_reported(around):
    def refusing(_region):
        raise DeployError("no_credentials", "nobody", hint="aws configure")

    found = examine(around, FakeInspector(), survey=replaced(survey_of(FakeInspector()), inspector=refusing))
    assert codes(found)[-1] == "no_credentials"


def test_a_disabled_region_ends_its_checks(around):
    found = examine(around, FakeInspector(status="not-opted-in"), wanted=plan(chosen=G))
    assert codes(found)[-1] == "region_disabled"
    assert "enable-region --region-name us-east-1" in found[-1].hint


def test_a_denied_region_lookup_does_not_stop_the_checks(around):
    denied = PermissionDeniedError("ec2:DescribeRegions is not allowed", action="ec2:DescribeRegions")
    found = examine(around, FakeInspector(status=denied), wanted=plan(chosen=G))
    assert codes(found, "warning") == ["not_checked"]
    assert codes(found)[-1] == "hub_access"


def test_a_type_that_no_zone_offers_is_an_error(around):
    around.world.zones = ()
    found = examine(around, FakeInspector(), wanted=plan(chosen=G))
    assert codes(found, "error") == ["no_capacity"]


def test_each_target_has_its_checks(around):
    inspector = FakeInspector()
    found = examine(around, inspector, target="docker")
    assert codes(found) == ["python", "state_folder", "extras", "docker", "nvidia_runtime", "gpu"]
    assert inspector.asked == []


def test_denials_name_the_caller(around):
    found = examine(around, FakeInspector(verdicts={"ec2:RunInstances": "denied"}), wanted=plan(chosen=G))
    (denied,) = [item for item in found if item.severity == "error"]
    assert ARN in denied.message
