"""The members of SageMaker's API that describe a deployment, for `render` and for `up`. Pure.

`AWS::SageMaker::Model` and `AWS::SageMaker::EndpointConfig` of CloudFormation have the same members.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.hosting import read_hosting
from tgi_deploy.errors import InputError
from tgi_deploy.targets.sagemaker.names import VARIANT, endpoint_name, log_group
from tgi_deploy.targets.sagemaker.options import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tgi_deploy.targets.protocol import Deployable
    from tgi_deploy.targets.sagemaker.options import SageMakerOptions
    from tgi_deploy.values.plan import Candidate

# Where SageMaker puts a model's data, and the variable that names the model to the image's entry point.
MODEL_DATA: Final = "/opt/ml/model"
_MODEL: Final = "HF_MODEL_ID"
_OF_THE_HUB: Final = ("HF_MODEL_REVISION",)
_MOST_POOLS: Final = 5
_LEAST_S: Final = 600
_MOST_S: Final = 3600  # of both timeouts (botocore)
_PROVISION_S: Final = 300  # of 300 to 3600: how long to look for machines of one type before the next
_SLACK: Final = 2.0
# Of images and logs, as the role of an endpoint needs them: https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html
_PULL: Final = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_LOG: Final = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")


def not_hosted(candidate: Candidate) -> InputError | None:
    """Return the error for a machine that SageMaker does not have."""
    hardware = candidate.offer.instance_type
    if hardware.status == "hosted":
        return None
    return InputError(
        "not_hosted",
        f"{hardware.name} is not a machine of SageMaker",
        hint="plan with --target sagemaker, without --hardware and --own",
    )


def container(deployable: Deployable, options: SageMakerOptions) -> dict[str, Any]:
    """Return `PrimaryContainer` of CreateModel. It holds no secret."""
    planned = deployable.candidate.engine.container
    variables, data = dict(planned.env), {}
    if options.weights is not None:
        variables = {name: value for name, value in variables.items() if name not in _OF_THE_HUB}
        variables[_MODEL] = MODEL_DATA
        source = {"S3Uri": options.weights, "S3DataType": "S3Prefix", "CompressionType": "None"}
        data = {"ModelDataSource": {"S3DataSource": source}}
    return {"Image": planned.image.reference, "Environment": dict(sorted(variables.items())), **data}


def variant(
    deployable: Deployable,
    candidate: Candidate,
    fallbacks: tuple[Candidate, ...],
    model_name: str,
    replicas: int,
    *,
    ready_s: int | None = None,
) -> dict[str, Any]:
    """Return the only `ProductionVariant` of CreateEndpointConfig.

    Fallbacks that run exactly the same container are further pools: SageMaker uses the next one if a type has no
    capacity. `ready_s` is how long the engine may take to become ready, by default twice the plan's prediction.
    """
    start_s = _within(_predicted_s(deployable.candidate) if ready_s is None else ready_s)
    types = pools(candidate, fallbacks)
    name = candidate.offer.instance_type.name
    machines: dict[str, Any] = {"InstanceType": name} if len(types) == 1 else _pooled(types)
    gib = candidate.storage.root_volume_gib
    return {
        "VariantName": VARIANT,
        "ModelName": model_name,
        "InitialInstanceCount": replicas,
        **machines,
        **({"VolumeSizeInGB": gib} if gib else {}),
        **_image(candidate),
        "ContainerStartupHealthCheckTimeoutInSeconds": start_s,
        "ModelDataDownloadTimeoutInSeconds": start_s,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }


def pools(candidate: Candidate, fallbacks: Sequence[Candidate]) -> Mapping[str, Candidate]:
    """Return the candidates that run the same container, best first, by instance type: at most five."""
    found = {candidate.offer.instance_type.name: candidate}
    for item in fallbacks:
        if _same(item, candidate) and len(found) < _MOST_POOLS:
            found.setdefault(item.offer.instance_type.name, item)
    return found


def _same(other: Candidate, candidate: Candidate) -> bool:
    """Return whether the other one differs only in the machine: same region, container, image, disk and number."""
    return (
        other.offer.region == candidate.offer.region
        and other.offer.instance_type.accelerator.name == candidate.offer.instance_type.accelerator.name
        and other.engine.container == candidate.engine.container
        and other.storage.root_volume_gib == candidate.storage.root_volume_gib
        and other.replicas == candidate.replicas
    )


def _pooled(types: Iterable[str]) -> dict[str, Any]:
    ordered = [{"InstanceType": name, "Priority": number} for number, name in enumerate(types, start=1)]
    return {"InstancePools": ordered, "VariantInstanceProvisionTimeoutInSeconds": _PROVISION_S}


def _image(candidate: Candidate) -> dict[str, str]:
    found = read_hosting(NAME).machine_image(candidate.engine.version)
    return {"InferenceAmiVersion": found} if found else {}


def _predicted_s(candidate: Candidate) -> float:
    """Return twice the expected time from the container's start to the first answer."""
    return _SLACK * sum(phase.expected_s for phase in candidate.engine.startup)


def longest_answer_s(candidate: Candidate) -> int:
    """Return how long an answer of all tokens may take: the slow end of the prediction, or SageMaker's limit."""
    speed = candidate.performance
    slowest_ms = max(speed.tpot_ms, speed.tpot_ms_p95 or 0.0, speed.tpot_ms_span.high if speed.tpot_ms_span else 0.0)
    longest_s = (speed.ttft_ms + slowest_ms * candidate.engine.settings.max_total_tokens) / 1000
    return math.ceil(min(longest_s, read_hosting(NAME).limits.stream_s))


def _within(seconds: float) -> int:
    return min(max(math.ceil(seconds), _LEAST_S), _MOST_S)


def role_statements(name: str, region: str, options: SageMakerOptions) -> list[dict[str, Any]]:
    """Return what an endpoint's role may do: pull the image, write its log and metrics, watch alarms, read its weights.

    In resources, `{partition}` and `{account}` are the role's own.
    """
    logs = f"arn:{{partition}}:logs:{region}:{{account}}:log-group:{log_group(name)}"
    statements: list[dict[str, Any]] = [
        {"Sid": "Authorize", "Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
        {
            "Sid": "Pull",
            "Effect": "Allow",
            "Action": list(_PULL),
            "Resource": f"arn:{{partition}}:ecr:{region}:*:repository/huggingface-pytorch-*",
        },
        {"Sid": "Log", "Effect": "Allow", "Action": list(_LOG), "Resource": [logs, f"{logs}:*"]},
        {
            "Sid": "Measure",
            "Effect": "Allow",
            "Action": "cloudwatch:PutMetricData",
            "Resource": "*",
            "Condition": {"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}},
        },
        {
            "Sid": "Watch",
            "Effect": "Allow",
            "Action": "cloudwatch:DescribeAlarms",
            "Resource": f"arn:{{partition}}:cloudwatch:{region}:{{account}}:alarm:{endpoint_name(name)}-*",
        },
    ]
    if options.weights is not None:
        bucket, _, folder = options.weights.removeprefix("s3://").partition("/")
        statements += [
            {
                "Sid": "ListWeights",
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": f"arn:{{partition}}:s3:::{bucket}",
                "Condition": {"StringLike": {"s3:prefix": f"{folder}*"}},
            },
            {
                "Sid": "ReadWeights",
                "Effect": "Allow",
                "Action": "s3:GetObject",
                "Resource": f"arn:{{partition}}:s3:::{bucket}/{folder}*",
            },
        ]
    return statements
