"""Options of `up` for EC2 only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from tgi_deploy.errors import InputError
from tgi_deploy.targets.ec2.ingress import WORLD, networks
from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Mapping
from tgi_deploy.values.options import (
    EVERYWHERE,
    SECRETS,
    ApiKeyFromEnv,
    CertificateFile,
    ExposeToWorld,
    HubTokenFromEnv,
    Plaintext,
    Tls,
    TlsOptions,
    flag_of,
    option,
)
from tgi_deploy.values.plan_options import HARDWARE, MONEY

_LOOKED_AT: Final = (*EVERYWHERE, "doctor")
_OF_AN_OPEN_PORT: Final = ("allow_cidr", "expose_to_world", "tls", "certificate", "plaintext", "static_ip")

NAME: Final = "ec2"
TOKEN_VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


class Ec2Options(Value, frozen=True, kw_only=True):
    """Raises InputError: `bad_option_value`, `world_exposed`, `missing_argument` or `conflicting_options`."""

    allow_cidr: Annotated[
        tuple[str, ...],
        option("Network that may connect; repeatable.  [default: your address]", "CIDR", commands=("up",)),
    ] = ()
    expose_to_world: ExposeToWorld = False
    subnet: Annotated[
        str | None,
        option("Subnet to launch in.  [default: the default subnets, zone by zone]", "ID", commands=_LOOKED_AT),
    ] = None
    ami: Annotated[
        str | None,
        option("Machine image (AMI) with NVIDIA's driver and Docker.", "ID", commands=_LOOKED_AT, section=HARDWARE),
    ] = None
    hub_token_parameter: Annotated[
        str | None,
        option(
            "SSM parameter with the hub token, for the machine.",
            "NAME",
            commands=(*_LOOKED_AT, "render"),
            section=SECRETS,
        ),
    ] = None
    hub_token_from_env: HubTokenFromEnv = False
    api_key_parameter: Annotated[
        str | None, option("SSM parameter with the API key, for the engine.", "NAME", section=SECRETS)
    ] = None
    api_key_from_env: ApiKeyFromEnv = None
    tls: Tls = False
    certificate: CertificateFile = None
    certificate_key_parameter: Annotated[
        str | None,
        option("EC2: SSM parameter with the private key of --certificate.", "NAME", section=SECRETS),
    ] = None
    plaintext: Plaintext = False
    tunnel: Annotated[bool, option("Open no port: reach it through Session Manager.", commands=_LOOKED_AT)] = False
    instance_profile: Annotated[
        str | None,
        option(
            "Instance profile that may read the parameters.  [default: made by 'up' if needed]",
            "NAME",
            commands=(*EVERYWHERE, "render"),
            section=SECRETS,
        ),
    ] = None
    static_ip: Annotated[
        bool,
        option("Elastic IP address for the URL, which updates keep; billed until 'down'.", commands=("up", "doctor")),
    ] = False
    external_ttl: Annotated[
        bool,
        option("Also have AWS terminate the machine 5 minutes after its end time, as a backstop.", section=MONEY),
    ] = False

    def __post_init__(self) -> None:
        networks(self.allow_cidr, expose_to_world=self.expose_to_world)
        self.secured.check(
            "store the key first: aws ssm put-parameter --type SecureString --name /tgi-deploy/NAME/tls-key"
            " --value file://privkey.pem"
        )
        other = next((name for name in _OF_AN_OPEN_PORT if getattr(self, name)), None)
        if self.tunnel and other is not None:
            raise InputError(
                "conflicting_options",
                f"{flag_of(other)} applies to an open port, and --tunnel opens none",
                hint=f"omit {flag_of(other)}: everyone with permission to open a session can connect",
            )

    @property
    def secured(self) -> TlsOptions:
        key = self.certificate_key_parameter
        return TlsOptions(self.tls, self.certificate, key, "--certificate-key-parameter NAME", self.plaintext)

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that may connect; empty: only the caller."""
        named = networks(self.allow_cidr, expose_to_world=self.expose_to_world)
        return named or (WORLD if self.expose_to_world else ())


def hub_token_variable(environment: Mapping[str, str]) -> str | None:
    """Return the variable that holds a hub token, or None."""
    return next((name for name in TOKEN_VARIABLES if environment.get(name, "").strip()), None)
