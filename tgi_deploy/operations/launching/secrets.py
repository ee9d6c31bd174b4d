"""Which secrets a deployment gets, and where from: existing parameters, or variables of the caller's environment.

Values are looked at once, to refuse what could not work; only the variables' names go on from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.secret import checked, reference
from tgi_deploy.targets.ec2.secrets import FOLDER, SecretWish, SecretWishes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.plan import EngineRun, Plan

TOKEN_VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretOptions:
    """What the command line says. `wait`: the engine will be asked, so its key has to be known here."""

    hub_token_parameter: str | None = None
    hub_token_from_env: bool = False
    api_key_parameter: str | None = None
    api_key_from_env: str | None = None
    instance_profile: str | None = None
    wait: bool = True


def hub_token_variable(environment: Mapping[str, str]) -> str | None:
    """The variable that holds a hub token, None where none does."""
    return next((name for name in TOKEN_VARIABLES if environment.get(name, "").strip()), None)


def secret_wishes(options: SecretOptions, plan: Plan, environment: Mapping[str, str]) -> SecretWishes:
    """Return what becomes of each secret.

    Raises InputError `secret_missing`, `secret_unusable`, `bad_env_name`, `api_key_unsupported`, `api_key_unknown`,
    `conflicting_options`, `parameter_out_of_reach`.
    """
    wishes = SecretWishes(
        hub_token=_hub_token(options, plan, environment),
        api_key=_api_key(options, environment, plan.chosen.engine),
        api_key_variable=options.api_key_from_env,
        instance_profile=options.instance_profile,
    )
    _check_reach(wishes)
    return wishes


def _check_reach(wishes: SecretWishes) -> None:
    """A role that is made for the machine reads no further than its boundary."""
    named = (wish.parameter for wish in (wishes.hub_token, wishes.api_key) if wish is not None)
    outside = next((name for name in named if name is not None and not name.startswith(FOLDER)), None)
    if outside is not None and wishes.makes and wishes.instance_profile is None:
        raise InputError(
            "parameter_out_of_reach",
            f"the role that is made for the machine reads parameters under {FOLDER} alone, and {outside} is not there",
            hint=f"store it under {FOLDER}, or name a profile that may read both with --instance-profile",
        )


def _hub_token(options: SecretOptions, plan: Plan, environment: Mapping[str, str]) -> SecretWish | None:
    if options.hub_token_parameter is not None:
        if options.hub_token_from_env:
            raise InputError(
                "conflicting_options",
                "--hub-token-parameter and --hub-token-from-env name two tokens",
                hint="give one of the two",
            )
        return SecretWish(parameter=options.hub_token_parameter)
    variable = hub_token_variable(environment)
    needed = plan.request.model.model.gated or bool(plan.chosen.engine.container.secrets)
    if not options.hub_token_from_env and not (needed and variable):
        return None
    name = variable or TOKEN_VARIABLES[0]
    checked(environment.get(name), name, "the hub token")
    return SecretWish(reference=reference(name))


def _api_key(options: SecretOptions, environment: Mapping[str, str], engine: EngineRun) -> SecretWish | None:
    variable, parameter = options.api_key_from_env, options.api_key_parameter
    if variable is None and parameter is None:
        return None
    if engine.access.key_variable is None:
        raise InputError(
            "api_key_unsupported",
            f"version {engine.version} of the engine asks for no API key",
            hint="choose a newer --engine-version, or leave the API key out",
        )
    if variable is not None:
        _check_variable(variable, environment, example=f"{engine.name.upper()}_API_KEY")
    elif options.wait:
        raise InputError(
            "api_key_unknown",
            f"the engine will want the key in {parameter}, and nothing tells it to this computer",
            hint="add --api-key-from-env VARIABLE with the same key, or --no-wait",
        )
    return SecretWish(parameter=parameter, reference=None if parameter or variable is None else reference(variable))


def _check_variable(variable: str, environment: Mapping[str, str], *, example: str) -> None:
    if not _VARIABLE.fullmatch(variable):
        raise InputError(
            "bad_env_name",
            "--api-key-from-env takes the name of an environment variable, not a key",
            hint=f"export {example}=… and give --api-key-from-env {example}",
        )
    checked(environment.get(variable), variable, "the API key")
