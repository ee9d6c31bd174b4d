"""Finds everything in an account that would make a launch fail, with remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError, Problem
from tgi_deploy.targets.ec2.account_checks import (
    clock_finding,
    identity_finding,
    permission_findings,
    region_finding,
    unanswered,
    zones_finding,
)
from tgi_deploy.targets.ec2.inspection import Identity, RehearsedLaunch
from tgi_deploy.targets.ec2.launch import ENGINE_ARCHITECTURE
from tgi_deploy.targets.ec2.launch_checks import disk_finding, image_finding
from tgi_deploy.targets.ec2.options import NAME, hub_token_variable
from tgi_deploy.targets.ec2.preflight import launch_findings, launch_of
from tgi_deploy.targets.ec2.survey import ask_all
from tgi_deploy.targets.protocol import LaunchRequest
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.deployment import Deployment, Revision
from tgi_deploy.values.resource import TAG_ID, TAG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.targets.ec2.options import Ec2Options
    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.targets.ec2.target import Ec2Target
    from tgi_deploy.targets.protocol import AccountRequest, TargetContext
    from tgi_deploy.values.plan import Plan

_NAME: Final = "doctor"
_ID: Final = "rehearsal"
_TAGS: Final = {TAG_NAME: _NAME, TAG_ID: _ID}
# The instance type for dry runs without a plan: small, and offered almost everywhere.
_COMMON: Final = "g6.xlarge"
_NOBODY: Final = ("127.0.0.1/32",)


class Examination(Frozen, frozen=True, kw_only=True):
    """What `examine` needs."""

    target: Ec2Target
    survey: Survey
    context: TargetContext
    asked: AccountRequest


def examine(examination: Examination) -> tuple[Problem, ...]:
    """Return the findings about the account, then the launch; without an identity, only that finding."""
    region = examination.asked.place
    try:
        inspector = examination.survey.inspector(region)
        answers: dict[str, Any] = ask_all({"who": inspector.identity, "region": inspector.region_status})
    except DeployError as problem:
        return (unanswered(problem),)
    who = answers["who"]
    if isinstance(who, DeployError) and identity_finding(who).severity == "error":
        return (identity_finding(who),)
    account = (identity_finding(who), clock_finding(who), region_finding(region, answers["region"]))
    findings = tuple(finding for finding in account if finding is not None)
    if any(finding.severity == "error" for finding in findings):
        return findings
    arn = who.arn if isinstance(who, Identity) else ""
    return (*findings, *_place(examination, region, arn))


def _place(examination: Examination, region: str, arn: str) -> tuple[Problem, ...]:
    kind = examination.asked.plan.chosen.offer.instance_type.name if examination.asked.plan else _COMMON
    cloud, options = examination.target.region(region), examination.asked.options
    found: dict[str, Any] = ask_all(
        {
            "image": lambda: cloud.image(architecture=ENGINE_ARCHITECTURE, wanted=options.ami),
            "places": lambda: cloud.placements(kind, subnet=options.subnet),
        }
    )
    failed = tuple(answer.problem for answer in found.values() if isinstance(answer, DeployError))
    if failed:
        return failed
    image, places = found["image"], found["places"]
    zones = sorted({place.zone for place in places})
    seen = (image_finding(image, region), zones_finding(kind, region, zones))
    if examination.asked.plan is None:
        launch = RehearsedLaunch(
            image=image.id,
            instance_type=kind,
            subnet=places[0].subnet,
            network=places[0].network,
            market="on-demand",
            tags=_TAGS,
        )
        return (*seen, *_permissions(examination.survey, region, launch, arn))
    return (*seen, *_launch(examination, examination.asked.plan, image.minimum_gib))


def _permissions(survey: Survey, region: str, launch: RehearsedLaunch, arn: str) -> tuple[Problem, ...]:
    inspector = survey.inspector(region)

    def rehearsal(action: str) -> Callable[[], Any]:
        return lambda: inspector.rehearse(action, launch)

    return permission_findings(ask_all({action: rehearsal(action) for action in inspector.actions}), arn)


def _launch(examination: Examination, plan: Plan, snapshot_gib: int) -> tuple[Problem, ...]:
    """Return the preflight findings, with dry runs of all actions and the image's real size."""
    now, region = examination.context.clock.now(), plan.chosen.offer.region
    revision = Revision(number=1, origin="up", state="pending", created_at=now, pools=())
    deployment = Deployment(
        name=_NAME, id=_ID, target=NAME, status="creating", created_at=now, updated_at=now, revisions=(revision,)
    )
    request = LaunchRequest(
        plan=plan, options=_options_for_up(examination.asked), environ=examination.asked.environ, wait=False
    )
    try:
        attempt = next(examination.target.launch(examination.context, request).attempts(lambda: (deployment, ())))
    except DeployError as problem:
        return (problem.problem,)
    planned = launch_of(attempt, _TAGS)
    findings = launch_findings(
        examination.survey,
        plan,
        planned,
        token_parameter=examination.asked.options.hub_token_parameter,
        actions=examination.survey.inspector(region).actions,
        tunnel_problem=examination.target.tunnel_problem(examination.asked.options),
    )
    disk = disk_finding(planned.candidate, planned.root_gib, snapshot_gib)
    reported = {"identity", "clock", "clock_skew"}
    return tuple(disk if item.code.startswith("disk") else item for item in findings if item.code not in reported)


def _options_for_up(asked: AccountRequest) -> Ec2Options:
    """Return the options that `up` would use. Allowed networks don't matter; a token is checked for any model."""
    options: Ec2Options = asked.options
    stored = options.hub_token_parameter is None and hub_token_variable(asked.environ) is not None
    return replaced(options, allow_cidr=_NOBODY, hub_token_from_env=stored)
