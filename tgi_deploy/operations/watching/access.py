"""The use case `open`: shows how to reach a deployment. Read-only."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tgi_deploy.engines.protocol import Invocable
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.context import address_of
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.watching.lookup import known, stopped_error
from tgi_deploy.targets.protocol import Invoking, Tunneling
from tgi_deploy.values.container import served_as
from tgi_deploy.values.deployment import TaggedDeployment
from tgi_deploy.values.results import AccessData
from tgi_deploy.values.serving import API_KEY_NOTE, PUBLIC_KEY_NOTE, PUBLIC_URL_NOTE, Address, TunnelEnd, url_of

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.probing import ProbeRequest

_QUESTION: Final = "What is a GPU?"
_ANSWER_TOKENS: Final = 64
# Points the cloud's own tools at the sandbox.
SANDBOX_FIRST: Final = 'eval "$(tgi-deploy sandbox start)"'
_JSON: Final = "-H 'Content-Type: application/json'"


def access(context: Context, name: str) -> AccessData:
    """Return how to reach a deployment. Raises InputError `unknown_deployment`, and the errors of `access_to`."""
    return access_to(context, known(context, name))


def access_to(context: Context, deployment: Deployment) -> AccessData:
    """Return how to reach a deployment. Raises InputError `unknown_engine`, DeployError `no_endpoint`."""
    address, record = reached(context, deployment)
    public = record.notes.get(PUBLIC_URL_NOTE)
    if public:
        address = Address(url=public)
    elif context.loopback and address.tunnel is not None:
        address = _direct(context, address.tunnel)
    url = address.url
    engine, service = context.engine_of(deployment), deployment.service
    streamed = deployment.plan is not None and deployment.plan.chosen.streaming_only
    asked = engine.question(served_as(service.model) if service else "", _QUESTION, _ANSWER_TOKENS, streamed=streamed)
    target = context.target_at(address.invoked or record.place)
    if address.invoked and isinstance(target, Invoking) and isinstance(engine, Invocable):
        sent = engine.invocation(asked) or asked
        shell, python = target.invocation_lines(address, sent.body or {}, streamed=sent.streamed)
        return AccessData(
            name=deployment.name, url=url, curl=shell, python=python, tunnel="", unencrypted=unencrypted(deployment),
            certificate=None, first=SANDBOX_FIRST if context.loopback else "",
        )  # fmt: skip
    body = shlex.quote(json.dumps(asked.body))
    variable = record.notes.get(API_KEY_NOTE)
    pin = record.notes.get(PUBLIC_KEY_NOTE)
    return AccessData(
        name=deployment.name,
        url=url,
        curl=f"curl -s{pinned(pin)} {url}{asked.path} {_JSON}{_header(variable)} -d {body}",
        python=_pinned_line(address, variable, asked) if pin else engine.client_line(url, variable, asked),
        tunnel=_tunnel(context, address, record),
        unencrypted=unencrypted(deployment),
        certificate=address.certificate,
    )


def _direct(context: Context, end: TunnelEnd) -> Address:
    """Return the address of a sandbox machine on this computer, which the cloud's own tools can't reach."""
    host = context.cloud(end.place).machine(end.machine_id).address or "localhost"
    return Address(url=url_of(host, end.port))


def _tunnel(context: Context, address: Address, record: ResourceRecord) -> str:
    """Return the command that opens a tunnel; empty if none is needed."""
    target = context.target_at(record.place)
    if PUBLIC_URL_NOTE in record.notes:
        return ""
    if address.tunnel is None and isinstance(target, Tunneling):
        return ""
    port = urlsplit(address.url).port or 80
    here = TunnelEnd(place=record.place, machine_id=record.attributes["id"], port=port)
    return target.manual_commands.tunnel(address.tunnel or here)


def reached(context: Context, deployment: Deployment) -> tuple[Address, ResourceRecord]:
    """Return the address and the machine behind it. Raises DeployError `no_endpoint`, and `stopped`."""
    name, record = deployment.name, deployment.machine
    if deployment.status == "stopped":
        raise stopped_error(name)
    if deployment.endpoint is not None and record is not None and "id" in record.attributes:
        machine = context.with_certificate(record)
        return address_of(deployment.endpoint, machine), machine
    untagged = isinstance(deployment, TaggedDeployment) and record is not None and deployment.service is None
    raise DeployError(
        "no_endpoint",
        f"'{name}' has no record here, and its tags, from an earlier version, don't include its port"
        if untagged
        else f"'{name}' has no endpoint yet",
        hint=f"'tgi-deploy status {name}' shows its progress; the same 'up' resumes it",
    )


def pinned(public_key: str | None) -> str:
    """Return the options that make curl accept only this public key, whoever signed it."""
    return "" if public_key is None else f" --insecure --pinnedpubkey sha256//{public_key}"


def _pinned_line(address: Address, variable: str | None, asked: ProbeRequest) -> str:
    """Return a line of Python that compares the certificate before it sends anything."""
    at = urlsplit(address.url)
    headers = f"{{'Content-Type': 'application/json'{_python_header(variable)}}}"
    return (
        f"import hashlib, http.client, json, os, ssl; "
        f"c = http.client.HTTPSConnection({at.hostname!r}, {at.port}, context=ssl._create_unverified_context()); "
        f"c.connect(); shown = hashlib.sha256(c.sock.getpeercert(True)).hexdigest(); "
        f"shown == {address.certificate!r} or exit('another certificate: ' + shown); "
        f"c.request('POST', {asked.path!r}, json.dumps({asked.body!r}), {headers}); "
        f"print(c.getresponse().read().decode())"
    )


def _python_header(variable: str | None) -> str:
    return "" if variable is None else f", 'Authorization': 'Bearer ' + os.environ[{variable!r}]"


def _header(variable: str | None) -> str:
    return "" if variable is None else f' -H "Authorization: Bearer ${variable}"'
