from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from builders import plans

from tgi_deploy.errors import InputError
from tgi_deploy.targets.ec2.launch_data import launch_template_data

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable

USER_DATA = "#cloud-config\nruncmd: [é]\n"
FULL = {
    "hub_token_parameter": "/t",
    "instance_profile": "reader",
    "image_id": "ami-0123456789abcdef0",
    "ttl_s": 60,
}


def data_of(deployable: Deployable, **changes: Any) -> dict[str, Any]:
    return launch_template_data(deployable, user_data=USER_DATA, **changes)


def on_market(market: str) -> Deployable:
    return plans.deployable(candidate=plans.candidate(offer=plans.offer(market=market)))


@lru_cache
def ec2() -> Any:
    return botocore.session.get_session().get_service_model("ec2")


def problems(operation: str, parameters: dict[str, Any]) -> str:
    shape = ec2().operation_model(operation).input_shape
    report: str = ParamValidator().validate(parameters, shape).generate_report()
    return report


def as_run_instances(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "MinCount": 1, "MaxCount": 1, "ClientToken": "token"}


DEPLOYABLES = [
    plans.deployable(),
    plans.deployable(**FULL),
    plans.deployable(instance_profile="arn:aws:iam::123456789012:instance-profile/reader"),
    on_market("spot"),
]


@pytest.mark.parametrize("deployable", DEPLOYABLES)
def test_botocore_accepts_the_data(deployable: Deployable):
    data = data_of(deployable)
    template = {"LaunchTemplateName": "tgi-deploy-example", "LaunchTemplateData": data}
    assert problems("CreateLaunchTemplate", template) == ""
    assert problems("RunInstances", as_run_instances(data)) == ""


def test_botocore_would_refuse_a_wrong_key_or_type():
    assert problems("RunInstances", as_run_instances(data_of(plans.deployable()) | {"Image": "x"}))
    assert problems("RunInstances", as_run_instances(data_of(plans.deployable()) | {"ImageId": 1}))


def test_shutdown_terminates_the_machine_and_deletes_its_disk():
    data = data_of(plans.deployable())
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert data["BlockDeviceMappings"] == [
        {
            "DeviceName": "/dev/sda1",
            "Ebs": {"VolumeType": "gp3", "VolumeSize": 95, "Encrypted": True, "DeleteOnTermination": True},
        }
    ]


def test_the_root_device_comes_from_the_image():
    assert (
        data_of(plans.deployable(), root_device_name="/dev/xvda")["BlockDeviceMappings"][0]["DeviceName"] == "/dev/xvda"
    )


def test_role_by_name_or_arn():
    assert "IamInstanceProfile" not in data_of(plans.deployable())
    assert data_of(plans.deployable(instance_profile="reader"))["IamInstanceProfile"] == {"Name": "reader"}
    arn = "arn:aws:iam::123456789012:instance-profile/reader"
    assert data_of(plans.deployable(instance_profile=arn))["IamInstanceProfile"] == {"Arn": arn}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"candidate": plans.candidate(offer=plans.on_hardware(1, "RTX-4090"))}, "not_rentable"),
        ({"hub_token_parameter": "/t"}, "instance_profile_missing"),
        ({"name": "Bad"}, "bad_name"),
        ({"image_id": "latest"}, "bad_option_value"),
        ({"image_id": "ami-0123456789abcdef0\n"}, "bad_option_value"),
        ({"instance_profile": "a b"}, "bad_option_value"),
    ],
)
def test_invalid_launch_templates_are_rejected(changes: dict[str, Any], code: str):
    with pytest.raises(InputError) as caught:
        data_of(plans.deployable(**changes))
    assert caught.value.code == code
    assert caught.value.hint
