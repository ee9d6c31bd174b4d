"""The ports of the use cases in one value, which `wiring.py` creates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_deploy.errors import DeployError
from tgi_deploy.planner.time_to_ready import ready_deadline_s, start_s
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.executor import Executor
from tgi_deploy.reconcile.retry import Pace
from tgi_deploy.targets.protocol import target_at
from tgi_deploy.values.base import replaced
from tgi_deploy.values.serving import (
    CERTIFICATE_NOTE,
    INVOKED_NOTE,
    TUNNEL_NOTE,
    UNREAD,
    Address,
    TunnelEnd,
    reported_certificate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.engines.protocol import ServingEngine
    from tgi_deploy.readiness.proof import EngineClient
    from tgi_deploy.reconcile.ports import Clock, Cloud, Listener, Reporter, Store
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.plan import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The ports of a use case. `regions` are searched for deployments without a record.

    `command` identifies this run in locks, `owner` in tags. `engine` and `log_grammar` take an engine's name, or None
    for the planner's default. `keyed_engine_client` takes an address and the name of the variable with the API key.
    `unsearched` collects (region, kind) → why the search failed. `loopback`: the cloud is on this computer, so traffic
    to its machines stays local. `targets` are all targets, the default first; `cloud` returns a location.
    """

    store: Store
    clock: Clock
    reporter: Reporter
    listener: Listener
    targets: tuple[Target, ...]
    cloud: Callable[[str], Cloud]
    probe: Callable[[Address], Probe]
    engine: Callable[[str | None], ServingEngine]
    engine_client: Callable[[Address], EngineClient]
    log_grammar: Callable[[str | None], LogGrammar]
    regions: tuple[str, ...]
    version: str
    command: str
    new_id: Callable[[], str]
    pace: Pace = field(default_factory=Pace)
    templates_dir: Path | None = None
    loopback: bool = False
    keyed_engine_client: Callable[[Address, str], EngineClient] | None = None
    unsearched: Mapping[tuple[str, str], str] = field(default_factory=dict)
    owner: str = ""

    def engine_of(self, deployment: Deployment) -> ServingEngine:
        """Return a deployment's engine; early records name none, because there was only one."""
        return self.engine(deployment.service.engine if deployment.service else None)

    def target(self, name: str) -> Target:
        return next(target for target in self.targets if target.name == name)

    def target_at(self, place: str) -> Target:
        """Return the target that a location belongs to."""
        return target_at(self.targets, place)

    def where(self, recorded: Deployment | None) -> tuple[str, ...]:
        """Return the locations to search in addition to the record's."""
        if recorded is not None and not self.target_at(recorded.region).facts.regions:
            return recorded.places
        return self.regions

    def everywhere(self, records: Iterable[Deployment]) -> tuple[str, ...]:
        """Return the default locations and all those in records."""
        return tuple(dict.fromkeys((*self.regions, *(place for record in records for place in record.places))))

    def grammar_of(self, deployment: Deployment) -> LogGrammar:
        """Return the log grammar for a deployment."""
        return self.log_grammar(deployment.service.engine if deployment.service else None)

    def probe_of(self, deployment: Deployment) -> Probe | None:
        """Return the result of a deployment's health check; None without an endpoint."""
        if deployment.endpoint is None:
            return None
        machine = deployment.machine and self.with_certificate(deployment.machine)
        address = address_of(deployment.endpoint, machine).at(self.engine_of(deployment).health.path)
        try:
            return self.probe(address)
        except DeployError as error:
            return Probe(outcome="no_tunnel", why=error.message)

    def with_certificate(self, machine: ResourceRecord) -> ResourceRecord:
        """Return the machine with the certificate from its console, if no record or tag has it yet."""
        if machine.notes.get(CERTIFICATE_NOTE) != UNREAD:
            return machine
        return with_certificate(machine, self.cloud(machine.place).console(machine.attributes["id"]))

    def client_of(self, address: Address, api_key_variable: str | None) -> EngineClient:
        """Return a client of that engine, with the API key from the variable if one is named."""
        if api_key_variable is None or self.keyed_engine_client is None:
            return self.engine_client(address)
        return self.keyed_engine_client(address, api_key_variable)

    def ready_deadline_s(self, candidate: Candidate) -> int:
        """Return how long a candidate's engine may take to become ready."""
        return ready_deadline_s(candidate)

    def starts_s(self, candidate: Candidate) -> int:
        """Return how long a candidate's engine is expected to take to become ready."""
        return start_s(candidate)

    def executor(self) -> Executor:
        return Executor(
            handler=lambda place, kind: self.cloud(place).handler(kind),
            store=self.store,
            clock=self.clock,
            reporter=self.reporter,
            version=self.version,
            deletion=self.pace.deletion,
            visibility_timeout=self.pace.visibility_timeout,
        )


def with_certificate(machine: ResourceRecord, console: str) -> ResourceRecord:
    """Return the machine with the certificate that its console reports, unless it is known."""
    reported = reported_certificate(console)
    if machine.notes.get(CERTIFICATE_NOTE) != UNREAD or reported is None:
        return machine
    return replaced(machine, notes={**machine.notes, **reported.notes})


def address_of(url: str, machine: ResourceRecord | None) -> Address:
    """Return the address of a machine's engine, with the only certificate that it may present."""
    known = machine.notes.get(CERTIFICATE_NOTE) if machine else None
    invoked = machine.place if machine and INVOKED_NOTE in machine.notes else ""
    certificate = "" if known == UNREAD else known
    return Address(url=url, certificate=certificate, tunnel=tunnel_to(url, machine), invoked=invoked)


def tunnel_to(url: str, machine: ResourceRecord | None) -> TunnelEnd | None:
    """Return where the tunnel to a machine's engine ends; None without one."""
    if machine is None or TUNNEL_NOTE not in machine.notes:
        return None
    return TunnelEnd(place=machine.place, machine_id=machine.attributes["id"], port=urlsplit(url).port or 0)
