"""From a plan to a running container: one host, one attempt."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError, NotHealthyError
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.targets.container import api_key_variable, container_for
from tgi_deploy.targets.deployable import HUB_TOKEN
from tgi_deploy.targets.docker.artifacts import RUN, written
from tgi_deploy.targets.docker.resources import LOOPBACK, VOLUME, Host, resources
from tgi_deploy.targets.protocol import API_KEY_NOTE, BIND_NOTE, Attempt, Deployable, LaunchRequest, Traffic, reach_of
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import ChangeSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.targets.docker.options import DockerOptions
    from tgi_deploy.targets.protocol import Look, Order, Surroundings
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import EngineRun

_NO_MARKS: Final[Mapping[str, Any]] = {}


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


def settings_of(request: LaunchRequest) -> DockerSettings:
    """Raises InputError `api_key_unsupported`."""
    options: DockerOptions = request.options
    return DockerSettings(
        place=request.supplied.place,
        local=request.supplied.local,
        bind=options.address,
        devices=request.supplied.devices,
        secrets=_secrets(options, request.plan.chosen.engine),
        known=frozenset(request.environ),
        api_key_variable=options.api_key_from_env,
        plaintext=options.plaintext,
    )


def _secrets(options: DockerOptions, engine: EngineRun) -> tuple[tuple[str, str], ...]:
    wanted = [(HUB_TOKEN, HUB_TOKEN)] if options.hub_token_from_env else []
    if options.api_key_from_env is not None:
        wanted.append((api_key_variable(engine), options.api_key_from_env))
    return tuple(wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerLaunch:
    """`pull_image(place, image, listener)` has an image on a host."""

    around: Surroundings
    order: Order
    cloud: Callable[[str], Cloud]
    pull_image: Callable[..., None]

    @property
    def settings(self) -> DockerSettings:
        settings: DockerSettings = self.order.settings
        return settings

    @property
    def place(self) -> str:
        return self.settings.place

    @property
    def traffic(self) -> Traffic:
        return Traffic(reach=reach_of(self.settings.bind), api_key=self.settings.api_key_variable is not None)

    @property
    def marks(self) -> Mapping[str, Any]:
        return _NO_MARKS

    @property
    def rare_kinds(self) -> bool:
        return False

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Raises InputError `secret_missing`, or `not_reachable` for a port that only a remote host would reach."""
        deployment, seen = look()
        self._check_reach()
        candidate = self.order.plan.chosen
        deployable = Deployable(
            name=deployment.name,
            candidate=candidate,
            model=self.order.plan.request.model,
            log_filter=self.around.log_grammar(candidate.engine.name).log_filter,
            ready_deadline_s=self.order.ready_deadline_s(candidate),
        )
        script = written(RUN, deployable, templates_dir=self.around.templates_dir)
        wanted = resources(self._host(deployable))
        yield Attempt(
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

    def pull(self, attempt: Attempt) -> None:
        self.pull_image(self.place, attempt.candidate.engine.container.image.reference, self.around.listener)

    def address(self, deployment: Deployment, *, pool: str) -> str:  # noqa: ARG002 -- a host is the only pool
        """A container that has ended has its address, too: waiting for its engine then says why it ended."""
        record = deployment.machine
        if record is None:
            raise ValueError("there is no record of a container")
        machine = self.cloud(record.place).machine(record.attributes["id"])
        if machine.address is None:
            raise NotHealthyError(
                "not_running",
                f"the container {record.attributes['id'][:12]} is {machine.state}",
                hint=f"'tgi-deploy down {deployment.name}' removes what is left, 'up' makes a new one",
            )
        return machine.address

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:  # noqa: ARG002 -- the protocol's
        """A container costs nothing by the hour: trying is the check."""
        return ()

    def _host(self, deployable: Deployable) -> Host:
        container, variable = container_for(deployable), self.settings.api_key_variable
        secrets = {**{name: name for name in container.secret_env}, **dict(self.settings.secrets)}
        self._check_secrets(tuple(secrets.values()))
        return Host(
            name=deployable.name,
            place=self.place,
            container=container,
            bind=self.settings.bind,
            devices=self.settings.devices,
            secrets=secrets,
            notes={BIND_NOTE: self.settings.bind, **({} if variable is None else {API_KEY_NOTE: variable})},
            ready_deadline_s=deployable.ready_deadline_s,
        )

    def _worded(self, changes: ChangeSet) -> ChangeSet:
        """A cache that is there from before is taken, not made: it has no owner, so a search by labels misses it."""
        volumes = self.cloud(self.place).handler(VOLUME)
        return ChangeSet(
            steps=tuple(
                replaced(step, reason="is there from before")
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
            model = self.order.plan.request.model.name
            raise InputError(
                "secret_missing",
                f"{model} needs the variable {', '.join(missing)}, which is not set here",
                hint=f"export {missing[0]}=…: its value goes to the container alone, into no record",
            )
