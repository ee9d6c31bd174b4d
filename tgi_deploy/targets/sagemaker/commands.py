"""AWS CLI commands to inspect and remove resources by hand."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.protocol import Commands
from tgi_deploy.targets.sagemaker.names import PREFIX, endpoint_name, endpoint_of, log_group, region_of
from tgi_deploy.values.resource import TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.values.serving import TunnelEnd

_LOOKS: Final = {
    "endpoint": "aws sagemaker describe-endpoint --endpoint-name {endpoint}",
    "model": "aws sagemaker describe-model --model-name {name}",
    "alarm": "aws cloudwatch describe-alarms --alarm-names {name}",
    "scalable-target": (
        "aws application-autoscaling describe-scalable-targets --service-namespace sagemaker --resource-ids {id}"
    ),
}
_REMOVALS: Final = {
    "endpoint": (  # which may serve another revision
        '[ "$(aws sagemaker describe-endpoint --endpoint-name {endpoint} --region {region} '
        '--query EndpointConfigName --output text)" = {id} ] '
        "&& aws sagemaker delete-endpoint --endpoint-name {endpoint} --region {region}; "
        "aws sagemaker delete-endpoint-config --endpoint-config-name {id}"
    ),
    "model": "aws sagemaker delete-model --model-name {name}",
    "alarm": "aws cloudwatch delete-alarms --alarm-names {name}",
    "schedule": "aws scheduler delete-schedule-group --name {id}",
    "scalable-target": (
        "aws application-autoscaling deregister-scalable-target --service-namespace sagemaker --resource-id {id} "
        "--scalable-dimension sagemaker:variant:DesiredInstanceCount"
    ),
}
_ROLE: Final = (
    "aws iam delete-role-policy --role-name {id} --policy-name tgi-deploy && aws iam delete-role --role-name {id}"
)


def look_command(kind: str, thing_id: str, place: str) -> str | None:
    """Return the command, or None if the kind has none."""
    return _filled(_LOOKS.get(kind), thing_id, place)


def removal_command(kind: str, thing_id: str, place: str) -> str | None:
    """Return the command, or None if the kind has none."""
    if kind == "role":
        return _ROLE.format(id=shlex.quote(thing_id))
    return _filled(_REMOVALS.get(kind), thing_id, place)


def _filled(words: str | None, thing_id: str, place: str) -> str | None:
    if words is None:
        return None
    region = shlex.quote(region_of(place))
    named = {
        "id": shlex.quote(thing_id),
        "name": shlex.quote(thing_id.rpartition("/")[2]),
        "endpoint": shlex.quote(endpoint_of(thing_id)),
        "region": region,
    }
    return f"{words.format(**named)} --region {region}"


def commands(name: str, place: str, machine_id: str, *, nvidia: bool = True) -> Commands:  # noqa: ARG001 -- the protocol's
    """Return commands that find the resources by their names."""
    region = f"--region {region_of(place)}"
    endpoint = endpoint_of(machine_id) if machine_id.startswith(PREFIX) else endpoint_name(name)
    contains = f"--name-contains {endpoint_name(name)} {region}"
    tagged = f"--tag-filters Key={TAG_NAME},Values={name}"
    return Commands(
        inspections=(
            f"aws sagemaker describe-endpoint --endpoint-name {endpoint} {region}",
            f"aws logs tail {log_group(name)} --since 1h {region}",
        ),
        removal=(
            f"aws sagemaker delete-endpoint --endpoint-name {endpoint} {region}",
            f"aws sagemaker list-endpoint-configs {contains}",
            f"aws sagemaker list-models {contains}",
            f"aws cloudwatch describe-alarms --alarm-name-prefix {endpoint_name(name)} {region}",
        ),
        proof=f"aws resourcegroupstaggingapi get-resources {region} {tagged}   # the proof: an empty list",
    )


def tunnel(end: TunnelEnd) -> str:  # noqa: ARG001 -- the protocol's
    """Return nothing: an endpoint is invoked through AWS's API."""
    return ""
