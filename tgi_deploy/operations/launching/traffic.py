"""What travels unencrypted between callers and an engine, which speaks plain HTTP: where it goes, and who agreed.

An API key goes to a public address only where somebody has said so (`--plaintext`), which the record keeps. Prompts and
answers go there all the same, and every command that names the address says it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from tgi_deploy.reconcile.model import Deployment, ResourceRecord

Reach = Literal["loopback", "private", "public"]

# Notes of a machine's record.
API_KEY_NOTE: Final = "api_key_variable"
API_KEY_PARAMETER_NOTE: Final = "api_key_parameter"
BIND_NOTE: Final = "bind"
_WHERE: Final = {
    "private": "inside the private network, by plain HTTP",
    "public": "to a public address, by plain HTTP: anybody on the way can read and change them",
}


def reach_of(host: str) -> Reach:
    """How far what goes to `host` travels. A name, and an address of every interface, may be public."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "loopback" if host == "localhost" else "public"
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return "loopback"
    return "public" if address.is_global or address.is_unspecified else "private"


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What goes to an endpoint. `api_key`: whether its engine asks for one."""

    reach: Reach
    api_key: bool

    @property
    def unencrypted(self) -> str | None:
        """The sentence about it; None where nothing leaves the computer."""
        if self.reach == "loopback":
            return None
        what = "the API key, prompts and answers" if self.api_key else "prompts and answers"
        return f"{what} travel unencrypted {_WHERE[self.reach]}"

    def check(self, *, plaintext: bool) -> None:
        """Raise InputError `plaintext_key` for a key that would be shown to whoever listens, unless `plaintext`."""
        if self.api_key and self.reach == "public" and not plaintext:
            raise InputError(
                "plaintext_key",
                "the API key would travel unencrypted to a public address: whoever listens on the way could use it",
                hint="add --plaintext to 'up' to accept that, or leave the key out: --allow-cidr says who may connect",
            )


def traffic_of(deployment: Deployment) -> Traffic | None:
    """What goes to a recorded deployment; None before it has an address."""
    record = deployment.machine
    if record is None or deployment.endpoint is None:
        return None
    host = record.notes.get(BIND_NOTE) or _host(deployment.endpoint)
    return Traffic(reach=reach_of(host), api_key=asks_for_key(record))


def _host(url: str) -> str:
    """Empty, which counts as public, for what is not a URL: a record may have been edited."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def unencrypted(deployment: Deployment | None) -> str | None:
    """The sentence about what travels unencrypted, None where nothing does or nobody knows yet."""
    traffic = traffic_of(deployment) if deployment is not None else None
    return traffic.unencrypted if traffic is not None else None


def asks_for_key(record: ResourceRecord) -> bool:
    return bool({API_KEY_NOTE, API_KEY_PARAMETER_NOTE} & record.notes.keys())
