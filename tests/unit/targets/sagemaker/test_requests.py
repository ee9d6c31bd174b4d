"""What AWS is asked for, from a plan: the container, the machines, the role."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import botocore.session
import pytest
from botocore.validate import validate_parameters
from builders import plans
from builders.requests import shared_catalog

from tgi_deploy.catalog.hosting import HostedCatalog, read_hosting
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.targets.sagemaker.artifacts import render_artifact
from tgi_deploy.targets.sagemaker.names import endpoint_name, revision_name
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.targets.sagemaker.requests import container, pools, role_statements, variant
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan
from tgi_deploy.values.request import Replicas

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable

ROLE = "arn:aws:iam::123456789012:role/hosting"


@cache
def made(**texts: str) -> Plan:
    found = plan(OptionTexts(model="llama3-13b", regions=("us-east-1",), **texts), shared_catalog("sagemaker"), {})
    assert isinstance(found, Plan)
    return found


def deployable(chosen: Plan) -> Deployable:
    return plans.deployable(candidate=chosen.chosen, model=chosen.request.model)


@cache
def shape(name: str):
    return botocore.session.get_session().get_service_model("sagemaker").shape_for(name)


def test_aws_takes_every_member():
    chosen = made()
    subject = deployable(chosen)
    model = {
        "ModelName": revision_name("a" * 40, 12),
        "ExecutionRoleArn": ROLE,
        "PrimaryContainer": container(subject, SageMakerOptions(weights="s3://my-sagemaker-bucket/a/b/")),
    }
    validate_parameters(model, shape("CreateModelInput"))
    machines = variant(subject, chosen.chosen, chosen.fallbacks, "model", 2)
    validate_parameters(
        {"EndpointConfigName": endpoint_name("a" * 40), "ProductionVariants": [machines]},
        shape("CreateEndpointConfigInput"),
    )
    assert len(model["ModelName"]) <= 63
    assert machines["InferenceAmiVersion"] in shape("ProductionVariantInferenceAmiVersion").enum


def test_weights_from_s3_are_mounted_and_not_downloaded():
    found = container(deployable(made()), SageMakerOptions(weights="s3://bucket/model/"))
    assert found["Environment"]["HF_MODEL_ID"] == "/opt/ml/model"
    assert "HF_MODEL_REVISION" not in found["Environment"]
    assert found["ModelDataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/model/"
    assert "ModelDataSource" not in container(deployable(made()), SageMakerOptions())


def test_pools_run_the_very_same_container():
    chosen = made(budget="5")
    same = pools(chosen.chosen, chosen.fallbacks)
    assert tuple(same)[:2] == ("ml.g5.xlarge", "ml.g5.2xlarge")
    assert {item.engine.container for item in same.values()} == {chosen.chosen.engine.container}
    other = [item for item in chosen.fallbacks if item.engine.container != chosen.chosen.engine.container]
    assert other
    assert not {item.offer.instance_type.name for item in other} & set(same)
    machines = variant(deployable(chosen), chosen.chosen, chosen.fallbacks, "model", 1)
    assert "InstanceType" not in machines
    assert [item["Priority"] for item in machines["InstancePools"]] == list(range(1, len(same) + 1))


def test_a_type_that_is_named_has_no_pools():
    chosen = made(instance="ml.g6e.xlarge")
    assert variant(deployable(chosen), chosen.chosen, chosen.fallbacks, "model", 1)["InstanceType"] == "ml.g6e.xlarge"


@pytest.mark.parametrize(("ready_s", "sent"), [(1, 600), (1000.2, 1001), (99_999, 3600)])
def test_the_start_may_take_as_long_as_aws_allows(ready_s: float, sent: int):
    chosen = made()
    found = variant(deployable(chosen), chosen.chosen, (), "model", 1, ready_s=ready_s)
    assert found["ContainerStartupHealthCheckTimeoutInSeconds"] == sent
    assert found["ModelDataDownloadTimeoutInSeconds"] == sent


def test_only_machines_without_nvme_have_a_volume():
    chosen = made().chosen
    assert "VolumeSizeInGB" not in variant(deployable(made()), chosen, (), "model", 1)
    stored = replaced(chosen, storage=replaced(chosen.storage, root_volume_gib=120))
    assert variant(deployable(made()), stored, (), "model", 1)["VolumeSizeInGB"] == 120


def test_a_created_role_reads_only_its_weights():
    statements = role_statements("demo", "us-east-1", SageMakerOptions(weights="s3://my-bucket/model/"))
    read = {item["Sid"]: item for item in statements}
    assert read["ReadWeights"]["Resource"] == "arn:{partition}:s3:::my-bucket/model/*"
    assert "ReadWeights" not in {item["Sid"] for item in role_statements("demo", "us-east-1", SageMakerOptions())}
    assert all("tgi-deploy-demo" in resource for resource in read["Log"]["Resource"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"role": "hosting"}, "bad_option_value"),
        ({"role": f"{ROLE}\n"}, "bad_option_value"),
        ({"weights": "s3://bucket"}, "bad_option_value"),
        ({"weights": "https://bucket/x/"}, "bad_option_value"),
        ({"role": ROLE, "create_role": True}, "conflicting_options"),
        ({"weights": "s3://bucket/x/", "hub_token_from_env": True}, "conflicting_options"),
    ],
)
def test_options_that_aws_would_not_take(options, code: str):
    with pytest.raises(InputError) as caught:
        SageMakerOptions(**options)
    assert caught.value.code == code
    assert caught.value.hint


def test_types_are_those_of_the_api():
    assert set(read_hosting("sagemaker").types) <= set(shape("ProductionVariantInstanceType").enum)
    images = {item.name for item in read_hosting("sagemaker").machine_images}
    assert images <= set(shape("ProductionVariantInferenceAmiVersion").enum)


def test_every_price_is_listed_or_an_estimate():
    catalog = shared_catalog("sagemaker")
    assert isinstance(catalog, HostedCatalog)
    for offer in catalog.offers(("us-east-1", "eu-west-1"), ("on-demand",)):
        assert offer.region == "us-east-1" or offer.estimated or offer.usd_per_hour is None
        assert offer.estimated == offer.price_source.startswith("derived") or offer.usd_per_hour is None


def test_the_driver_supports_the_images_cuda():
    assert read_hosting("sagemaker").machine_image("3.3.6") == "al2-ami-sagemaker-inference-gpu-3-1"
    assert read_hosting("sagemaker").machine_image("2.2.0") == "al2-ami-sagemaker-inference-gpu-2-1"
    assert read_hosting("sagemaker").machine_image("9.9.9") is None


def test_every_image_is_of_a_release_that_plans_know():
    catalog = shared_catalog("sagemaker")
    known = catalog.release_versions()
    assert set(known) == set(read_hosting("sagemaker").releases)
    assert all(f"tgi{version}-gpu" in catalog.release(version).image for version in known)


def test_a_stack_is_not_rendered_for_a_range_that_nothing_in_it_would_autoscale():
    ranged = replaced(deployable(made()), replicas=Replicas(least=2, most=4))
    with pytest.raises(InputError, match=r"no autoscaling.* 2\.\.4"):
        render_artifact("sagemaker", ranged, templates_dir=None)
