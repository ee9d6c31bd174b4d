"""Secrets of one deployment on EC2: where the machine reads them, and what has to be made so that it may. Pure.

The machine's role may read exactly the parameters named here, and by its boundary nothing outside `FOLDER`. A
SecureString under the account's default key needs no permission for the key itself (Systems Manager's developer guide,
"AWS KMS encryption for Parameter Store").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tgi_deploy.reconcile.model import Ref, Resource

PARAMETER: Final = "parameter"
ROLE: Final = "role"
PROFILE: Final = "instance-profile"
# What the boundary of roles lets a machine read, whatever its role says.
FOLDER: Final = "/tgi-deploy/"
HUB_TOKEN: Final = "hub-token"  # noqa: S105 -- the parameter's name, not a token
_API_KEY: Final = "api-key"
MACHINE_ROLE: Final = "machine-role"
_WHAT: Final = {HUB_TOKEN: "hub token", _API_KEY: "API key"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretWish:
    """One secret: a parameter that exists, or a reference (`env:HF_TOKEN`) to what one is to be made of."""

    parameter: str | None = None
    reference: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretWishes:
    """`api_key_variable` is where the caller's own requests find the key. `instance_profile` is one that exists."""

    hub_token: SecretWish | None = None
    api_key: SecretWish | None = None
    api_key_variable: str | None = None
    instance_profile: str | None = None

    @property
    def makes(self) -> bool:
        """Whether anything has to be made for them."""
        return any(wish is not None and wish.reference for wish in (self.hub_token, self.api_key))


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """Names that the machine is given, and the resources behind them."""

    hub_token_parameter: str | None
    api_key_parameter: str | None
    instance_profile: str | None
    resources: tuple[Resource, ...]


def delivery(wishes: SecretWishes, *, name: str, deployment_id: str, region: str) -> Delivery:
    """How the wished secrets reach a machine of deployment `name` in `region`."""
    named = {HUB_TOKEN: wishes.hub_token, _API_KEY: wishes.api_key}
    there = {key: wish for key, wish in named.items() if wish is not None}
    names = {key: wish.parameter or f"{FOLDER}{name}-{deployment_id}/{key}" for key, wish in there.items()}
    made = [_parameter(key, names[key], wish.reference, region) for key, wish in there.items() if wish.reference]
    own_role = bool(made) and wishes.instance_profile is None
    profile = f"tgi-deploy-{deployment_id}-{region}"
    return Delivery(
        hub_token_parameter=names.get(HUB_TOKEN),
        api_key_parameter=names.get(_API_KEY),
        instance_profile=profile if own_role else wishes.instance_profile,
        resources=(*made, *(_access(profile, name, region, tuple(names.values())) if own_role else ())),
    )


def _parameter(key: str, name: str, reference: str, region: str) -> Resource:
    return Resource(
        key=key,
        kind=PARAMETER,
        place=region,
        properties={"name": name, "description": f"{_WHAT[key]} of a tgi-deploy deployment", "value": reference},
        loose=("value",),
    )


def _access(profile: str, deployment: str, region: str, parameters: tuple[str, ...]) -> tuple[Resource, Resource]:
    """The machine's role and the profile it comes in."""
    role = Resource(
        key=MACHINE_ROLE,
        kind=ROLE,
        place=region,
        properties={
            "name": f"{profile}-machine",
            "deployment": deployment,
            "trust": {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            },
            "statements": [_may_read(region, parameters)],
        },
        loose=("statements",),
    )
    holder = Resource(
        key=PROFILE,
        kind=PROFILE,
        place=region,
        properties={"name": profile, "deployment": deployment, "role": Ref(key=MACHINE_ROLE, attribute="id")},
        loose=("role",),
    )
    return role, holder


def _may_read(region: str, parameters: tuple[str, ...]) -> dict[str, Any]:
    arns = [f"arn:{{partition}}:ssm:{region}:{{account}}:parameter/{name.removeprefix('/')}" for name in parameters]
    return {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": arns}
