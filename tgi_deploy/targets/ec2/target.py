"""The target EC2, in one or more regions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.targets.ec2.options import NAME, Ec2Options
from tgi_deploy.targets.protocol import Finished, Supplied, TargetFacts, no_spending
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.targets.aws.session_manager import SessionManager
    from tgi_deploy.targets.ec2.launch import Ec2Launch
    from tgi_deploy.targets.ec2.region import Region
    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.targets.protocol import (
        AccountRequest,
        Artifact,
        Deployable,
        Front,
        LaunchRequest,
        ManualCommands,
        Policy,
        TargetContext,
    )
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.serving import TunnelEnd

FACTS: Final = TargetFacts(
    begins="starting a machine that costs money",
    machine_kind="instance",
    state_label="EC2 state reason of the machine",
    who_connects="--allow-cidr sets who may connect",
    shows_at_once=False,  # EC2 is eventually consistent
    regions=True,
    removed_together=frozenset({"security-group", "launch-template", "instance", "volume", "network-interface"}),
)
FORMS: Final = {
    "user-data": "EC2 user data",
    "launch-template": "EC2 launch template",
    "cloudformation": "CloudFormation",
    "terraform": "Terraform",
}
_ALL: Final = "all"


class Ec2Target(Frozen, frozen=True, kw_only=True):
    """`region` returns a region; `survey` reads the account, None if it can't be read.

    `catalog` opens the catalog, `default_region` returns the region if none is named, `caller_cidr` the caller's
    public network. `session_manager` opens tunnels.
    """

    region: Callable[[str], Region]
    survey: Survey | None = None
    catalog: Callable[[], Catalog]
    default_region: Callable[[], str]
    caller_cidr: Callable[[], str]
    session_manager: Callable[[], SessionManager] | None = None
    name: ClassVar = NAME
    facts: ClassVar = FACTS
    options: ClassVar[type[Value]] = Ec2Options
    forms: ClassVar[Mapping[str, str]] = FORMS

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Return the locations, rejecting unknown names: to EC2, a typo looks like a region without deployments."""
        if _ALL in named:
            return self.catalog().regions()
        for region in named:
            self.catalog().check_region(region)
        return tuple(dict.fromkeys(named)) or (self.default_region(),)

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:  # noqa: ARG002 -- the protocol's
        """Return nothing: plans use the catalog's offers."""
        return Supplied()

    def rejection(self, plan: Plan) -> InputError | None:
        """Return the error for a plan with other machines than EC2's, or with a local folder, which EC2 can't reach."""
        offer, model = plan.chosen.offer, plan.request.model.model
        if offer.instance_type.status == "hosted":
            return InputError(
                "not_rentable",
                f"{offer.instance_type.name} is an instance type of another service: EC2 can't launch it",
                hint="plan again with --target ec2",
            )
        if offer.market == "owned":
            return InputError(
                "not_rentable",
                f"{offer.instance_type.name} is your own hardware: EC2 can't start it",
                hint="add --target docker to run it on this computer, or print its command line with"
                " 'tgi-deploy render --as docker'",
            )
        if model.local_path is not None:
            return InputError(
                "local_model",
                f"the model {model.local_path} exists only on this computer: a rented machine can't load it",
                hint="add --target docker to serve it on this computer, or push it to the hub and use its id",
            )
        return None

    def launch(
        self, context: TargetContext, request: LaunchRequest, *, spent: Callable[[Deployment], Spent] = no_spending
    ) -> Ec2Launch:
        """Return the launch. Raises DeployError `caller_address_unknown`, because no one could reach the machine.

        Raises InputError `conflicting_options` for a driver without a machine image.
        """
        driver = request.plan.request.driver
        if driver is not None and request.options.ami is None:
            raise InputError(
                "conflicting_options", f"--driver {driver} describes your own machine image, but none is named",
                hint="name it with --ami, or omit --driver",
            )  # fmt: skip
        from tgi_deploy.targets.certificate import read_certificate  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.ec2.launch import Ec2Launch  # noqa: PLC0415 -- planning loads nothing that acts
        from tgi_deploy.targets.ec2.pools import PoolMemory  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.ec2.secrets import secrets_of  # noqa: PLC0415 -- startup time

        own, key = request.options.certificate, "--certificate-key-parameter"
        return Ec2Launch(
            context=context,
            request=request,
            spent=spent,
            secrets=secrets_of(request.options, request.plan, request.environ, wait=request.wait),
            cidrs=() if request.options.tunnel else request.options.networks or (self.caller_cidr(),),
            region=self.region,
            survey=self.survey,
            pools=PoolMemory(context.clock, context.store),
            certificate=None if own is None else read_certificate(Path(own), context.clock.now(), key_option=key),
            tunnel_problem=self.tunnel_problem(request.options),
        )

    def tunnel_problem(self, options: Ec2Options) -> Callable[[], str] | None:
        """Return a function that returns why no tunnel can be opened from here; None without --tunnel."""
        manager = self.session_manager
        return (lambda: manager().problem()) if options.tunnel and manager is not None else None

    def cloud(self, place: str) -> Cloud:
        return self.region(place)

    def local_port(self, end: TunnelEnd) -> int:
        return self._sessions().local_port(end)

    def run(self, place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> Finished:
        if words:
            return self._sessions().run(place, machine_id, words)
        if not terminal:
            raise DeployError(
                "no_shell",
                f"opening a shell on {machine_id}: there is no terminal",
                hint="run it in a terminal, or name a command: 'tgi-deploy exec NAME -- nvidia-smi'",
            )
        return Finished(exit_code=self._sessions().shell(place, machine_id))

    def _sessions(self) -> SessionManager:
        if self.session_manager is None:
            raise ValueError("this target opens no sessions")
        return self.session_manager()

    def front(self, context: TargetContext, deployment: Deployment) -> Front | None:
        """Return the front. None with an external schedule, which ends only one machine, or if --static-ip changes."""
        from tgi_deploy.targets.ec2.external_end import SCHEDULE  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.ec2.front import DirectFront, StaticFront  # noqa: PLC0415 -- startup time

        static = {item.options.get("static_ip", False) for item in (deployment.current, deployment.wanted)}
        if len(static) > 1 or any(record.kind == SCHEDULE for record in deployment.resources):
            return None
        return (StaticFront if True in static else DirectFront)(context=context, region=self.region)

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
        from tgi_deploy.targets.ec2.artifacts import render_artifact  # noqa: PLC0415 -- startup time

        return render_artifact(form, deployable, templates_dir=templates_dir)

    @property
    def manual_commands(self) -> ManualCommands:
        from tgi_deploy.targets.ec2 import commands  # noqa: PLC0415 -- startup time

        return commands

    def examine(self, context: TargetContext, request: AccountRequest) -> tuple[Problem, ...]:
        from tgi_deploy.targets.ec2.doctor import Examination, examine  # noqa: PLC0415 -- startup time

        if self.survey is None:
            return ()
        return examine(Examination(target=self, survey=self.survey, context=context, asked=request))

    def policy(self, features: tuple[str, ...], *, everything: bool) -> Policy:
        from tgi_deploy.catalog.actions import read_actions  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.aws.policy import required_policy  # noqa: PLC0415

        return required_policy(read_actions(), features, everything=everything)

    def boundary(self) -> Policy:
        from tgi_deploy.catalog.actions import read_actions  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.aws.policy import permissions_boundary  # noqa: PLC0415

        return permissions_boundary(read_actions())
