"""The use case `doctor`: everything that can be known before money is spent, each with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError, Problem
from tgi_deploy.operations.checking.account_checks import (
    clock_finding,
    identity_finding,
    permission_findings,
    region_finding,
    unanswered,
    zones_finding,
)
from tgi_deploy.operations.checking.launch_checks import disk_finding, image_finding
from tgi_deploy.operations.checking.local_checks import engine_findings, extras_findings, python_finding, state_finding
from tgi_deploy.operations.checking.preflight import flight_of, launch_findings, rehearsal_tags
from tgi_deploy.operations.launching.launch import ENGINE_ARCHITECTURE
from tgi_deploy.operations.launching.launchpads import launchpad, token_parameter
from tgi_deploy.operations.survey import together
from tgi_deploy.reconcile.inspection import Identity, RehearsedLaunch
from tgi_deploy.reconcile.model import Deployment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.launching.launch import LaunchSettings
    from tgi_deploy.operations.survey import Survey
    from tgi_deploy.reconcile.inspection import Workstation
    from tgi_deploy.values.plan import Plan

_NAME: Final = "doctor"
_ID: Final = "rehearsal"
# Rehearsed where no plan says what to launch: small, and offered almost everywhere.
_COMMON: Final = "g6.xlarge"


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorRequest:
    """`plan` None asks about the account alone, in the first of the context's regions."""

    context: Context
    survey: Survey
    workstation: Workstation
    target: str
    settings: LaunchSettings
    plan: Plan | None = None


def doctor(request: DoctorRequest) -> tuple[Problem, ...]:
    """All findings, this computer's first. Nothing is raised: what fails is a finding."""
    checks = CHECKS.get(request.target, ())
    return tuple(finding for check in checks for finding in check(request))


def _local(request: DoctorRequest) -> tuple[Problem, ...]:
    here = request.workstation
    return (python_finding(here), state_finding(here), *extras_findings(here))


def _optional_engine(request: DoctorRequest) -> tuple[Problem, ...]:
    return engine_findings(request.workstation, needed=False)


def _needed_engine(request: DoctorRequest) -> tuple[Problem, ...]:
    return engine_findings(request.workstation, needed=True)


def _cloud(request: DoctorRequest) -> tuple[Problem, ...]:
    """The account, then the launch. Without anybody to be, nothing else is asked."""
    region = request.plan.chosen.offer.region if request.plan else request.context.regions[0]
    try:
        inspector = request.survey.inspector(region)
        answers: dict[str, Any] = together({"who": inspector.identity, "region": inspector.region_status})
    except DeployError as problem:
        return (unanswered("identity", problem),)
    who = answers["who"]
    if isinstance(who, DeployError) and identity_finding(who).severity == "error":
        return (identity_finding(who),)
    account = (identity_finding(who), clock_finding(who), region_finding(region, answers["region"]))
    findings = tuple(finding for finding in account if finding is not None)
    if any(finding.severity == "error" for finding in findings):
        return findings
    arn = who.arn if isinstance(who, Identity) else ""
    return (*findings, *_place(request, region, arn))


def _place(request: DoctorRequest, region: str, arn: str) -> tuple[Problem, ...]:
    kind = request.plan.chosen.offer.instance_type.name if request.plan else _COMMON
    cloud, settings = request.context.cloud(region), request.settings
    found: dict[str, Any] = together(
        {
            "image": lambda: cloud.image(architecture=ENGINE_ARCHITECTURE, wanted=settings.ami),
            "places": lambda: cloud.placements(kind, subnet=settings.subnet),
        }
    )
    failed = tuple(answer.problem for answer in found.values() if isinstance(answer, DeployError))
    if failed:
        return failed
    image, places = found["image"], found["places"]
    zones = sorted({place.zone for place in places})
    seen = (image_finding(image, region), zones_finding(kind, region, zones))
    if request.plan is None:
        launch = RehearsedLaunch(
            image=image.id,
            instance_type=kind,
            subnet=places[0].subnet,
            network=places[0].network,
            market="on-demand",
            tags=rehearsal_tags(_NAME, _ID),
        )
        return (*seen, *_permissions(request.survey, region, launch, arn))
    return (*seen, *_launch(request, request.plan, image.minimum_gib))


def _permissions(survey: Survey, region: str, launch: RehearsedLaunch, arn: str) -> tuple[Problem, ...]:
    inspector = survey.inspector(region)

    def rehearsal(action: str) -> Callable[[], Any]:
        return lambda: inspector.rehearse(action, launch)

    return permission_findings(together({action: rehearsal(action) for action in inspector.actions}), arn)


def _launch(request: DoctorRequest, plan: Plan, snapshot_gib: int) -> tuple[Problem, ...]:
    """What preflight would say, with every action rehearsed and the image's own size counted."""
    context = request.context
    now = context.clock.now()
    region = plan.chosen.offer.region
    nobody = Deployment(
        name=_NAME, id=_ID, target=request.target, region=region, phase="creating", created=now, updated=now
    )
    try:
        attempt = launchpad(context, plan, request.settings).first(nobody, ())
    except DeployError as problem:
        return (problem.problem,)
    flight = flight_of(attempt, rehearsal_tags(_NAME, _ID))
    findings = launch_findings(
        request.survey,
        plan,
        flight,
        token_parameter=token_parameter(request.settings),
        actions=request.survey.inspector(region).actions,
    )
    disk = disk_finding(flight.candidate, flight.root_gib, snapshot_gib)
    told_before = {"identity", "clock", "clock_skew"}
    return tuple(disk if item.code.startswith("disk") else item for item in findings if item.code not in told_before)


# What is looked at for each target, in order. Another target adds its own line.
CHECKS: Final[dict[str, tuple[Callable[[DoctorRequest], tuple[Problem, ...]], ...]]] = {
    "ec2": (_local, _optional_engine, _cloud),
    "docker": (_local, _needed_engine),
}
