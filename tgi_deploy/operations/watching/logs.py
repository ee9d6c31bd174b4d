"""The use case `logs`: the engine's log, from the machine's console, without secrets. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.diagnosis.lines import log_lines, redacted
from tgi_deploy.diagnosis.window import LogWindow
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.watching.limits import LeaseKeeper
from tgi_deploy.operations.watching.lookup import look_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment

_WRITING: Final = frozenset({"pending", "running", "stopping", "shutting-down"})


def logs(context: Context, name: str, *, tail: int | None = None, raw: bool = False) -> str:
    """Return the last `tail` lines, or all; `raw`: unchanged, with colors and prefixes.

    Raises InputError `unknown_deployment`, DeployError `no_machine`.
    """
    deployment, place, instance_id = locate(context, name)
    text = context.cloud(place).console(instance_id)
    lines = _shown(text, context.grammar_of(deployment), raw=raw)
    return "\n".join(lines if tail is None else lines[max(0, len(lines) - tail) :])


def follow(context: Context, name: str, *, tail: int | None = None, raw: bool = False) -> Iterator[str]:
    """Yield new lines as they arrive, after the last `tail` existing ones; `raw`: unchanged.

    Ends with the machine. A lease is renewed in the meantime. Raises what `logs` raises.
    """
    deployment, place, instance_id = locate(context, name)
    cloud, window, first = context.cloud(place), LogWindow(), True
    keeper = LeaseKeeper.of(context, deployment)
    grammar = context.grammar_of(deployment)
    while True:
        alive = cloud.machine(instance_id).state in _WRITING
        text = cloud.console(instance_id)
        new = window.advance(text if alive or text.endswith("\n") else f"{text}\n")
        if first and tail is not None:
            new = new[max(0, len(new) - tail) :]
        if new:
            yield from _shown("\n".join(new), grammar, raw=raw)
        if not alive:
            return
        keeper.beat()
        first = False
        context.clock.sleep(context.pace.ready_poll_s)


def _shown(text: str, grammar: LogGrammar, *, raw: bool) -> Sequence[str]:
    return redacted(text, grammar).splitlines() if raw else log_lines(text, grammar)


def locate(context: Context, name: str) -> tuple[Deployment, str, str]:
    """Return it, its machine's place and id. Raises InputError `unknown_deployment`, DeployError `no_machine`."""
    sight = look_at(context, name)
    machine, record = sight.machine, sight.deployment.machine
    if machine is not None:
        return sight.deployment, machine.place, machine.id
    if record is not None and "id" in record.attributes:
        return sight.deployment, record.place, record.attributes["id"]
    raise DeployError("no_machine", f"'{name}' has no machine", hint=f"'tgi-deploy status {name}' shows why")
