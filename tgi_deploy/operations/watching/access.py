"""The use case `open`: how a deployment is reached. Read-only."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.watching.lookup import known
from tgi_deploy.values.container import served_as
from tgi_deploy.values.deployment import TaggedDeployment
from tgi_deploy.values.results import AccessData
from tgi_deploy.values.serving import API_KEY_NOTE

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment, ResourceRecord

_QUESTION: Final = "What is a GPU?"
_ANSWER_TOKENS: Final = 64


def access(context: Context, name: str) -> AccessData:
    """Raises InputError `unknown_deployment`, and what `access_to` raises."""
    return access_to(context, known(context, name))


def access_to(context: Context, deployment: Deployment) -> AccessData:
    """Raises InputError `unknown_engine`, DeployError `no_endpoint`."""
    url, record = reached(deployment)
    port = urlsplit(url).port or 80
    engine, service = context.engine_of(deployment), deployment.service
    asked = engine.question(served_as(service.model) if service else "", _QUESTION, _ANSWER_TOKENS)
    body = shlex.quote(json.dumps(asked.body))
    variable = record.notes.get(API_KEY_NOTE)
    return AccessData(
        name=deployment.name,
        url=url,
        curl=f"curl -s {url}{asked.path} -H 'Content-Type: application/json'{_header(variable)} -d {body}",
        python=engine.client_line(url, variable, asked),
        tunnel=context.target_at(record.place).by_hand.tunnel(record.place, port),
        unencrypted=unencrypted(deployment),
    )


def reached(deployment: Deployment) -> tuple[str, ResourceRecord]:
    """Return the URL and the machine behind it. Raises DeployError `no_endpoint`."""
    name, record = deployment.name, deployment.machine
    if deployment.endpoint is not None and record is not None and "id" in record.attributes:
        return deployment.endpoint, record
    untagged = isinstance(deployment, TaggedDeployment) and record is not None and deployment.service is None
    raise DeployError(
        "no_endpoint",
        f"'{name}' has tags of an earlier version without its port, and no record here"
        if untagged
        else f"'{name}' has no endpoint yet",
        hint=f"'tgi-deploy status {name}' shows its progress; 'up' resumes it",
    )


def _header(variable: str | None) -> str:
    return "" if variable is None else f' -H "Authorization: Bearer ${variable}"'
