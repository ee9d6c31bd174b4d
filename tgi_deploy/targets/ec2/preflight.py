"""Checks before the confirmation: few calls, in parallel; an unknown result never stops a launch.

Five reads and three dry runs: identity and clock, the quota and its use, the subnet's addresses and default route;
permission to create a group, a template and a machine. A gated model costs one call to the hub, a role three to IAM,
because its permissions boundary has to exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.targets.ec2.account_checks import (
    addresses_finding,
    boundary_finding,
    clock_finding,
    identity_finding,
    permission_findings,
    quota_finding,
    route_finding,
    static_ip_finding,
)
from tgi_deploy.targets.ec2.dry_run import OF_STATIC_IP
from tgi_deploy.targets.ec2.inspection import Identity, RehearsedLaunch
from tgi_deploy.targets.ec2.launch_checks import disk_finding, hub_finding, tunnel_finding, user_data_finding
from tgi_deploy.targets.ec2.quota import compute_headroom, quota_code, used_vcpus
from tgi_deploy.targets.ec2.resources import ADDRESS, GROUP, INSTANCE, TEMPLATE
from tgi_deploy.targets.ec2.secrets import PROFILE, ROLE
from tgi_deploy.targets.ec2.survey import ask_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.ec2.inspection import Inspector
    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.targets.protocol import Attempt
    from tgi_deploy.values.plan import Candidate, Plan

CREATING: Final = ("ec2:CreateSecurityGroup", "ec2:CreateLaunchTemplate", "ec2:RunInstances")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedLaunch:
    """A launch, from its planned resources. `roles`: whether it creates any.

    `ending`: type and market of the machines in its region that are deleted first. `static_ip`: whether it uses one;
    `new_ip`: whether that has to be allocated.
    """

    candidate: Candidate
    launch: RehearsedLaunch
    root_gib: int
    public: bool
    user_data: str
    roles: bool = False
    ending: tuple[tuple[str, str], ...] = ()
    static_ip: bool = False
    new_ip: bool = False

    @property
    def region(self) -> str:
        return self.candidate.offer.region


def launch_of(attempt: Attempt, tags: Mapping[str, str]) -> PlannedLaunch:
    """Return the attempt's launch, from its planned resources."""
    made = {resource.kind: resource.properties for resource in attempt.wanted}
    request, data = made[INSTANCE]["request"], made[TEMPLATE]["data"]
    interface = request["NetworkInterfaces"][0]
    profile: Mapping[str, Any] = request.get("IamInstanceProfile", {})
    name = None if PROFILE in made else profile.get("Arn") or profile.get("Name")  # not created yet
    return PlannedLaunch(
        candidate=attempt.candidate,
        launch=RehearsedLaunch(
            image=data["ImageId"],
            instance_type=request["InstanceType"],
            subnet=interface["SubnetId"],
            network=made[GROUP]["network"],
            market=attempt.candidate.offer.market,
            tags=tags,
            instance_profile=name if isinstance(name, str) else None,
        ),
        root_gib=sum(int(disk["Ebs"]["VolumeSize"]) for disk in data["BlockDeviceMappings"][:1]),
        public=bool(interface.get("AssociatePublicIpAddress", True)),
        user_data="".join(text for _, text in attempt.artifacts),
        roles=any(resource.kind == ROLE for resource in attempt.wanted),
        ending=tuple(
            (step.attributes.get("instance_type", ""), step.attributes.get("market", ""))
            for step in attempt.changes.steps
            if (step.action, step.kind, step.place) == ("delete", INSTANCE, attempt.place)
        ),
        static_ip=ADDRESS in made,
        new_ip=any((step.action, step.kind) == ("create", ADDRESS) for step in attempt.changes.steps),
    )


def launch_findings(
    survey: Survey,
    plan: Plan,
    planned: PlannedLaunch,
    *,
    token_parameter: str | None,
    actions: tuple[str, ...] = CREATING,
    tunnel_problem: Callable[[], str] | None = None,
) -> tuple[Problem, ...]:
    """Return all findings about one launch, those about the account first. `tunnel_problem` is from `Ec2Target`."""
    actions = (*actions, *OF_STATIC_IP) if planned.new_ip else actions
    questions = _questions(survey, plan, planned, token_parameter, actions)
    tunnel = {"tunnel": tunnel_problem} if tunnel_problem else {}
    answers: dict[str, Any] = ask_all({**questions, **tunnel})
    who = answers["identity"]
    arn = who.arn if isinstance(who, Identity) else ""
    verdicts = {action: answers[action] for action in actions}
    kind = planned.launch.instance_type
    room = compute_headroom(survey, planned.candidate, answers.get("quota"), answers.get("used"))
    findings: tuple[Problem | None, ...] = (
        identity_finding(who),
        clock_finding(who),
        *permission_findings(verdicts, arn),
        boundary_finding(answers["boundary"], read_actions().boundary) if planned.roles else None,
        quota_finding(room, kind, elsewhere=has_elsewhere(plan, planned.candidate)),
        addresses_finding(planned.launch.subnet, answers["addresses"]),
        static_ip_finding(planned.region, answers["static_ip"]) if planned.new_ip else None,
        route_finding(planned.launch.subnet, answers["route"], public=planned.public, static_ip=planned.static_ip),
        disk_finding(planned.candidate, planned.root_gib, None),
        user_data_finding(planned.user_data),
        tunnel_finding(answers["tunnel"]) if tunnel else None,
        answers["hub"],
    )
    return tuple(finding for finding in findings if finding is not None)


def _questions(
    survey: Survey, plan: Plan, planned: PlannedLaunch, token_parameter: str | None, actions: tuple[str, ...]
) -> dict[str, Callable[[], Any]]:
    inspector, launch = survey.inspector(planned.region), planned.launch
    code = quota_code(planned.candidate)
    questions: dict[str, Callable[[], Any]] = {
        "identity": inspector.identity,
        "addresses": lambda: inspector.free_addresses(launch.subnet),
        "route": lambda: inspector.default_route(launch.subnet, launch.network),
        "hub": lambda: hub_finding(survey, plan.request.model.model, token_parameter=token_parameter),
        **{action: _rehearsal(inspector, action, launch) for action in actions},
    }
    if planned.roles:
        questions["boundary"] = lambda: inspector.policy(read_actions().boundary.name)
    if planned.new_ip:
        questions["static_ip"] = inspector.elastic_addresses
    if code is not None:
        questions["quota"] = lambda: inspector.quota(code)
        questions["used"] = lambda: used_vcpus(survey, planned.region, code, planned.ending)
    return questions


def _rehearsal(inspector: Inspector, action: str, launch: RehearsedLaunch) -> Callable[[], Any]:
    return lambda: inspector.rehearse(action, launch)


def has_elsewhere(plan: Plan, candidate: Candidate) -> bool:
    """Return whether the plan has a candidate with another quota."""
    own = (candidate.offer.region, quota_code(candidate))
    return any((other.offer.region, quota_code(other)) != own for other in (plan.chosen, *plan.fallbacks))


def launches(attempt: Attempt) -> bool:
    """Return whether a machine would be created on EC2, not adopted."""
    return any(step.action == "create" and step.kind == INSTANCE for step in attempt.changes.steps)
