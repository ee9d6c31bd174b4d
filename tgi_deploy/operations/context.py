"""Everything a use case needs from outside, as one value. `wiring.py` fills it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tgi_deploy.reconcile.executor import Executor
from tgi_deploy.reconcile.retry import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.engines.protocol import ServingEngine
    from tgi_deploy.operations.survey import Survey
    from tgi_deploy.readiness.proof import EngineClient
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.model import Deployment
    from tgi_deploy.reconcile.ports import Clock, Cloud, Listener, Reporter, Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How often things are looked at, and how long they may take. A local cloud is looked at more often.

    `unsettled_s`: how long after a creating request without a reply its result may still come to light.
    `ready_poll_s`: the cloud and the console while an engine is waited for; `health_poll_s`: its health check, where it
    may answer soon; `settle_s`: the pause between its first answer and the second.
    `at_once`: how many calls of a kind run beside each other where many deployments are concerned.
    """

    running: Patience = field(default_factory=lambda: Patience(deadline_s=300, poll_s=2, longest_poll_s=10))
    deletion: Patience = field(default_factory=lambda: Patience(deadline_s=900, poll_s=1, longest_poll_s=10))
    sweep: Patience = field(default_factory=lambda: Patience(deadline_s=120, poll_s=1, longest_poll_s=10))
    unsettled_s: float = 60.0
    ready_poll_s: float = 5.0
    health_poll_s: float = 0.3
    settle_s: float = 0.1
    at_once: int = 8


def _needs_no_image(place: str, image: str) -> None:
    """Machines pull their image themselves."""


def _counts_nothing(place: str, kind: str, thing_id: str) -> int | None:
    """Nothing on a cloud outlives its deployment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """`regions` are where to look for what no record names. `command` is what the lock says about us, `owner` the tags.

    `engine` and `log_grammar` take an engine's name, or None for what plans are made with. `keyed_engine_client` takes
    a URL and the name of the variable with the API key. `unsearched` fills while clouds are searched: (region, kind) →
    why that could not be looked for.

    `loopback`: the cloud is on this computer, and nothing that goes to its machines leaves it.

    `pull` has a container image in a place, telling of its progress; `measure` says how many bytes a thing (place,
    kind, id) holds. Only hosts of containers need them.
    """

    store: Store
    clock: Clock
    reporter: Reporter
    listener: Listener
    cloud: Callable[[str], Cloud]
    caller_cidr: Callable[[], str]
    probe: Callable[[str], Probe]
    engine: Callable[[str | None], ServingEngine]
    engine_client: Callable[[str], EngineClient]
    log_grammar: Callable[[str | None], LogGrammar]
    regions: tuple[str, ...]
    version: str
    command: str
    new_id: Callable[[], str]
    pull: Callable[[str, str], None] = _needs_no_image
    measure: Callable[[str, str, str], int | None] = _counts_nothing
    pace: Pace = field(default_factory=Pace)
    templates_dir: Path | None = None
    loopback: bool = False
    keyed_engine_client: Callable[[str, str], EngineClient] | None = None
    unsearched: Mapping[tuple[str, str], str] = field(default_factory=dict)
    survey: Survey | None = None
    owner: str = ""

    def engine_of(self, recorded: Deployment) -> ServingEngine:
        """Return what runs there. Records without a plan were written before there was a choice."""
        return self.engine(recorded.plan.engine.name if recorded.plan else None)

    def grammar_of(self, recorded: Deployment | None) -> LogGrammar:
        """Return what the log of a deployment is read by."""
        return self.log_grammar(recorded.plan.engine.name if recorded and recorded.plan else None)

    def probe_of(self, recorded: Deployment) -> Probe | None:
        """Return what the health check of a deployment answers, None for one without an endpoint."""
        url = recorded.endpoint
        return None if url is None else self.probe(url + self.engine_of(recorded).health.path)

    def executor(self) -> Executor:
        return Executor(
            handler=lambda place, kind: self.cloud(place).handler(kind),
            store=self.store,
            clock=self.clock,
            reporter=self.reporter,
            version=self.version,
            deletion=self.pace.deletion,
            lateness=replace(self.pace.sweep, deadline_s=self.pace.unsettled_s),
        )
