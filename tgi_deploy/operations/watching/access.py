"""The use case `open`: how a deployment is reached. Read-only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.launching.traffic import API_KEY_NOTE, unencrypted
from tgi_deploy.operations.watching.places import tunnel
from tgi_deploy.operations.watching.status import unrecorded_deployment

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Ready-to-paste ways in, with an API key by its variable's name.

    `tunnel` leads to another Docker host; empty elsewhere. `unencrypted` says what travels so, None where nothing does.
    """

    name: str
    url: str
    curl: str
    python: str
    tunnel: str
    unencrypted: str | None = None


def access(context: Context, name: str) -> Access:
    """Raises InputError `unknown_deployment`, DeployError `no_endpoint`."""
    recorded = context.store.load(name)
    if recorded is None:
        raise unrecorded_deployment(context, name)
    record = recorded.machine
    if recorded.endpoint is None or record is None or "id" not in record.attributes:
        raise DeployError(
            "no_endpoint",
            f"'{name}' has no endpoint yet",
            hint=f"'tgi-deploy status {name}' shows where it stands; 'up' goes on",
        )
    url = recorded.endpoint
    port = urlsplit(url).port or 80
    body = json.dumps({"inputs": "What is a GPU?", "parameters": {"max_new_tokens": 64}})
    variable = record.notes.get(API_KEY_NOTE)
    return Access(
        name=name,
        url=url,
        curl=f"curl -s {url}/generate -H 'Content-Type: application/json'{_header(variable)} -d '{body}'",
        python=_python(url, variable),
        tunnel=tunnel(record.place, port),
        unencrypted=unencrypted(recorded),
    )


def _header(variable: str | None) -> str:
    return "" if variable is None else f' -H "Authorization: Bearer ${variable}"'


def _python(url: str, variable: str | None) -> str:
    imports = "" if variable is None else "import os; "
    key = "" if variable is None else f", token=os.environ[{variable!r}]"
    call = f"InferenceClient({url!r}{key}).text_generation('What is a GPU?', max_new_tokens=64)"
    return f"{imports}from huggingface_hub import InferenceClient; print({call})"
