"""Launches a plan as an endpoint: one region, one attempt. The plan's fallbacks of the same container are pools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError, error
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.ends import certain_end, ends_of, expiry, reads_tags
from tgi_deploy.secret import checked, reference
from tgi_deploy.targets.deployable import HUB_TOKEN, check
from tgi_deploy.targets.protocol import Attempt, Deployable
from tgi_deploy.targets.sagemaker.alarms import ALARM
from tgi_deploy.targets.sagemaker.checks import alarm_findings, findings
from tgi_deploy.targets.sagemaker.endpoints import most_at_once
from tgi_deploy.targets.sagemaker.limits import END, END_ROLE
from tgi_deploy.targets.sagemaker.names import endpoint_name, place_of
from tgi_deploy.targets.sagemaker.requests import container, longest_answer_s, pools, variant
from tgi_deploy.targets.sagemaker.resources import Hosted, resources
from tgi_deploy.targets.sagemaker.scaling import TARGET
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import Ends, WantedEnds
from tgi_deploy.values.resource import TAG_ID, TAG_NAME
from tgi_deploy.values.serving import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.protocol import LaunchRequest, Look, TargetContext
    from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
    from tgi_deploy.targets.sagemaker.options import SageMakerOptions
    from tgi_deploy.targets.sagemaker.state import EndpointState
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import Found
    from tgi_deploy.values.serving import Reach

_FILE: Final = "sagemaker.json"
# Resources that stay through updates until `down`, because they do nothing while they are unused. The same is true of a
# schedule without a limit; one whose end has passed would delete the next endpoint, too.
_BESIDE: Final = frozenset({END_ROLE, TARGET})


@dataclass(frozen=True, kw_only=True, slots=True)
class SageMakerLaunch:
    """The launch of an endpoint. `cloud` returns the cloud of a place."""

    context: TargetContext
    request: LaunchRequest
    cloud: Callable[[str], SageMakerCloud]

    @property
    def plan(self) -> Plan:
        return self.request.plan

    @property
    def options(self) -> SageMakerOptions:
        options: SageMakerOptions = self.request.options
        return options

    @property
    def region(self) -> str:
        return self.plan.chosen.offer.region

    @property
    def place(self) -> str:
        return place_of(self.region)

    @property
    def traffic(self) -> Traffic:
        """The traffic to AWS's own API, over TLS."""
        reach: Reach = "loopback" if self.context.loopback else "public"
        return Traffic(reach=reach, api_key=False, encrypted=True)

    @property
    def plaintext(self) -> bool:
        return False

    @property
    def tls(self) -> bool:
        return False

    @property
    def marks(self) -> Mapping[str, Any]:
        scaled = {"autoscaling": self.plan.request.replicas.words} if self._autoscaled else {}
        named = {name: getattr(self.options, name) for name in ("role", "create_role", "weights", "hub_token_from_env")}
        return {**{name: value for name, value in named.items() if value}, **scaled}

    @property
    def rare_kinds(self) -> bool:
        return self.options.create_role or self.request.ends != WantedEnds() or self._autoscaled

    @property
    def _autoscaled(self) -> bool:
        """Whether the request names a range; otherwise the plan chooses the number."""
        return self.plan.request.replicas.varies

    def check(self) -> None:
        """Check the options, before anything is asked of AWS.

        Raises InputError `role_missing`, `token_readable`, `secret_missing`, `secret_unusable`.
        """
        self._with_role()
        self._secrets()

    def attempts(self, look: Look) -> Iterator[Attempt]:
        """Yield the only attempt."""
        deployment, seen = look()
        secrets, options = self._secrets(), self._with_role()
        deployable = self._deployable(deployment)
        ends = self._ends(deployment, seen)
        chosen = self.plan.chosen
        hosted = Hosted(
            name=deployment.name,
            deployment_id=deployment.id,
            region=self.region,
            revision=deployment.wanted.number,
            options=options,
            container=container(deployable, options),
            variant=variant(deployable, chosen, self.plan.fallbacks, "", chosen.replicas),
            replicas=chosen.replicas,
            drain_s=longest_answer_s(chosen),
            secrets=secrets,
            ends_at=self._ends_at(ends, seen),
            most=(self.plan.request.replicas.most or 0) if self._autoscaled else 0,
            moves=deployment.rolling,
        )
        wanted = resources(hosted)
        keys = {item.key for item in wanted}
        beside = _BESIDE if certain_end(ends_of(deployment, ())) else {*_BESIDE, END}
        there = [found for found in seen if found.key in keys or found.key not in beside]
        yield Attempt(
            candidate=chosen,
            place=self.place,
            pool=self.place,
            zone=self.place,
            cidrs=(),
            wanted=wanted,
            changes=diff(wanted, deployment.resources, there),
            artifacts=((_FILE, _document(hosted)),),
            ends=ends,
            others=tuple(pools(chosen, self.plan.fallbacks).values())[1:],
        )

    def _deployable(self, deployment: Deployment) -> Deployable:
        candidate = self.plan.chosen
        deployable = Deployable(
            name=deployment.name,
            candidate=candidate,
            model=self.plan.request.model,
            log_filter=self.context.log_grammar(candidate.engine.name).log_filter,
            region=self.region,
            ready_deadline_s=self.context.ready_deadline_s(candidate),
        )
        check(deployable)
        return deployable

    def _with_role(self) -> SageMakerOptions:
        return with_role(self.options, loopback=self.context.loopback)

    def _secrets(self) -> Mapping[str, str]:
        return secrets_of(self.plan, self.options, self.request.environ, loopback=self.context.loopback)

    def _ends(self, deployment: Deployment, seen: Sequence[Found]) -> Ends:
        """Return the limits. An endpoint that stays keeps its own, also through an update that asks for none."""
        asked, now = self.request.ends, self.context.clock.now()
        known = deployment.ends
        left = certain_end(ends_of(deployment, ()))
        lasts = asked == WantedEnds() and left is not None and left > now
        if lasts or _alive(seen) is not None:
            return known
        expires = expiry(deployment, asked.ttl_s, seen, self.context.clock)
        return Ends(
            ttl_s=asked.ttl_s, expires_at=expires, asked_ttl_s=asked.ttl_s, ttl_until=expires, lease_s=asked.lease_s
        )

    def _ends_at(self, ends: Ends, seen: Sequence[Found]) -> datetime | None:
        """Return when the schedule deletes the endpoint: by its tags or, for a new one, by its limits."""
        machine = _alive(seen)
        if machine is not None and reads_tags(machine.tags):
            return certain_end(ends_of(None, [machine.tags]))
        now = self.context.clock.now()
        lease = None if ends.lease_s is None else now + timedelta(seconds=ends.lease_s)
        return min((at for at in (ends.expires_at, lease) if at is not None), default=None)

    def address(self, deployment: Deployment, *, pool: str) -> str:  # noqa: ARG002 -- a region is the only pool
        return self.cloud(self.place).endpoints.address(endpoint_name(deployment.name))

    def preflight(self, attempt: Attempt, tags: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return the findings that would make the launch fail, a taken name among them, and warnings."""
        cloud = self.cloud(attempt.place)
        there = cloud.state(endpoint_name(tags[TAG_NAME]))
        at_once = _at_once(cloud, attempt, there)
        return (*self._findings(attempt, tags, there), *findings(cloud.api, self.plan, self.options, at_once=at_once))

    def _findings(self, attempt: Attempt, tags: Mapping[str, str], there: EndpointState | None) -> Iterator[Problem]:
        name = endpoint_name(tags[TAG_NAME])
        if there is not None and there.tags.get(TAG_ID) != tags[TAG_ID]:
            yield error(
                "name_taken",
                f"the endpoint {name} exists in {self.region}, and this deployment did not create it",
                "choose another --name, or remove that endpoint",
            )
        alarm = next((item.properties["name"] for item in attempt.wanted if item.kind == ALARM), None)
        if alarm is not None:
            yield from alarm_findings(self.cloud(attempt.place).api, self.options.role, alarm, tags[TAG_ID])


def with_role(options: SageMakerOptions, *, loopback: bool) -> SageMakerOptions:
    """Return the options with a role. In the sandbox, one is created even without --create-role.

    Raises InputError `role_missing`.
    """
    if options.role is not None or options.create_role:
        return options
    if loopback:
        return replaced(options, create_role=True)
    raise InputError(
        "role_missing",
        "an endpoint needs a role that may pull its image and write its log",
        hint="name one with --role ARN, or have it created with --create-role",
    )


def secrets_of(
    plan: Plan, options: SageMakerOptions, environ: Mapping[str, str], *, loopback: bool
) -> Mapping[str, str]:
    """Return the container's secrets, as references to the caller's variables.

    Whoever may describe the model in the account can read its variables, so that a token needs the user's consent.
    Raises InputError `token_readable`, `secret_missing`, `secret_unusable`.
    """
    model = plan.request.model
    needed = model.model.gated or bool(plan.chosen.engine.container.secrets)
    if options.weights is not None or not (needed or options.hub_token_from_env):
        return {}
    if options.hub_token_from_env or loopback:
        checked(environ.get(HUB_TOKEN), HUB_TOKEN, "the hub token")
        return {HUB_TOKEN: reference(HUB_TOKEN)}
    raise InputError(
        "token_readable",
        f"{model.name} is gated, and whoever may call sagemaker:DescribeModel could read the hub token",
        hint="copy the weights to S3 and name the folder with --weights, or accept it with --hub-token-from-env",
    )


def option_problems(
    plan: Plan, options: SageMakerOptions, environ: Mapping[str, str], *, loopback: bool
) -> Iterator[Problem]:
    """Yield why `up` would reject the options before it asks AWS anything."""
    for resolve in (
        partial(with_role, options, loopback=loopback),
        partial(secrets_of, plan, options, environ, loopback=loopback),
    ):
        try:
            resolve()
        except InputError as problem:
            yield problem.problem


def _at_once(cloud: SageMakerCloud, attempt: Attempt, there: EndpointState | None) -> Mapping[str, int]:
    """Return how many machines of a type an update that has not begun needs at once; empty if several types serve."""
    endpoint = next(item.properties for item in attempt.wanted if item.is_machine)
    if there is None or not endpoint["alarm"] or endpoint["name"] in there.configurations:
        return {}
    kinds = cloud.endpoints.types(there)
    return dict.fromkeys(kinds, most_at_once(there, endpoint["replicas"], endpoint["most"])) if len(kinds) == 1 else {}


def _alive(seen: Sequence[Found]) -> Found | None:
    return next((found for found in seen if found.is_machine and found.alive), None)


def _document(hosted: Hosted) -> str:
    """Return the container and the variant of the requests to AWS as JSON, without secrets."""
    return json.dumps({"container": hosted.container, "variant": hosted.variant}, indent=2, sort_keys=True) + "\n"
