"""Containers on a Docker host: this computer's, or the one in Docker's settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import InputError
from tgi_deploy.targets.docker.connection import Hosts
from tgi_deploy.targets.docker.endpoint import current_endpoint, endpoint_of
from tgi_deploy.targets.docker.options import NAME, DockerOptions
from tgi_deploy.targets.protocol import Supplied, TargetFacts, UnsupportedOptions, no_spending
from tgi_deploy.values.plan_options import END_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.docker.cloud import DockerCloud
    from tgi_deploy.targets.docker.host_checks import Installation
    from tgi_deploy.targets.docker.launch import DockerLaunch
    from tgi_deploy.targets.protocol import Artifact, Deployable, Front, LaunchRequest, ManualCommands, TargetContext
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan

FACTS: Final = TargetFacts(
    begins="starting a container",
    machine_kind="container",
    state_label="the container",
    who_connects="--bind sets where the port is published",
    shows_at_once=True,
    regions=False,
    unsupported=(
        UnsupportedOptions(
            options=END_FIELDS,
            code="limits_unsupported",
            why="a Docker host can't stop a container on a schedule",
            hint="omit it, and remove the deployment with 'tgi-deploy down NAME'; it has no hourly cost",
        ),
        UnsupportedOptions(
            options=("sandbox",),
            code="conflicting_options",
            why="the sandbox is a local cloud without a Docker host",
            hint="omit --sandbox or --target docker",
        ),
    ),
    not_changed=frozenset({"--ami", "--disk", "--hub-token-parameter", "--instance", "--market", "--region"}),
    one_at_a_time="deployments on one host would compete for its port and GPUs",
    unpriced="on your own machine",
    extra="docker",
)

FORMS: Final = {"docker": "docker run", "compose": "Docker Compose"}


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerTarget:
    """`cloud` returns a host; `pull_image(place, image, listener)` pulls an image there.

    `installation` defaults to this computer's.
    """

    cloud: Callable[[str], DockerCloud]
    pull_image: Callable[..., None]
    environ: Mapping[str, str]
    installation: Installation | None = None
    name: ClassVar = NAME
    facts: ClassVar = FACTS
    options: ClassVar[type[Value]] = DockerOptions
    forms: ClassVar[Mapping[str, str]] = FORMS

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        if named:
            raise InputError(
                "conflicting_options", "--region can't be combined with --target docker", hint="omit one of them"
            )
        return (current_endpoint(self.environ).place,)

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:
        """Return the host and, unless hardware is named, this computer's GPUs.

        Raises InputError `hardware_needed`, `no_gpu`, `unknown_card`, `mig_enabled`.
        """
        endpoint = current_endpoint(self.environ)
        if hardware:
            return Supplied(place=endpoint.place, local=endpoint.local)
        if not endpoint.local:
            raise InputError(
                "hardware_needed",
                f"the GPUs of the Docker host {endpoint.url} ({endpoint.source}) can't be detected from here",
                hint="name them with --hardware NxGPU, such as 2xRTX-4090",
            )
        from tgi_deploy.targets.docker.gpus import local_gpus  # noqa: PLC0415 -- only planning for this computer asks
        from tgi_deploy.targets.docker.local_hardware import local_hardware  # noqa: PLC0415 -- startup time

        found = local_hardware(local_gpus(), catalog, release=release)
        return Supplied(
            hardware=found.hardware, place=endpoint.place, local=True, devices=found.devices, notices=found.notices
        )

    def rejection(self, plan: Plan) -> InputError | None:
        """Return the error for a service's container, which runs only there. The host itself reports what it lacks."""
        hardware = plan.chosen.offer.instance_type
        if hardware.status != "hosted":
            return None
        return InputError(
            "not_for_docker",
            f"{hardware.name} is an instance type of another service, and its container runs only there",
            hint="plan again with --target docker",
        )

    def launch(
        self,
        context: TargetContext,
        request: LaunchRequest,
        *,
        spent: Callable[[Deployment], Spent] = no_spending,  # noqa: ARG002 -- a container costs nothing by the hour
    ) -> DockerLaunch:
        """Return the launch. Raises InputError `api_key_unsupported`, and what `read_certificate` raises."""
        from tgi_deploy.targets.certificate import check_extra, read_certificate  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.docker.launch import DockerLaunch, proxy_image, secrets_of  # noqa: PLC0415 -- planning loads nothing that acts

        options: DockerOptions = request.options
        if options.tls:
            check_extra("--tls")
        own, key = options.certificate, "the variable of --certificate-key-from-env"
        return DockerLaunch(
            context=context,
            request=request,
            secrets=secrets_of(options, request.plan.chosen.engine),
            cloud=self.cloud,
            pull_image=self.pull_image,
            proxy_image=proxy_image() if options.proxied else "",
            certificate=None if own is None else read_certificate(Path(own), context.clock.now(), key_option=key),
        )

    def front(self, context: TargetContext, deployment: Deployment) -> Front | None:
        """Return the proxy front: without a proxy two containers can't share the port."""
        if not all(item.marks.get("front") for item in (deployment.current, deployment.wanted)):
            return None
        from tgi_deploy.targets.docker.front import ProxyFront  # noqa: PLC0415 -- planning loads nothing that acts

        return ProxyFront(api=self.cloud(deployment.region).api, clock=context.clock)

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
        from tgi_deploy.targets.docker.artifacts import render_artifact  # noqa: PLC0415 -- startup time

        return render_artifact(form, deployable, templates_dir=templates_dir)

    @property
    def manual_commands(self) -> ManualCommands:
        from tgi_deploy.targets.docker import commands  # noqa: PLC0415 -- startup time

        return commands

    def child(self, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
        from tgi_deploy.targets.docker.commands import exec_words  # noqa: PLC0415 -- startup time

        return exec_words(endpoint_of(place, self.environ), machine_id, words, terminal=terminal)

    def examine_host(self) -> tuple[Problem, ...]:
        from tgi_deploy.targets.docker.host_checks import Installation, host_findings  # noqa: PLC0415 -- startup time

        return host_findings(self.installation or Installation())


def docker_target(environ: Mapping[str, str] = os.environ) -> DockerTarget:
    """Return the target without contacting any host."""
    hosts = Hosts(environ)
    return DockerTarget(cloud=hosts.cloud, pull_image=hosts.pull, environ=environ)
