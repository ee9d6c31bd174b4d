"""Secrets of one deployment on EC2: their sources, and how the machine reads them. Pure.

Values are checked once here; after that, only the variables' names are passed on.

The machine's role may read exactly the parameters named here, and by its boundary nothing outside `FOLDER`. A
SecureString under the account's default key needs no permission for the key itself (Systems Manager developer guide,
"AWS KMS encryption for Parameter Store").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.secret import checked, reference
from tgi_deploy.targets.container import api_key_variable, check_key_variable
from tgi_deploy.targets.ec2.options import TOKEN_VARIABLES, hub_token_variable
from tgi_deploy.values.resource import Ref, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.ec2.options import Ec2Options
    from tgi_deploy.values.plan import EngineRun, Plan

PARAMETER: Final = "parameter"
ROLE: Final = "role"
PROFILE: Final = "instance-profile"
# The permissions boundary limits what a machine can read to this, whatever its role allows.
FOLDER: Final = "/tgi-deploy/"
HUB_TOKEN: Final = "hub-token"  # noqa: S105 -- the parameter's name, not a token
_API_KEY: Final = "api-key"
MACHINE_ROLE: Final = "machine-role"
# For Session Manager's agent: AWS Systems Manager User Guide, "Create a custom IAM role for Session Manager". Since
# agent 3.3.40 also for Run Command: "Reference: ec2messages, ssmmessages, and other API operations".
_MAY_ANSWER: Final = {
    "Effect": "Allow",
    "Action": [
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ],
    "Resource": "*",  # these actions do not support resource-level permissions
}
_WHAT: Final = {HUB_TOKEN: "hub token", _API_KEY: "API key"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretSource:
    """One secret: an existing parameter, or a reference (`env:HF_TOKEN`) to the value for a new one."""

    parameter: str | None = None
    reference: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Secrets:
    """`api_key_variable` holds the key for the caller's own requests. `instance_profile` is an existing one.

    `tunnel`: the machine's role may answer sessions.
    """

    hub_token: SecretSource | None = None
    api_key: SecretSource | None = None
    api_key_variable: str | None = None
    instance_profile: str | None = None
    certificate_key_parameter: str | None = None
    tunnel: bool = False

    @property
    def makes(self) -> bool:
        """Whether resources have to be created for them."""
        needs_role = self.tunnel and self.instance_profile is None
        return needs_role or any(source is not None and source.reference for source in (self.hub_token, self.api_key))

    @property
    def hub_token_parameter(self) -> str | None:
        """The existing parameter, if any."""
        return self.hub_token.parameter if self.hub_token else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """Parameter names for the machine, and the resources behind them."""

    hub_token_parameter: str | None
    api_key_parameter: str | None
    instance_profile: str | None
    resources: tuple[Resource, ...]


def secrets_of(options: Ec2Options, plan: Plan, environment: Mapping[str, str], *, wait: bool) -> Secrets:
    """Return the source of each secret; `wait`: this command will call the engine, so it must know the key.

    Raises InputError `secret_missing`, `secret_unusable`, `bad_env`, `api_key_unsupported`, `api_key_unknown`,
    `conflicting_options`, `parameter_not_accessible`.
    """
    secrets = Secrets(
        hub_token=_hub_token(options, plan, environment),
        api_key=_api_key(options, environment, plan.chosen.engine, wait=wait),
        api_key_variable=options.api_key_from_env,
        instance_profile=options.instance_profile,
        certificate_key_parameter=options.certificate_key_parameter,
        tunnel=options.tunnel,
    )
    _check_reach(secrets)
    return secrets


def _check_reach(secrets: Secrets) -> None:
    """Check that a created role's boundary covers the parameters."""
    sources = (secrets.hub_token, secrets.api_key)
    named = (*(source.parameter for source in sources if source), secrets.certificate_key_parameter)
    outside = next((name for name in named if name is not None and not name.startswith(FOLDER)), None)
    if outside is not None and secrets.makes and secrets.instance_profile is None:
        raise InputError(
            "parameter_not_accessible",
            f"the machine's role can read only parameters under {FOLDER}, and {outside} is not there",
            hint=f"store it under {FOLDER}, or name a profile that may read all with --instance-profile",
        )


def _hub_token(options: Ec2Options, plan: Plan, environment: Mapping[str, str]) -> SecretSource | None:
    if options.hub_token_parameter is not None:
        if options.hub_token_from_env:
            raise InputError(
                "conflicting_options",
                "--hub-token-parameter and --hub-token-from-env can't be combined",
                hint="use one of the two",
            )
        return SecretSource(parameter=options.hub_token_parameter)
    variable = hub_token_variable(environment)
    needed = plan.request.model.model.gated or bool(plan.chosen.engine.container.secrets)
    if not options.hub_token_from_env and not (needed and variable):
        return None
    name = variable or TOKEN_VARIABLES[0]
    checked(environment.get(name), name, "the hub token")
    return SecretSource(reference=reference(name))


def _api_key(
    options: Ec2Options, environment: Mapping[str, str], engine: EngineRun, *, wait: bool
) -> SecretSource | None:
    variable, parameter = options.api_key_from_env, options.api_key_parameter
    if variable is None and parameter is None:
        return None
    api_key_variable(engine)
    if variable is not None:
        check_key_variable(variable, environment, engine)
    elif wait:
        raise InputError(
            "api_key_unknown",
            f"the engine will require the key in {parameter}, which this computer does not know",
            hint="add --api-key-from-env VARIABLE with the same key, or --no-wait",
        )
    return SecretSource(parameter=parameter, reference=None if parameter or variable is None else reference(variable))


def delivery(secrets: Secrets, *, name: str, deployment_id: str, region: str) -> Delivery:
    """Return how the secrets are delivered to a machine of deployment `name` in `region`."""
    named = {HUB_TOKEN: secrets.hub_token, _API_KEY: secrets.api_key}
    there = {key: source for key, source in named.items() if source is not None}
    names = {key: source.parameter or f"{FOLDER}{name}-{deployment_id}/{key}" for key, source in there.items()}
    made = [_parameter(key, names[key], source.reference, region) for key, source in there.items() if source.reference]
    own_role = secrets.makes and secrets.instance_profile is None
    profile = f"tgi-deploy-{deployment_id}-{region}"
    key = secrets.certificate_key_parameter
    read = (*names.values(), *([key] if key else []))
    return Delivery(
        hub_token_parameter=names.get(HUB_TOKEN),
        api_key_parameter=names.get(_API_KEY),
        instance_profile=profile if own_role else secrets.instance_profile,
        resources=(*made, *(_access(profile, name, region, _statements(region, read, secrets)) if own_role else ())),
    )


def _parameter(key: str, name: str, reference: str, region: str) -> Resource:
    return Resource(
        key=key,
        kind=PARAMETER,
        place=region,
        properties={"name": name, "description": f"{_WHAT[key]} of a tgi-deploy deployment", "value": reference},
        mutable=("value",),
    )


def _statements(region: str, parameters: tuple[str, ...], secrets: Secrets) -> list[dict[str, Any]]:
    """Return what the machine's role allows."""
    return [
        *([_may_read(region, parameters)] if parameters else []),
        *([_MAY_ANSWER] if secrets.tunnel else []),
    ]


def _access(profile: str, deployment: str, region: str, statements: list[dict[str, Any]]) -> tuple[Resource, Resource]:
    """Return the machine's role and its instance profile."""
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
            "statements": statements,
        },
        mutable=("statements",),
    )
    holder = Resource(
        key=PROFILE,
        kind=PROFILE,
        place=region,
        properties={"name": profile, "deployment": deployment, "role": Ref(key=MACHINE_ROLE, attribute="id")},
        mutable=("role",),
    )
    return role, holder


def _may_read(region: str, parameters: tuple[str, ...]) -> dict[str, Any]:
    arns = [f"arn:{{partition}}:ssm:{region}:{{account}}:parameter/{name.removeprefix('/')}" for name in parameters]
    return {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": arns}
