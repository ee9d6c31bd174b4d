"""What a running engine serves, and how to monitor and reach it."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal, Self

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen, Value, replaced
from tgi_deploy.values.probing import Promise

# Notes of a machine's record.
API_KEY_NOTE: Final = "api_key_variable"
API_KEY_PARAMETER_NOTE: Final = "api_key_parameter"
BIND_NOTE: Final = "bind"
# Of a machine that answers over TLS only: the SHA-256 of its certificate and, as curl wants it, of its public key.
CERTIFICATE_NOTE: Final = "certificate"
PUBLIC_KEY_NOTE: Final = "public_key"
TUNNEL_NOTE: Final = "tunnel"  # of a machine whose engine is reached only through a tunnel to it
INVOKED_NOTE: Final = "invoked"  # of a machine whose engine is reached only through its cloud's API
# Of a machine that callers elsewhere reach by another URL than this tool does.
PUBLIC_URL_NOTE: Final = "public_url"
YES: Final = "yes"
UNREAD: Final = "unread"  # the machine has not reported its certificate yet
CERTIFICATE_LINE: Final = "[tgi-deploy] certificate"  # how a console's line about the certificate begins
_REPORTED: Final = re.compile(re.escape(CERTIFICATE_LINE) + r" sha256=([0-9a-f]{64}) public-key=([A-Za-z0-9+/]{43}=)\s")


class Service(Value, frozen=True, kw_only=True):
    """What a machine serves. `model` is a hub id or a folder; `promise` is None if the tags lack it."""

    engine: str
    release: str
    model: str
    port: int
    promise: Promise | None = None


class TunnelEnd(Value, frozen=True, kw_only=True):
    """Where a tunnel ends: the machine, and the engine's port there."""

    place: str
    machine_id: str
    port: int


class Address(Value, frozen=True, kw_only=True):
    """An engine's address. `certificate`: the SHA-256 of the only acceptable certificate.

    None: over plain HTTP, or with a certificate that an authority has signed. Empty: none may answer yet. With
    `tunnel`, the URL is that of a tunnel's near end, whose port is known once it is open. `invoked` is the location
    whose cloud passes requests on to the engine; empty if they go to it directly.
    """

    url: str
    certificate: str | None = None
    tunnel: TunnelEnd | None = None
    invoked: str = ""

    def at(self, path: str) -> Self:
        return replaced(self, url=self.url + path)


Reach = Literal["loopback", "private", "public"]
_WHERE: Final = {
    "private": "inside the private network, by plain HTTP",
    "public": "to a public address, by plain HTTP: anyone in between can read and change them",
}


def reach_of(host: str) -> Reach:
    """Return how far traffic to `host` travels. A name, or a wildcard address, may be public."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "loopback" if host == "localhost" else "public"
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return "loopback"
    return "public" if address.is_global or address.is_unspecified else "private"


class Traffic(Frozen, frozen=True, kw_only=True):
    """Traffic to an endpoint. `api_key`: whether its engine requires one; `encrypted`: it answers only over TLS."""

    reach: Reach
    api_key: bool
    encrypted: bool = False

    @property
    def unencrypted(self) -> str | None:
        """What travels unencrypted, as a sentence; None if nothing does, or only on this computer."""
        if self.encrypted or self.reach == "loopback":
            return None
        what = "the API key, prompts and answers" if self.api_key else "prompts and answers"
        return f"{what} travel unencrypted {_WHERE[self.reach]}"

    def check(self, *, plaintext: bool) -> None:
        """Raise InputError `plaintext_key` if the key would travel in plain text, unless `plaintext`."""
        if self.api_key and self.reach == "public" and not (self.encrypted or plaintext):
            raise InputError(
                "plaintext_key",
                "the API key would travel unencrypted to a public address, where an eavesdropper could steal it",
                hint="add --tls to encrypt it, or --plaintext to accept that, or use no key",
            )


class Certificate(Value, frozen=True, kw_only=True):
    """The certificate that a machine answers with: its SHA-256 in hexadecimal, that of its public key in Base64."""

    sha256: str
    public_key: str

    @property
    def notes(self) -> dict[str, str]:
        return {CERTIFICATE_NOTE: self.sha256, PUBLIC_KEY_NOTE: self.public_key}

    @property
    def line(self) -> str:
        """The line of a console that `reported_certificate` reads."""
        return f"{CERTIFICATE_LINE} sha256={self.sha256} public-key={self.public_key}"


def reported_certificate(console: str) -> Certificate | None:
    """Return the certificate that a machine's console reports; None if it reports none, or more than one."""
    reported = set(_REPORTED.findall(console))
    if len(reported) != 1:
        return None
    sha256, public_key = reported.pop()
    return Certificate(sha256=sha256, public_key=public_key)


def url_of(address: str, port: int, *, encrypted: bool = False) -> str:
    """Return the URL of an address, unchanged if it is a URL already."""
    if "://" in address:
        return address
    host, slash, path = address.partition("/")
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if encrypted else 'http'}://{host}:{port}{slash}{path}"


class Metrics(Value, frozen=True, kw_only=True):
    """The metrics page and the names on it; None for missing ones.

    `request_counters` increase only with requests and their tokens: if they don't change, the engine is idle. `queued`
    and `running` count requests, `kv_used` is the used share of the KV cache.
    """

    path: str | None
    request_counters: tuple[str, ...]
    queued: str | None = None
    running: str | None = None
    kv_used: str | None = None

    @property
    def load(self) -> tuple[str, ...]:
        """The names of the gauges of all requests, waiting and running; empty if one is missing."""
        return () if self.queued is None or self.running is None else (self.queued, self.running)


class Access(Value, frozen=True, kw_only=True):
    """The API key: `key_variable` is the container's variable for it, None if the release does not support one.

    It protects `guarded_routes` and below. `open_inference_routes` answer prompts without it, so a public port must not
    expose them.
    """

    key_variable: str | None
    guarded_routes: tuple[str, ...] = ()
    open_inference_routes: tuple[str, ...] = ()
