"""The use case `logs`: the engine's log, from the machine's console, without secrets. Read-only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.app.places import where
from tgi_deploy.app.status import unknown_deployment
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.loglines import log_lines
from tgi_deploy.reconcile.observe import observe

if TYPE_CHECKING:
    from tgi_deploy.app.context import Context

_HIDDEN: Final = r"\1***"
# On top of what every reader of the log takes out: what options and variables can carry into a line.
_SECRETS: Final = (
    re.compile(r"(api_key: Some\(\s*\")[^\"]*"),
    re.compile(r"((?:--api-key|--hf-token)[= ]+)\S+", re.IGNORECASE),
    re.compile(r"((?:API_KEY|HF_TOKEN|HUGGING_FACE_HUB_TOKEN)\s*[=:]\s*)\S+"),
)


def logs(context: Context, name: str, *, tail: int | None = None) -> str:
    """The last `tail` lines, or all. Raises InputError `unknown_deployment`, DeployError `no_machine`."""
    place, instance_id = locate(context, name)
    lines = [hide_secrets(line) for line in log_lines(context.cloud(place).console(instance_id))]
    return "\n".join(lines if tail is None else lines[max(0, len(lines) - tail) :])


def locate(context: Context, name: str) -> tuple[str, str]:
    """Place and id of the machine. Raises InputError `unknown_deployment`, DeployError `no_machine`."""
    recorded = context.store.load(name)
    seen = observe(name, recorded, cloud=context.cloud, places=where(context, recorded))
    if recorded is None and not seen:
        raise unknown_deployment(context, name)
    machine = next((found for found in seen if found.is_machine), None)
    record = recorded.machine if recorded else None
    if machine is not None:
        return machine.place, machine.id
    if record is not None and "id" in record.attributes:
        return record.place, record.attributes["id"]
    raise DeployError("no_machine", f"'{name}' has no machine", hint=f"'tgi-deploy status {name}' shows why")


def hide_secrets(text: str) -> str:
    """`text` with keys and tokens replaced by `***`."""
    for pattern in _SECRETS:
        text = pattern.sub(_HIDDEN, text)
    return text
