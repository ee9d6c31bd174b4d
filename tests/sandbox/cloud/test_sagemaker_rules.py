"""What SageMaker refuses before an instance starts."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from builders.hosting import REGISTRY, TAGS, Hosted, image, trust

EAST = "arn:aws:sagemaker:us-east-1:123456789012"


@pytest.fixture
def hosted(cloud):
    return Hosted.of(cloud)


def refused(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


@pytest.mark.parametrize(
    "kind", ["ml.g5.2xlarge", "ml.g6.12xlarge", "ml.g6e.xlarge", "ml.p4d.24xlarge", "ml.p5.4xlarge"]
)
def test_current_instance_types_are_accepted(hosted, kind):
    hosted.config("first", hosted.model("first"), InstanceType=kind, VolumeSizeInGB=512)
    variant = hosted.api.describe_endpoint_config(EndpointConfigName="first")["ProductionVariants"][0]
    assert (variant["InstanceType"], variant["VolumeSizeInGB"]) == (kind, 512)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"InstanceType": "ml.g99.xlarge"}, "'productionVariants.1.member.instanceType' failed to satisfy constraint"),
        ({"VolumeSizeInGB": 513}, "Member must have value less than or equal to 512"),
        ({"ContainerStartupHealthCheckTimeoutInSeconds": 3601}, "Member must have value less than or equal to 3600"),
        ({"InferenceAmiVersion": "al3"}, "Member must satisfy enum value set: [al2-ami-sagemaker-inference-gpu-2"),
        ({"VariantName": "no spaces"}, "Member must satisfy regular expression pattern"),
        ({"ModelName": "absent"}, f'Could not find model "{EAST}:model/absent".'),
        (
            {"InstancePools": [{"InstanceType": "ml.g6.xlarge", "Priority": 1}], "InstanceType": "ml.g6.xlarge"},
            "either",
        ),
    ],
)
def test_a_configuration_outside_the_limits_is_refused(hosted, changes, words):
    hosted.model("first")
    variant = {"VariantName": "main", "ModelName": "first", "InitialInstanceCount": 1, "InstanceType": "ml.g6.xlarge"}
    code, message = refused(
        hosted.api.create_endpoint_config, EndpointConfigName="first", ProductionVariants=[{**variant, **changes}]
    )
    assert (code, words in message) == ("ValidationException", True), message
    assert hosted.api.list_endpoint_configs()["EndpointConfigs"] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ghcr.io/huggingface/text-generation-inference:3.3.6", "without Vpc repository access mode is not supported"),
        (image(region="eu-west-1"), "not found."),
        (image("3.99.0"), "not found."),
        (f"{REGISTRY.format(region='us-east-1')}:latest", "not found."),
    ],
)
def test_an_image_that_is_not_in_the_registry_of_the_region_is_refused(hosted, given, words):
    container = {"Image": given, "Environment": {"HF_MODEL_ID": "gpt2"}}
    code, message = refused(
        hosted.api.create_model, ModelName="first", ExecutionRoleArn=hosted.role, PrimaryContainer=container
    )
    assert (code, words in message) == ("ValidationException", True), message


def test_a_role_that_sagemaker_cannot_assume_is_refused(hosted):
    iam = hosted.cloud.client("iam")
    other = iam.create_role(RoleName="other", AssumeRolePolicyDocument=trust("ec2.amazonaws.com"))["Role"]["Arn"]
    for role in (other, hosted.role.replace("hosting", "absent")):
        code, message = refused(
            hosted.api.create_model, ModelName="first", ExecutionRoleArn=role, PrimaryContainer={"Image": image()}
        )
        assert code == "ValidationException"
        assert message.startswith(f"Could not assume role {role}. Please ensure that the role exists")


def test_a_name_in_use_is_refused(hosted):
    hosted.config("first", hosted.model("first"))
    hosted.create()
    assert refused(hosted.model, name="first")[1] == f'Cannot create already existing model "{EAST}:model/first".'
    again = refused(hosted.config, name="first", model="first")[1]
    assert again == f'Cannot create already existing endpoint configuration "{EAST}:endpoint-config/first".'
    assert refused(hosted.create) == (
        "ValidationException", f'Cannot create already existing endpoint "{EAST}:endpoint/chat".',
    )  # fmt: skip


def test_what_does_not_exist_is_not_found(hosted):
    api = hosted.api
    for call, name, words in (
        (api.describe_model, "ModelName", f'model "{EAST}:model/absent"'),
        (api.delete_model, "ModelName", f'model "{EAST}:model/absent"'),
        (api.describe_endpoint_config, "EndpointConfigName", f'configuration "{EAST}:endpoint-config/absent"'),
        (api.delete_endpoint_config, "EndpointConfigName", f'configuration "{EAST}:endpoint-config/absent"'),
        (api.describe_endpoint, "EndpointName", f'endpoint "{EAST}:endpoint/absent"'),
        (api.delete_endpoint, "EndpointName", f'endpoint "{EAST}:endpoint/absent"'),
    ):
        code, message = refused(call, **{name: "absent"})
        assert (code, words in message) == ("ValidationException", True), message


def test_a_new_configuration_may_not_be_visible_yet(hosted):
    """API Reference, "CreateEndpoint": "this causes a validation error", and another try is recommended."""
    hosted.config("first", hosted.model("first"))
    hosted.cloud.fault(name="not-found-yet", action="CreateEndpoint")
    code, message = refused(hosted.create)
    assert (code, message.startswith("Could not find")) == ("ValidationException", True)
    hosted.create()


def test_the_quota_for_endpoint_usage_is_listed_and_kept(hosted):
    quotas = hosted.cloud.client("service-quotas")
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    found = {one["QuotaName"]: one for page in pages for one in page["Quotas"]}["ml.g6.xlarge for endpoint usage"]
    hosted.cloud.fault(name="low-quota", action="ListServiceQuotas")
    assert {one["Value"] for one in quotas.list_service_quotas(ServiceCode="sagemaker")["Quotas"]} == {0.0}
    most = int(found["Value"])
    hosted.config("first", hosted.model("first"), most + 1)
    code, message = refused(hosted.create)
    assert code == "ResourceLimitExceeded"
    assert f"'ml.g6.xlarge for endpoint usage' is {most} Instances, with current utilization of 0" in message


def test_tags_are_replaced_by_key_and_searchable(hosted):
    arn = hosted.api.create_model(
        ModelName="first", ExecutionRoleArn=hosted.role, PrimaryContainer={"Image": image()}, Tags=TAGS
    )["ModelArn"]
    hosted.config("first", "first")
    hosted.api.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "chat"}, {"Key": "new", "Value": "1"}])
    expected = [{"Key": "team", "Value": "chat"}, {"Key": "new", "Value": "1"}]
    assert hosted.api.list_tags(ResourceArn=arn)["Tags"] == expected
    tagging = hosted.cloud.client("resourcegroupstaggingapi")
    found = tagging.get_resources(TagFilters=[{"Key": "team", "Values": ["search"]}])["ResourceTagMappingList"]
    assert [one["ResourceARN"] for one in found] == [f"{EAST}:endpoint-config/first"]


def test_scaling_is_refused_without_endpoint_and_without_target(hosted):
    scaling = hosted.cloud.client("application-autoscaling")
    place = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/chat/variant/main",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    assert refused(scaling.register_scalable_target, **place, MinCapacity=1, MaxCapacity=2)[0] == "ValidationException"
    policy = {"PolicyName": "load", "PolicyType": "TargetTrackingScaling"}
    metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    tracked = {"TargetValue": 1.0, "PredefinedMetricSpecification": metric}
    code, _ = refused(scaling.put_scaling_policy, **place, **policy, TargetTrackingScalingPolicyConfiguration=tracked)
    assert code == "ObjectNotFoundException"
