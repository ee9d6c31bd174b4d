"""Side resources of a deployment on EC2: stored secrets with a role to read them, and an external end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tgi_deploy.errors import InputError
from tgi_deploy.targets.ec2.external_end import external_end
from tgi_deploy.targets.ec2.resources import INSTANCE
from tgi_deploy.targets.ec2.secrets import delivery
from tgi_deploy.values.resource import machine_key
from tgi_deploy.values.serving import API_KEY_NOTE, API_KEY_PARAMETER_NOTE, TUNNEL_NOTE, YES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tgi_deploy.targets.ec2.secrets import Secrets
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Resource


@dataclass(frozen=True, kw_only=True, slots=True)
class Extras:
    """`names`: fields of the deployable; `notes`: for the machine's record."""

    names: Mapping[str, Any]
    before: tuple[Resource, ...]
    after: tuple[Resource, ...]
    notes: Mapping[str, str] = field(default_factory=dict)


def make_extras(
    secrets: Secrets, deployment: Deployment, region: str, expires: datetime | None, *, end_outside: bool
) -> Extras:
    """`expires` is when the machine terminates. Raises InputError `external_ttl_without_end`."""
    delivered = delivery(secrets, name=deployment.name, deployment_id=deployment.id, region=region)
    return Extras(
        names={
            "hub_token_parameter": delivered.hub_token_parameter,
            "api_key_parameter": delivered.api_key_parameter,
            "instance_profile": delivered.instance_profile,
        },
        before=delivered.resources,
        after=_end(deployment, region, expires) if end_outside else (),
        notes=_notes(secrets),
    )


def _notes(secrets: Secrets) -> dict[str, str]:
    """Return whether there is a tunnel, and where the API key is: the caller's variable, or a parameter."""
    named = {
        API_KEY_NOTE: secrets.api_key_variable,
        API_KEY_PARAMETER_NOTE: secrets.api_key and secrets.api_key.parameter,
        TUNNEL_NOTE: YES if secrets.tunnel else None,
    }
    return {note: name for note, name in named.items() if name}


def _end(deployment: Deployment, region: str, expires: datetime | None) -> tuple[Resource, ...]:
    if expires is None:
        raise InputError(
            "external_ttl_without_end",
            "--external-ttl needs an end time",
            hint="add --ttl or --max-spend",
        )
    return external_end(
        name=deployment.name,
        deployment_id=deployment.id,
        region=region,
        expires=expires,
        machine_key=machine_key(INSTANCE, deployment.wanted.number),
    )
