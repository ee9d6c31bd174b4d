"""Options of `up` for Docker only."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Value
from tgi_deploy.values.options import (
    SECRETS,
    ApiKeyFromEnv,
    CertificateFile,
    ExposeToWorld,
    HubTokenFromEnv,
    Plaintext,
    Tls,
    TlsOptions,
    option,
)

NAME: Final = "docker"
FRONT: Final = "proxy"


class DockerOptions(Value, frozen=True, kw_only=True):
    """Raises InputError `bad_option_value` or `world_exposed`, and what `TlsOptions.check` raises.

    TLS needs the proxy, so `tls` and `certificate` include it.
    """

    bind: Annotated[
        str | None,
        option("Docker: address to publish the port on.  [default: 127.0.0.1]", "ADDRESS", commands=("up",)),
    ] = None
    front: Annotated[
        Literal["proxy"] | None,
        option(
            "Docker: 'proxy' puts a proxy in front of the engine, for updates without downtime.",
            "KIND",
            commands=("up",),
        ),
    ] = None
    expose_to_world: ExposeToWorld = False
    hub_token_from_env: HubTokenFromEnv = False
    api_key_from_env: ApiKeyFromEnv = None
    tls: Tls = False
    certificate: CertificateFile = None
    certificate_key_from_env: Annotated[
        str | None, option("Docker: private key of --certificate, in VARIABLE.", "VARIABLE", section=SECRETS)
    ] = None
    plaintext: Plaintext = False

    def __post_init__(self) -> None:
        self.secured.check('export TLS_KEY="$(cat privkey.pem)", and name it with --certificate-key-from-env TLS_KEY')
        if self.front not in {None, FRONT}:
            raise InputError(
                "bad_option_value", f"--front {self.front[:60]!r} is not supported", hint=f"use --front {FRONT}"
            )
        if self.bind is None:
            return
        try:
            address = ipaddress.ip_address(self.bind)
        except ValueError:
            raise InputError(
                "bad_option_value",
                f"--bind {self.bind[:60]!r} is not an address",
                hint="use an address of the Docker host",
            ) from None
        if address.is_unspecified and not self.expose_to_world:
            raise InputError(
                "world_exposed",
                f"--bind {self.bind} opens the port to everyone who can reach the host: Docker bypasses its firewall",
                hint="name one address of the host, or add --expose-to-world to confirm",
            )

    @property
    def secured(self) -> TlsOptions:
        key = self.certificate_key_from_env
        return TlsOptions(self.tls, self.certificate, key, "--certificate-key-from-env VARIABLE", self.plaintext)

    @property
    def proxied(self) -> bool:
        """Whether a proxy is in front of the engine."""
        return self.front is not None or self.secured.encrypted

    @property
    def address(self) -> str:
        """The address to publish the port on."""
        everywhere = "0.0.0.0" if self.expose_to_world else "127.0.0.1"  # noqa: S104 -- asked for by --expose-to-world
        return self.bind or everywhere
