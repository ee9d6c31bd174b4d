"""Options about secrets: never a value, only where one is to be found."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.cli.output import Result
    from tgi_deploy.targets.ec2.secrets import SecretWishes
    from tgi_deploy.values.plan import Plan

    CommandFunction = Callable[..., Result]


class Given(Protocol):
    """The options of a command that takes these."""

    @property
    def hub_token_parameter(self) -> str | None: ...

    @property
    def hub_token_from_env(self) -> bool: ...

    @property
    def api_key_parameter(self) -> str | None: ...

    @property
    def api_key_from_env(self) -> str | None: ...

    @property
    def instance_profile(self) -> str | None: ...

    @property
    def wait(self) -> bool: ...


_OPTIONS: Final = (
    click.option("--hub-token-parameter", metavar="NAME", help="SSM parameter with the hub token, for the machine."),
    click.option("--hub-token-from-env", is_flag=True, help="Store HF_TOKEN for the machine. Gated models: by itself."),
    click.option("--api-key-parameter", metavar="NAME", help="SSM parameter with the API key, for the engine."),
    click.option("--api-key-from-env", metavar="VARIABLE", help="Have the engine ask for the API key in VARIABLE."),
    click.option("--plaintext", is_flag=True, help="Let the API key travel unencrypted to a public address."),
    click.option("--instance-profile", metavar="NAME", help="Profile that may read these.  [default: made if needed]"),
    click.option("--external-ttl", is_flag=True, help="End the machine from outside, too, 5 minutes after its end."),
)


def secret_wishes_of(given: Given, plan: Plan) -> SecretWishes:
    """What `up` was told about secrets, checked against this environment and the plan's engine."""
    from tgi_deploy.operations.launching.secrets import SecretOptions, secret_wishes  # noqa: PLC0415 -- help is printed without what acts

    options = SecretOptions(
        hub_token_parameter=given.hub_token_parameter,
        hub_token_from_env=given.hub_token_from_env,
        api_key_parameter=given.api_key_parameter,
        api_key_from_env=given.api_key_from_env,
        instance_profile=given.instance_profile,
        wait=given.wait,
    )
    return secret_wishes(options, plan, os.environ)


def secret_options(function: CommandFunction) -> CommandFunction:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
