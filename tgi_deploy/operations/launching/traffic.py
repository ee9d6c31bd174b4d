"""Describes unencrypted traffic between callers and a recorded deployment that does not answer over TLS.

An API key is sent unencrypted to a public address only with `--plaintext`, which is recorded. Prompts and answers
travel unencrypted in any case, so every command that prints the address has a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_deploy.values.serving import (
    API_KEY_NOTE,
    API_KEY_PARAMETER_NOTE,
    BIND_NOTE,
    CERTIFICATE_NOTE,
    PUBLIC_URL_NOTE,
    TUNNEL_NOTE,
    Traffic,
    reach_of,
    url_of,
)

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Launch
    from tgi_deploy.values.deployment import Deployment, ResourceRecord


def traffic_of(deployment: Deployment) -> Traffic | None:
    """Return the traffic to a recorded deployment; None before it has an address."""
    record = deployment.machine
    if record is None or deployment.endpoint is None:
        return None
    public = record.notes.get(PUBLIC_URL_NOTE, "")
    if public:
        return Traffic(reach="public", api_key=asks_for_key(record), encrypted=public.startswith("https:"))
    host = record.notes.get(BIND_NOTE) or _host(deployment.endpoint)
    encrypted = is_encrypted(record) or deployment.endpoint.startswith("https://")
    return Traffic(reach=reach_of(host), api_key=asks_for_key(record), encrypted=encrypted)


def check_key(deployment: Deployment) -> None:
    """Raise InputError `plaintext_key` if the API key would travel unencrypted, without consent."""
    traffic = traffic_of(deployment)
    if traffic is not None:
        traffic.check(plaintext=deployment.plaintext)


def url_to(machine: ResourceRecord | None, address: str, port: int) -> str:
    """Return the URL of a machine's engine; with a tunnel, that of its near end on this computer."""
    near = "localhost" if machine is not None and TUNNEL_NOTE in machine.notes else address
    return url_of(near, port, encrypted=is_encrypted(machine))


def _host(url: str) -> str:
    """Return the host. Records can be edited by hand; an invalid URL has an empty host, which counts as public."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def unencrypted(deployment: Deployment | None) -> str | None:
    """Return the sentence about unencrypted traffic; None if there is none, or the address is not known yet."""
    traffic = traffic_of(deployment) if deployment is not None else None
    return traffic.unencrypted if traffic is not None else None


def is_encrypted(machine: ResourceRecord | None) -> bool:
    """Return whether the machine answers only over TLS."""
    return machine is not None and CERTIFICATE_NOTE in machine.notes


def asks_for_key(record: ResourceRecord) -> bool:
    return bool({API_KEY_NOTE, API_KEY_PARAMETER_NOTE} & record.notes.keys())


def accepts_plaintext(launch: Launch, recorded: Deployment | None) -> bool:
    """Return whether the user accepted an unencrypted API key, now or for the existing deployment."""
    accepted_before = recorded is not None and recorded.status != "deleting" and recorded.plaintext
    return launch.plaintext or accepted_before
