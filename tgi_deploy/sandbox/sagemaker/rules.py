"""Rules of SageMaker's API that moto lacks: limits of parameters, names in use or absent, roles, images, quotas, tags.

The words are AWS's own, as bug reports quote them; the limits come from botocore's model of the service.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from botocore.loaders import Loader
from botocore.model import ServiceModel
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.sagemaker.models import FakeEndpointConfig, sagemaker_backends

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.sandbox import roles
from tgi_deploy.sandbox.wire import Call, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SERVICE: Final = "sagemaker.amazonaws.com"
_ACTION: Final = re.compile(r"(Create|Describe|Delete|Update)(Model|EndpointConfig|Endpoint)(?:WeightsAndCapacities)?")
# By kind: the noun in AWS's messages, in ARNs, and moto's store.
_KINDS: Final = {
    "Model": ("model", "model", "_models"),
    "EndpointConfig": ("endpoint configuration", "endpoint-config", "endpoint_configs"),
    "Endpoint": ("endpoint", "endpoint", "endpoints"),
}
_REGISTRY: Final = re.compile(r"\d{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<rest>.+)")
_RELEASE: Final = re.compile(r"huggingface-pytorch-tgi-inference:[\d.]+-tgi(\d+\.\d+\.\d+)-gpu-.+")
# Instances of each type that an account may have in endpoints.
_MOST_INSTANCES: Final = 8
_PAGE: Final = 100
_EXCEEDED: Final = (
    "The account-level service limit '{kind} for endpoint usage' is {most} Instances, with current utilization of "
    "{used} Instances and a request delta of {more} Instances. Please use AWS Service Quotas to request an increase "
    "for this quota. If AWS Service Quotas is not available, contact AWS support to request an increase for this quota."
)
_ROLLING: Final = (0.05, 0.5)  # of a variant's instances: AWS's guide, "Use rolling deployments"


def install() -> None:
    """Make moto accept what `refuse` accepts, and find configurations by their ARN."""
    setattr(FakeEndpointConfig, "validate_production_variants", lambda *_: None)  # noqa: B010 -- as in world.py
    arn = property(lambda config: config.endpoint_config_arn, lambda _config, _value: None)
    setattr(FakeEndpointConfig, "arn", arn)  # noqa: B010 -- as above


def backend(region: str) -> Any:  # noqa: ANN401 -- moto has no types to name
    return sagemaker_backends[DEFAULT_ACCOUNT_ID][region]


def arn(region: str, kind: str, name: str) -> str:
    return f"arn:aws:sagemaker:{region}:{DEFAULT_ACCOUNT_ID}:{_KINDS[kind][1]}/{name}"


def invalid(message: str) -> RefusedError:
    return RefusedError("ValidationException", message)


@cache
def _model() -> ServiceModel:
    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def release_of(image: str) -> str:
    """Return the TGI release of an image of AWS's registry; empty for another image."""
    located = _REGISTRY.fullmatch(image)
    found = _RELEASE.fullmatch(located["rest"]) if located else None
    return found[1] if found and found[1] in _releases() else ""


@cache
def _releases() -> frozenset[str]:
    return frozenset(Catalog.open(engines=(Tgi(),)).release_versions())


def refuse(call: Call) -> None:
    """Raise the error that SageMaker would raise but moto would not."""
    if call.action in _model().operation_names:
        broken = list(_broken(_model().operation_model(call.action).input_shape, call.params, ""))
        if broken:
            count = f"{len(broken)} validation error{'s' if len(broken) > 1 else ''} detected"
            raise invalid(f"{count}: {'; '.join(broken)}")
    found = _ACTION.fullmatch(call.action)
    if found:
        _refuse_name(call, found[1] == "Create", found[2])
    if call.action == "CreateModel":
        _refuse_model(call)
    elif call.action == "CreateEndpointConfig":
        _refuse_variants(call)
    elif call.action == "UpdateEndpoint":
        must_exist(call.region, "EndpointConfig", call.text("EndpointConfigName"))


def must_exist(region: str, kind: str, name: str) -> None:
    if name not in getattr(backend(region), _KINDS[kind][2]):
        raise invalid(f'Could not find {_KINDS[kind][0]} "{arn(region, kind, name)}".')


def _refuse_name(call: Call, is_new: bool, kind: str) -> None:  # noqa: FBT001 -- an internal switch
    name = call.text(f"{kind}Name")
    if not is_new:
        must_exist(call.region, kind, name)
    elif name in getattr(backend(call.region), _KINDS[kind][2]):
        raise invalid(f'Cannot create already existing {_KINDS[kind][0]} "{arn(call.region, kind, name)}".')


def _refuse_model(call: Call) -> None:
    role = call.text("ExecutionRoleArn")
    if not roles.is_trusted(role, SERVICE):
        trust = f"Please ensure that the role exists and allows principal '{SERVICE}' to assume the role."
        raise invalid(f"Could not assume role {role}. {trust}")
    containers = call.params.get("Containers") or [call.params.get("PrimaryContainer") or {}]
    for image in (str(item.get("Image", "")) for item in containers):
        located = _REGISTRY.fullmatch(image)
        if not located:
            raise invalid(f'Using non-ECR image "{image}" without Vpc repository access mode is not supported.')
        if located["region"] != call.region or not release_of(image):
            raise invalid(f"Requested image {image} not found.")


def _refuse_variants(call: Call) -> None:
    for variant in call.params.get("ProductionVariants", ()):
        pools = variant.get("InstancePools", ())
        for name in [variant.get("ModelName"), *(pool.get("ModelNameOverride") for pool in pools)]:
            if name:
                must_exist(call.region, "Model", name)
        # "you replace the InstanceType parameter [...] with an InstancePools list": AWS's guide, "instance pools".
        if bool(pools) == ("InstanceType" in variant):
            raise invalid("Specify either InstanceType or InstancePools for each production variant.")


def refuse_batch(size: Mapping[str, Any] | None, count: int) -> None:
    """Reject batches of a rolling update that are not 5 to 50 % of the instances."""
    if size is not None:
        share = size["Value"] / (100 if size["Type"] == "CAPACITY_PERCENT" else count)
        if not _ROLLING[0] <= share <= _ROLLING[1]:
            raise invalid("MaximumBatchSize must be between 5% and 50% of the variant's total instance count.")


def refuse_quota(kind: str, used: int, more: int) -> None:
    """Reject more instances than the account may have."""
    if more > 0 and used + more > _MOST_INSTANCES:
        message = _EXCEEDED.format(kind=kind, most=_MOST_INSTANCES, used=used, more=more)
        raise RefusedError("ResourceLimitExceeded", message)


def list_quotas(call: Call) -> dict[str, Any]:
    """Return a page of the quotas "for endpoint usage", one for each instance type. Their codes are made up."""
    kinds = _model().shape_for("ProductionVariantInstanceType").metadata["enum"]
    start, size = int(call.params.get("NextToken", 0)), int(call.params.get("MaxResults", _PAGE))
    quotas = [
        {
            "ServiceCode": "sagemaker",
            "QuotaCode": f"L-{sha256(kind.encode()).hexdigest()[:8].upper()}",
            "QuotaName": f"{kind} for endpoint usage",
            "Value": float(_MOST_INSTANCES),
        }
        for kind in kinds[start : start + size]
    ]
    return {"Quotas": quotas, **({"NextToken": str(start + size)} if start + size < len(kinds) else {})}


def add_tags(call: Call) -> dict[str, Any]:
    """Add tags as SageMaker does, where moto adds a second value of a key: API Reference, "AddTags"."""
    kind, _, name = call.text("ResourceArn").rpartition(":")[2].partition("/")
    store = next((attribute for _, noun, attribute in _KINDS.values() if noun == kind), "_models")
    resource = getattr(backend(call.region), store).get(name)
    if resource is None:
        raise invalid(f"Could not find resource {call.text('ResourceArn')}.")
    given = {tag["Key"]: tag for tag in [*resource.tags, *call.params["Tags"]]}
    resource.tags = list(given.values())
    return {"Tags": resource.tags}


def _broken(shape: Any, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 -- any of botocore's shapes
    """Yield what breaks a limit, in AWS's words. Absent members and minimums are refused by botocore itself."""
    inner: Iterable[tuple[Any, Any, str]] = ()
    if shape.type_name == "structure":
        named = ((shape.members[name], item, name) for name, item in value.items() if name in shape.members)
        inner = ((member, item, f"{name[0].lower()}{name[1:]}") for member, item, name in named)
    elif shape.type_name == "list":
        inner = ((shape.member, item, f"{index}.member") for index, item in enumerate(value, start=1))
    elif shape.type_name == "map":
        inner = ((shape.value, item, f"{name}.member") for name, item in value.items())
    for member, item, name in inner:
        yield from _broken(member, item, f"{path}.{name}".removeprefix("."))
    constraint = _constraint(shape.metadata, value)
    if constraint:
        yield f"Value '{value}' at '{path}' failed to satisfy constraint: Member must {constraint}"


def _constraint(limits: Mapping[str, Any], value: Any) -> str:  # noqa: ANN401 -- any of JSON
    size, unit = (value, "value") if isinstance(value, int | float) else (len(value), "length")
    # Java's classes of characters, which Python does not know.
    pattern = limits.get("pattern", "").replace(r"\p{L}", r"\w").replace(r"\p{N}", r"\d").replace(r"\p{Z}", r"\s")
    if value not in limits.get("enum", (value,)):
        return f"satisfy enum value set: [{', '.join(limits['enum'])}]"
    if pattern and not re.fullmatch(pattern, value):
        return f"satisfy regular expression pattern: {limits['pattern']}"
    return f"have {unit} less than or equal to {limits['max']}" if size > limits.get("max", size) else ""
