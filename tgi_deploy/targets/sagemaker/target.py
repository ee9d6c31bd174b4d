"""The target SageMaker: real-time endpoints, in one or more regions.

Planning (`hosting`, in the catalog), what `render` writes and the account's checks come first; `launch`, `cloud` and
`manual_commands` act. A place is `sagemaker:REGION` (`names.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.errors import DeployError, InputError, error
from tgi_deploy.targets.protocol import Invocation, Supplied, TargetFacts, UnsupportedOptions, no_spending
from tgi_deploy.targets.sagemaker.names import endpoint_name, place_of, region_of
from tgi_deploy.targets.sagemaker.options import NAME, SageMakerOptions
from tgi_deploy.text import plural, rate
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.plan_options import MOST_REPLICAS
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.resource import AutoscalerState, ChangeSet
from tgi_deploy.values.supply import Headroom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.targets.protocol import (
        AccountRequest,
        Artifact,
        Deployable,
        Front,
        Launch,
        LaunchRequest,
        ManualCommands,
        Policy,
        TargetContext,
    )
    from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.serving import Address

FACTS: Final = TargetFacts(
    begins="starting an endpoint that costs money",
    machine_kind="endpoint",
    state_label="SageMaker's state of the endpoint",
    who_connects="whoever may call sagemaker:InvokeEndpoint in the account can connect",
    shows_at_once=True,
    regions=True,
    stops=False,
    restarts=False,
    reached="through SageMaker's runtime, for whoever may call sagemaker:InvokeEndpoint",
    unsupported=(
        UnsupportedOptions(
            options=("hardware", "disk", "port", "driver"),
            code="not_on_sagemaker",
            why="SageMaker chooses the machine's disk, driver and port, and rents out its own machines only",
            hint="leave it out; --instance ml.TYPE chooses a machine",
        ),
        UnsupportedOptions(
            options=("max_spend",),
            code="limits_unsupported",
            why="nothing in an endpoint can track what it costs",
            hint="set its end with --ttl or --lease, which a schedule of AWS holds",
        ),
        UnsupportedOptions(
            options=("idle_timeout",),
            code="limits_unsupported",
            why="nothing in AWS deletes an endpoint that has no requests",
            hint="set its end with --ttl or --lease, which a schedule of AWS holds",
        ),
    ),
    service=NAME,
    not_changed=frozenset({"--ami", "--disk", "--hub-token-parameter", "--market"}),
    most_replicas=MOST_REPLICAS,
    range_of_revision=True,
)
FORMS: Final = {"sagemaker": "a SageMaker endpoint for CloudFormation"}


class SageMakerTarget(Frozen, frozen=True, kw_only=True):
    """`cloud` returns a place's cloud, `catalog` opens the one with SageMaker's machines and prices."""

    cloud_of: Callable[[str], SageMakerCloud]
    catalog: Callable[[], Catalog]
    default_region: Callable[[], str]
    name: ClassVar = NAME
    facts: ClassVar = FACTS
    options: ClassVar[type[Value]] = SageMakerOptions
    forms: ClassVar[Mapping[str, str]] = FORMS

    def locations(self, named: tuple[str, ...]) -> tuple[str, ...]:
        if "all" in named:
            return tuple(map(place_of, self.catalog().regions()))
        for region in named:
            self.catalog().check_region(region)
        return tuple(map(place_of, dict.fromkeys(named))) or (place_of(self.default_region()),)

    def supply(self, catalog: Catalog, *, release: str, hardware: bool) -> Supplied:  # noqa: ARG002 -- the protocol's
        """Return nothing to add: the catalog's offers count."""
        return Supplied()

    def rejection(self, plan: Plan) -> InputError | None:
        """Return the error for a plan with other machines than SageMaker's, or with a folder of this computer."""
        from tgi_deploy.targets.sagemaker.requests import not_hosted  # noqa: PLC0415 -- startup time

        folder = plan.request.model.model.local_path
        if folder is None:
            return not_hosted(plan.chosen)
        return InputError(
            "local_model",
            f"the model {folder} exists only on this computer: an endpoint can't load it",
            hint="push it to the hub and use its id, also for files in S3, which --weights names",
        )

    def launch(
        self,
        context: TargetContext,
        request: LaunchRequest,
        *,
        spent: Callable[[Deployment], Spent] = no_spending,  # noqa: ARG002 -- --max-spend is refused
    ) -> Launch:
        from tgi_deploy.targets.sagemaker.launch import SageMakerLaunch  # noqa: PLC0415 -- planning loads nothing that acts

        made = SageMakerLaunch(context=context, request=request, cloud=self.cloud_of)
        made.check()
        return made

    def front(self, context: TargetContext, deployment: Deployment) -> Front | None:  # noqa: ARG002 -- the protocol's
        """Return the endpoint, in which SageMaker itself replaces the machines."""
        from tgi_deploy.targets.sagemaker.front import EndpointFront  # noqa: PLC0415 -- planning loads nothing that acts

        return EndpointFront(cloud=self.cloud_of(deployment.region))

    def running(self, deployment: Deployment) -> int:
        state = self.cloud_of(deployment.region).state(endpoint_name(deployment.name))
        return state.desired if state is not None else 0

    def headroom(self, deployment: Deployment, running: int, replicas: Replicas) -> Headroom:
        """Return why the number can't be changed now, and what more machines cost; AWS itself checks the quota."""
        busy, price = self._busy(deployment), deployment.usd_per_hour
        if busy is not None or price is None or deployment.plan is None or _range_of(deployment).varies:
            return Headroom(problems=(busy,) if busy is not None else ())
        plan, most = deployment.plan, replicas.most or replicas.least
        # More machines may come from any pool.
        highest = max(pool.machine_usd_per_hour or price for pool in deployment.current.pools)
        added = highest * max(0, most - running) / plan.chosen.replicas
        budget, total = plan.requirements.budget_usd_per_hour, price * min(most, running) / plan.chosen.replicas + added
        if budget is not None and total > budget:
            some = "up to " if highest > price else ""
            message = f"{plural(most, 'machine')} would cost {some}{rate(total)}: the budget is {rate(budget)}"
            hint = f"run the same 'up' with a larger --budget and --replicas {replicas.words}"
            return Headroom(problems=(error("over_budget", message, hint),))
        return Headroom(added_usd_per_hour=added, estimated=deployment.estimated, price_date=plan.chosen.price_date)

    def _busy(self, deployment: Deployment) -> Problem | None:
        """Return the error while SageMaker changes the endpoint."""
        state = self.cloud_of(deployment.region).state(endpoint_name(deployment.name))
        if state is not None and state.settled:
            return None
        status = state.status if state is not None else "gone"
        return error("endpoint_busy", f"the endpoint is {status}", hint="try again once it is InService")

    def cut_off(self, deployment: Deployment) -> Problem | None:
        """Return the warning if answers may take longer than SageMaker gives a machine that it removes."""
        from tgi_deploy.targets.sagemaker.checks import cut_off  # noqa: PLC0415 -- planning loads nothing that acts
        from tgi_deploy.targets.sagemaker.endpoints import drain_s  # noqa: PLC0415 -- as above

        machine, endpoints = deployment.machine, self.cloud_of(deployment.region).endpoints
        known = endpoints.configuration(machine.attributes["id"]) if machine and "id" in machine.attributes else None
        return cut_off(drain_s(known), "scale while few requests are open")

    def follow(self, deployment: Deployment, replicas: Replicas, options: Value) -> ChangeSet:  # noqa: ARG002 -- the protocol's
        """Return nothing to do: AWS keeps to the range of the last `up`.

        Raises DeployError `replicas_out_of_range` and `endpoint_busy`.
        """
        kept = _range_of(deployment)
        if replicas.varies or (kept.varies and not kept.least <= replicas.least <= (kept.most or 0)):
            now = (
                f"autoscales within {kept.words}; only 'up' changes the range"
                if kept.varies
                else "does not autoscale; only 'up' sets a range"
            )
            raise DeployError(
                "replicas_out_of_range",
                f"'{deployment.name}' {now}",
                hint=f"run the same 'up' with --replicas {replicas.words}",
            )
        busy = self._busy(deployment)
        if busy is not None:
            raise DeployError(
                busy.code, f"scaling '{deployment.name}': {busy.message}", hint=f"{busy.hint}; nothing has changed"
            )
        return ChangeSet(steps=())

    def autoscaler(self, deployment: Deployment) -> AutoscalerState | None:
        from tgi_deploy.targets.sagemaker.scaling import state_of  # noqa: PLC0415 -- planning loads nothing that acts

        kept = _range_of(deployment)
        name = endpoint_name(deployment.name)
        return state_of(self.cloud_of(deployment.region).api, name, kept) if kept.varies else None

    def answers(self, address: Address) -> bool:
        state = self.cloud_of(address.invoked).state(_endpoint_in(address))
        return state is not None and state.serves

    def invoke(self, address: Address, body: bytes, *, streamed: bool) -> Invocation:
        from tgi_deploy.targets.sagemaker.invoking import invoke  # noqa: PLC0415 -- few commands invoke

        return invoke(self.cloud_of(address.invoked).api, _endpoint_in(address), body, streamed=streamed)

    def invocation_lines(self, address: Address, body: Mapping[str, Any], *, streamed: bool) -> tuple[str, str]:
        from tgi_deploy.targets.sagemaker.invoking import invocation_lines  # noqa: PLC0415 -- few commands print them

        return invocation_lines(region_of(address.invoked), _endpoint_in(address), body, streamed=streamed)

    def cloud(self, place: str) -> Cloud:
        return self.cloud_of(place)

    def artifact(self, form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
        from tgi_deploy.targets.sagemaker.artifacts import render_artifact  # noqa: PLC0415 -- startup time

        return render_artifact(form, deployable, templates_dir=templates_dir)

    def examine(self, context: TargetContext, request: AccountRequest) -> tuple[Problem, ...]:
        from tgi_deploy.targets.sagemaker.checks import examined  # noqa: PLC0415 -- only `doctor` examines
        from tgi_deploy.targets.sagemaker.launch import option_problems  # noqa: PLC0415 -- as above

        region, plan, options = region_of(request.place) or request.place, request.plan, request.options
        found = examined(self.cloud_of(place_of(region)).api, plan, options)
        if plan is None:
            return found
        return (*found, *option_problems(plan, options, request.environ, loopback=context.loopback))

    def policy(self, features: tuple[str, ...], *, everything: bool) -> Policy:
        from tgi_deploy.catalog.actions import read_actions  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.aws.policy import required_policy  # noqa: PLC0415

        return required_policy(read_actions(NAME), features, everything=everything)

    def boundary(self) -> Policy:
        from tgi_deploy.catalog.actions import read_actions  # noqa: PLC0415 -- startup time
        from tgi_deploy.targets.aws.policy import permissions_boundary  # noqa: PLC0415

        return permissions_boundary(read_actions(NAME))

    @property
    def manual_commands(self) -> ManualCommands:
        from tgi_deploy.targets.sagemaker import commands  # noqa: PLC0415 -- startup time

        return commands


def _range_of(deployment: Deployment) -> Replicas:
    return deployment.plan.requirements.replicas if deployment.plan else Replicas()


def _endpoint_in(address: Address) -> str:
    """Return the endpoint's name in the URL that it is invoked at."""
    return address.url.partition("/endpoints/")[2].partition("/")[0]
