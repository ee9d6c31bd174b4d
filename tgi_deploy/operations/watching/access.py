"""The use case `open`: how a deployment is reached. Read-only."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.watching.status import unrecorded_deployment
from tgi_deploy.targets.protocol import API_KEY_NOTE

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context

_QUESTION: Final = "What is a GPU?"
_ANSWER_TOKENS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Ready-to-paste ways in, with an API key by its variable's name.

    `tunnel` leads to a port that is not open here; empty where none is needed. `unencrypted` says what travels so, None
    where nothing does.
    """

    name: str
    url: str
    curl: str
    python: str
    tunnel: str
    unencrypted: str | None = None


def access(context: Context, name: str) -> Access:
    """Raises InputError `unknown_deployment` and `unknown_engine`, DeployError `no_endpoint`."""
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
    engine = context.engine_of(recorded)
    model_id = recorded.plan.model.served_id if recorded.plan else ""
    asked = engine.question(model_id, _QUESTION, _ANSWER_TOKENS)
    body = shlex.quote(json.dumps(asked.body))
    variable = record.notes.get(API_KEY_NOTE)
    return Access(
        name=name,
        url=url,
        curl=f"curl -s {url}{asked.path} -H 'Content-Type: application/json'{_header(variable)} -d {body}",
        python=engine.client_line(url, variable, asked),
        tunnel=context.target_at(record.place).by_hand.tunnel(record.place, port),
        unencrypted=unencrypted(recorded),
    )


def _header(variable: str | None) -> str:
    return "" if variable is None else f' -H "Authorization: Bearer ${variable}"'
