"""From a plan to a running container: one host, one attempt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tgi_deploy.errors import InputError, NotHealthyError
from tgi_deploy.operations.artifacts import Deployable, render
from tgi_deploy.operations.launching.attempt import Attempt, described
from tgi_deploy.operations.launching.traffic import API_KEY_NOTE, BIND_NOTE, Traffic, reach_of
from tgi_deploy.planner.time_to_ready import ready_deadline_s
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.model import ChangeSet
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.targets.container import container_for
from tgi_deploy.targets.docker.resources import LOOPBACK, NAME, VOLUME, Host, resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.model import Deployment, Found
    from tgi_deploy.values.plan import Candidate, Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerSettings:
    """What only a container needs.

    `place`: the Docker host; `bind`: its address that the port is published on; `devices`: its GPUs by UUID, None to
    count them from 0; `secrets`: (variable of the container, variable here) beside what the model needs; `known`:
    names of the variables that are set here; `local`: whether the host is this computer;
    `api_key_variable`: where the caller's own requests find the key; `plaintext`: it may travel unencrypted to a public
    address.
    """

    place: str
    bind: str = LOOPBACK
    devices: tuple[str, ...] | None = None
    secrets: tuple[tuple[str, str], ...] = ()
    known: frozenset[str] = frozenset()
    local: bool = True
    api_key_variable: str | None = None
    plaintext: bool = False


def _notes(settings: DockerSettings) -> dict[str, str]:
    variable = settings.api_key_variable
    return {BIND_NOTE: settings.bind, **({} if variable is None else {API_KEY_NOTE: variable})}


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerLauncher:
    context: Context
    plan: Plan
    settings: DockerSettings

    @property
    def target(self) -> str:
        return NAME

    @property
    def place(self) -> str:
        return self.settings.place

    @property
    def traffic(self) -> Traffic:
        return Traffic(reach=reach_of(self.settings.bind), api_key=self.settings.api_key_variable is not None)

    def first(self, deployment: Deployment, seen: Sequence[Found]) -> Attempt:
        """Raises InputError `secret_missing`, or `not_reachable` for a port that only a remote host would reach."""
        self._check_reach()
        candidate = self.plan.chosen
        deployable = self._deployable(deployment.name, candidate)
        script = render("docker", deployable, templates_dir=self.context.templates_dir)
        container = container_for(deployable)
        secrets = {**{name: name for name in container.secret_env}, **dict(self.settings.secrets)}
        self._check_secrets(tuple(secrets.values()))
        wanted = resources(
            Host(
                name=deployment.name,
                place=self.place,
                container=container,
                bind=self.settings.bind,
                devices=self.settings.devices,
                secrets=secrets,
                notes=_notes(self.settings),
                ready_deadline_s=deployable.ready_deadline_s,
            )
        )
        return Attempt(
            candidate=candidate,
            place=self.place,
            pool=self.place,
            zone=self.place,
            cidrs=(self.settings.bind,),
            wanted=wanted,
            changes=self._worded(diff(wanted, deployment.resources, seen)),
            ttl_s=None,
            artifacts=((script.file_name, script.text),),
        )

    def launch(self, deployment: Deployment) -> tuple[Deployment, Candidate]:
        """Have the image, then make what is missing. Raises what the host raises."""
        executor = self.context.executor()
        attempt = self.first(deployment, self._observe(deployment))
        deployment = executor.save(described(deployment, attempt, self.plan, self.context.clock))
        for file_name, text in attempt.artifacts:
            self.context.store.save_artifact(deployment.name, file_name, text)
        self.context.pull(self.place, attempt.candidate.engine.container.image.reference)
        deployment = executor.execute(deployment, attempt.changes)
        return executor.save(replace(deployment, phase="running")), attempt.candidate

    def address(self, deployment: Deployment) -> str:
        """A container that has ended has its address, too: waiting for its engine then says why it ended."""
        record = deployment.machine
        if record is None:
            raise ValueError("there is no record of a container")
        machine = self.context.cloud(record.place).machine(record.attributes["id"])
        if machine.address is None:
            raise NotHealthyError(
                "not_running",
                f"the container {record.attributes['id'][:12]} is {machine.state}",
                hint=f"'tgi-deploy down {deployment.name}' removes what is left, 'up' makes a new one",
            )
        return machine.address

    def _observe(self, deployment: Deployment) -> tuple[Found, ...]:
        return observe(deployment.name, deployment, cloud=self.context.cloud, places=deployment.places)

    def _worded(self, changes: ChangeSet) -> ChangeSet:
        """A cache that is there from before is taken, not made: nobody owns it, so a search by labels misses it."""
        volumes = self.context.cloud(self.place).handler(VOLUME)
        return ChangeSet(
            steps=tuple(
                replace(step, reason="is there from before")
                if step.resource is not None
                and (step.action, step.kind) == ("create", VOLUME)
                and volumes.read({"id": step.resource.properties["name"]}) is not None
                else step
                for step in changes.steps
            )
        )

    def _check_reach(self) -> None:
        if not self.settings.local and ip_address(self.settings.bind).is_loopback:
            raise InputError(
                "not_reachable",
                f"a port on {self.settings.bind} of another host can't be reached from here",
                hint="publish it on an address of that host with --bind, or run the command there",
            )

    def _check_secrets(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.settings.known]
        if missing:
            raise InputError(
                "secret_missing",
                f"{self.plan.request.model.name} needs the variable {', '.join(missing)}, which is not set here",
                hint=f"export {missing[0]}=…: its value goes to the container alone, into no record",
            )

    def _deployable(self, name: str, candidate: Candidate) -> Deployable:
        return Deployable(
            name=name,
            candidate=candidate,
            model=self.plan.request.model,
            log_filter=self.context.log_grammar(candidate.engine.name).log_filter,
            ready_deadline_s=ready_deadline_s(candidate),
        )
