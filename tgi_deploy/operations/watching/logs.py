"""The use case `logs`: shows the engine's log, from the machine's console, without secrets. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.diagnosis.lines import log_lines, redacted
from tgi_deploy.diagnosis.window import LogWindow
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.watching.limits import LeaseKeeper
from tgi_deploy.operations.watching.lookup import look_at
from tgi_deploy.reconcile.ports import Consoles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.values.deployment import Deployment

_WRITING: Final = frozenset({"pending", "running", "stopping", "shutting-down"})


def logs(context: Context, name: str, *, tail: int | None = None, raw: bool = False) -> str:
    """Return the last `tail` lines, or all of them; with `raw` unchanged, including colors and prefixes.

    The logs of several replicas follow each other, with the replica's name before each line; `tail` applies to each.


    Raises InputError `unknown_deployment`, DeployError `machine_missing`.
    """
    deployment, place, instance_id = locate(context, name)
    texts, grammar = _consoles(context.cloud(place), instance_id), context.grammar_of(deployment)
    every = {replica: _shown(text, grammar, raw=raw) for replica, text in texts.items()}
    return "\n".join(
        line
        for replica, lines in every.items()
        for line in _labeled(replica, _last(lines, tail), several=len(every) > 1)
    )


def follow(context: Context, name: str, *, tail: int | None = None, raw: bool = False) -> Iterator[str]:
    """Yield the last `tail` lines, then new ones as they arrive until the machine ends; with `raw` unchanged.

    The lease is renewed in the meantime. Raises the errors of `logs`.
    """
    deployment, place, instance_id = locate(context, name)
    cloud, windows, first = context.cloud(place), dict[str, LogWindow](), True
    keeper = LeaseKeeper.of(context, deployment)
    grammar = context.grammar_of(deployment)
    while True:
        alive = cloud.machine(instance_id).state in _WRITING
        texts = _consoles(cloud, instance_id)
        for replica, text in texts.items():
            window = windows.setdefault(replica, LogWindow())
            new = window.advance(text if alive or text.endswith("\n") else f"{text}\n")
            new = tuple(_last(new, tail)) if first else new
            if new:
                yield from _labeled(replica, _shown("\n".join(new), grammar, raw=raw), several=len(texts) > 1)
        if not alive:
            return
        keeper.beat()
        first = False
        context.clock.sleep(context.pace.ready_poll_s)


def _consoles(cloud: Cloud, instance_id: str) -> Mapping[str, str]:
    """Return the output of each replica by its name; for a single machine, the name is empty."""
    found = cloud.consoles(instance_id) if isinstance(cloud, Consoles) else {}
    return found or {"": cloud.console(instance_id)}


def _last(lines: Sequence[str], number: int | None) -> Sequence[str]:
    return lines if number is None else lines[max(0, len(lines) - number) :]


def _labeled(replica: str, lines: Sequence[str], *, several: bool) -> Sequence[str]:
    return [f"[{replica}] {line}" for line in lines] if several else lines


def _shown(text: str, grammar: LogGrammar, *, raw: bool) -> Sequence[str]:
    return redacted(text, grammar).splitlines() if raw else log_lines(text, grammar)


def locate(context: Context, name: str) -> tuple[Deployment, str, str]:
    """Return a deployment, and the location and id of its machine.

    Raises InputError `unknown_deployment`, DeployError `machine_missing`.
    """
    sight = look_at(context, name)
    machine, record = sight.machine, sight.deployment.machine
    if machine is not None:
        return sight.deployment, machine.place, machine.id
    if record is not None and "id" in record.attributes:
        return sight.deployment, record.place, record.attributes["id"]
    raise DeployError("machine_missing", f"'{name}' has no machine", hint=f"'tgi-deploy status {name}' shows why")
