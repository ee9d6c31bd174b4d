"""Launches a plan as a container: one host, one attempt."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import InputError, NotHealthyError
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.targets.certificate import check_key
from tgi_deploy.targets.container import api_key_variable, container_for
from tgi_deploy.targets.deployable import HUB_TOKEN
from tgi_deploy.targets.docker.artifacts import RUN, render_artifact
from tgi_deploy.targets.docker.options import FRONT
from tgi_deploy.targets.docker.resources import CONTAINER, NEW, VOLUME, Host, resources
from tgi_deploy.targets.protocol import Attempt, Deployable
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_NAME, ChangeSet, machine_key
from tgi_deploy.values.serving import API_KEY_NOTE, BIND_NOTE, CERTIFICATE_NOTE, UNREAD, Traffic, reach_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.targets.certificate import OwnCertificate
    from tgi_deploy.targets.docker.options import DockerOptions
    from tgi_deploy.targets.protocol import LaunchRequest, Look, TargetContext
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import EngineRun


def proxy_image() -> str:
    image: str = Store.behind().json("docker/proxy.json")["image"]
    return image


def secrets_of(options: DockerOptions, engine: EngineRun) -> tuple[tuple[str, str], ...]:
    """Return (container variable, local variable) pairs, in addition to what the model needs.

    Raises InputError `api_key_unsupported`.
    """
    wanted = [(HUB_TOKEN, HUB_TOKEN)] if options.hub_token_from_env else []
    if options.api_key_from_env is not None:
        wanted.append((api_key_variable(engine), options.api_key_from_env))
    return tuple(wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerLaunch:
    """`secrets` are from `secrets_of`. `pull_image(place, image, listener)` pulls an image on a host.

    `proxy_image` is empty without a proxy; `certificate` is the user's own.
    """

    context: TargetContext
    request: LaunchRequest
    secrets: tuple[tuple[str, str], ...]
    cloud: Callable[[str], Cloud]
    pull_image: Callable[..., None]
    proxy_image: str = ""
    certificate: OwnCertificate | None = None

    @property
    def options(self) -> DockerOptions:
        options: DockerOptions = self.request.options
        return options

    @property
    def place(self) -> str:
        return self.request.supplied.place

    @property
    def traffic(self) -> Traffic:
        return Traffic(
            reach=reach_of(self.options.address),
            api_key=self.options.api_key_from_env is not None,
            encrypted=self.options.secured.encrypted,
        )

    @property
    def plaintext(self) -> bool:
        return self.options.plaintext

    @property
    def tls(self) -> bool:
        return self.options.secured.encrypted

    @property
    def marks(self) -> Mapping[str, Any]:
        front = {"front": FRONT} if self.options.proxied else {}
        shown = self.certificate.shown.sha256 if self.certificate else NEW
        return {**front, **({"tls": shown} if self.tls else {})}

    @property
    def rare_kinds(self) -> bool:
        return False

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Raises InputError `secret_missing`, or `not_reachable` for a loopback port of a remote host."""
        deployment, seen = look()
        self._check_reach()
        candidate = self.request.plan.chosen
        deployable = Deployable(
            name=deployment.name,
            candidate=candidate,
            model=self.request.plan.request.model,
            log_filter=self.context.log_grammar(candidate.engine.name).log_filter,
            ready_deadline_s=self.context.ready_deadline_s(candidate),
        )
        script = render_artifact(RUN, deployable, templates_dir=self.context.templates_dir)
        wanted = resources(self._host(deployable, deployment.wanted.number))
        yield Attempt(
            candidate=candidate,
            place=self.place,
            pool=self.place,
            zone=self.place,
            cidrs=(self.options.address,),
            wanted=wanted,
            changes=self._worded(diff(wanted, deployment.resources, seen)),
            artifacts=((script.file_name, script.text),),
        )

    def pull(self, attempt: Attempt) -> None:
        for image in filter(None, (attempt.candidate.engine.container.image.reference, self.proxy_image)):
            self.pull_image(self.place, image, self.context.listener)

    def address(self, deployment: Deployment, *, pool: str) -> str:  # noqa: ARG002 -- a host is the only pool
        """Return the address, even of a container that has exited: the wait for its engine then reports why."""
        record = deployment.machine
        if record is None:
            raise ValueError("the record has no container")
        machine = self.cloud(record.place).machine(record.attributes["id"])
        if machine.address is None:
            raise NotHealthyError(
                "not_running",
                f"the container {record.attributes['id'][:12]} is {machine.state}",
                hint=f"'tgi-deploy down {deployment.name}' removes what is left, 'up' creates a new one",
            )
        return machine.address

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:  # noqa: ARG002 -- the protocol's
        """Check nothing: a container costs nothing, so launching it is the check."""
        return ()

    def _host(self, deployable: Deployable, revision: int) -> Host:
        container, variable = container_for(deployable), self.options.api_key_from_env
        secrets = {**{name: name for name in container.secret_env}, **dict(self.secrets)}
        key = self.options.certificate_key_from_env
        self._check_secrets((*secrets.values(), *filter(None, (key,))))
        if self.certificate is not None and key is not None:
            check_key(self.certificate, self.request.environ[key], key)
        return Host(
            name=deployable.name,
            revision=revision,
            place=self.place,
            container=container,
            bind=self.options.address,
            proxy_image=self.proxy_image,
            tls=self._tls,
            devices=self._devices(deployable, revision),
            secrets=secrets,
            notes={
                BIND_NOTE: self.options.address,
                **({} if variable is None else {API_KEY_NOTE: variable}),
                **self._certificate_notes,
            },
            ready_deadline_s=deployable.ready_deadline_s,
        )

    @property
    def _tls(self) -> Mapping[str, str]:
        """What the proxy needs to answer over TLS; its private key is only in the named variable."""
        if not self.tls:
            return {}
        variable = self.options.certificate_key_from_env
        if self.certificate is None or variable is None:
            return {"certificate": NEW}
        return {"certificate": self.certificate.pem, "key": variable}

    @property
    def _certificate_notes(self) -> Mapping[str, str]:
        if not self.tls:
            return {}
        return self.certificate.shown.notes if self.certificate else {CERTIFICATE_NOTE: UNREAD}

    def _devices(self, deployable: Deployable, revision: int) -> tuple[str, ...] | None:
        """Return the accelerators to use: behind a proxy, first those that no other revision uses."""
        known = self.request.supplied.devices
        if not self.proxy_image:
            return known
        found = self.cloud(self.place).handler(CONTAINER).find({TAG_NAME: deployable.name})
        has = {item.key: tuple(item.attributes["devices"].split(",")) for item in found if item.alive}
        own = has.pop(machine_key(CONTAINER, revision), ())
        every = known or map(str, range(deployable.candidate.offer.instance_type.accelerator_count))
        taken = [device for devices in has.values() for device in devices]
        return tuple(sorted(every, key=lambda device: (device not in own, device in taken)))

    def _worded(self, changes: ChangeSet) -> ChangeSet:
        """Show an existing cache as kept: it has no owner labels, so a label search misses it."""
        volumes = self.cloud(self.place).handler(VOLUME)
        return ChangeSet(
            steps=tuple(
                replaced(step, reason="already exists")
                if step.resource is not None
                and (step.action, step.kind) == ("create", VOLUME)
                and volumes.read({"id": step.resource.properties["name"]}) is not None
                else step
                for step in changes.steps
            )
        )

    def _check_reach(self) -> None:
        if not self.request.supplied.local and ip_address(self.options.address).is_loopback:
            raise InputError(
                "not_reachable",
                f"a port on {self.options.address} of a remote host can't be reached from here",
                hint="publish it on another address of that host with --bind, or run the command there",
            )

    def _check_secrets(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self.request.environ]
        if missing:
            model = self.request.plan.request.model.name
            raise InputError(
                "secret_missing",
                f"{model} needs the variable {', '.join(missing)}, which is not set here",
                hint=f"export {missing[0]}=…; its value is passed only to the container and is not recorded",
            )
