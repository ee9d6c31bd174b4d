"""Turns account lookups into findings: identity, clock, region, permissions, quota, network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, Problem, error, ok, warning
from tgi_deploy.reconcile.errors import PermissionDeniedError
from tgi_deploy.targets.ec2.quota import more_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.catalog.actions import Boundary
    from tgi_deploy.targets.ec2.inspection import AccountPolicy, Identity, Verdict
    from tgi_deploy.targets.ec2.quota import Headroom

POLICY: Final = "'tgi-deploy doctor --policy' prints the required policy"
# AWS rejects signatures when clocks differ by more than five minutes (AWS General Reference, "Signing requests").
SKEW_REFUSED_S: Final = 300.0
SKEW_NOTICED_S: Final = 30.0
# Actions on existing resources. A policy may allow them by tag, so a dry run can't prove a denial.
ON_OURS: Final = frozenset(
    {
        "ec2:AssociateAddress",
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:CancelSpotInstanceRequests",
        "ec2:DeleteLaunchTemplate",
        "ec2:DeleteNetworkInterface",
        "ec2:DeleteSecurityGroup",
        "ec2:DeleteVolume",
        "ec2:GetConsoleOutput",
        "ec2:ReleaseAddress",
        "ec2:TerminateInstances",
    }
)
_BROKEN: Final = frozenset({"no_credentials", "bad_credentials", "unknown_aws_profile", "cloud_unreachable"})


def unanswered(problem: DeployError) -> Problem:
    """Return the finding for a failed lookup: bad credentials are an error, anything else is unknown."""
    if problem.code in _BROKEN:
        return problem.problem
    remedy = POLICY if isinstance(problem, PermissionDeniedError) else problem.hint
    return warning("not_checked", problem.message, remedy)


def identity_finding(answer: Identity | DeployError) -> Problem:
    if isinstance(answer, DeployError):
        return unanswered(answer)
    return ok("identity", answer.arn, account=answer.account, arn=answer.arn)


def clock_finding(answer: Identity | DeployError) -> Problem | None:
    """Return the finding about clock skew; None without a clock to compare with."""
    skew_s = None if isinstance(answer, DeployError) else answer.skew_s
    if skew_s is None:
        return None
    off = f"this computer's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the cloud's"
    remedy = "set the clock: 'timedatectl set-ntp true', or your system's time service"
    if abs(skew_s) > SKEW_REFUSED_S:
        return error("clock_skew", f"{off}: signed requests are rejected beyond 300 s", remedy, skew_s=skew_s)
    if abs(skew_s) > SKEW_NOTICED_S:
        return warning("clock_skew", f"{off}: expiry times are off by as much", remedy, skew_s=skew_s)
    return ok("clock", f"within {SKEW_NOTICED_S:.0f} s of the cloud's", skew_s=skew_s)


def region_finding(region: str, answer: str | DeployError) -> Problem:
    if isinstance(answer, DeployError):
        return unanswered(answer)
    if answer in {"opted-in", "opt-in-not-required"}:
        return ok("region", f"{region} is enabled", region=region)
    if not answer:
        return error(
            "unknown_region",
            f"the region {region} does not exist",
            "'tgi-deploy catalog list regions' lists all regions",
        )
    remedy = f"enable it, or name another --region: aws account enable-region --region-name {region}"
    return error("region_disabled", f"{region} is not enabled for this account ({answer})", remedy, region=region)


def permission_findings(verdicts: Mapping[str, Verdict | DeployError], arn: str) -> tuple[Problem, ...]:
    """Return one finding for all allowed actions, and one per denied action."""
    allowed = [action for action, verdict in verdicts.items() if verdict == "allowed"]
    denied = [action for action, verdict in verdicts.items() if verdict == "denied"]
    open_ = [action for action, verdict in verdicts.items() if verdict == "unproved"]
    failed = [verdict for verdict in verdicts.values() if isinstance(verdict, DeployError)]
    findings = [_denied(action, arn) for action in denied]
    if allowed:
        findings.insert(0, ok("permissions", f"{len(allowed)} actions allowed", allowed=allowed))
    if open_:
        message = "can't be checked until there is a resource to act on: " + ", ".join(open_)
        findings.append(ok("permissions_unproved", message, actions=open_))
    return (*findings, *(unanswered(problem) for problem in failed[:1]))


def _denied(action: str, arn: str) -> Problem:
    text = f"{action} is not allowed for {arn or 'these credentials'}"
    if action in ON_OURS:
        doubt = f"{text} on a dummy id; a policy that requires tags may allow it on our resources"
        return warning("not_checked", doubt, POLICY, action=action)
    return error("permission_denied", text, POLICY, action=action)


def boundary_finding(answer: AccountPolicy | DeployError | None, boundary: Boundary) -> Problem:
    """Return whether the account has the permissions boundary of created roles, with the right content."""
    if isinstance(answer, DeployError):
        return unanswered(answer)
    if answer is None:
        message = f"the account has no policy {boundary.name!r}, the permissions boundary of created roles"
        remedy = f"run once, as an administrator of the account: {boundary.creation}"
        return error("boundary_missing", message, remedy, policy=boundary.name)
    if answer.document != boundary.document(partition=answer.arn.split(":")[1]):
        message = (
            f"{answer.arn} differs from 'tgi-deploy doctor --policy --boundary': roles may have too few permissions, "
            "or too many"
        )
        return warning("boundary_differs", message, boundary.renewal(answer.arn), policy=answer.arn)
    return ok("boundary", f"created roles carry {answer.arn}", policy=answer.arn)


def quota_finding(room: Headroom | None, kind: str, *, elsewhere: bool = False) -> Problem:
    """`elsewhere`: the plan has a fallback with another quota."""
    if room is None:
        return warning("not_checked", f"the quota for {kind} is unknown: a launch may be rejected", None)
    if room.short is None:
        remedy = POLICY if "servicequotas:" in room.why_unknown else None
        return warning("not_checked", f"{room.text()}: {room.why_unknown}", remedy, **room.document())
    if not room.short:
        return ok("quota", room.text(), **room.document())
    if elsewhere:
        message = f"{room.text()}: one of the plan's fallbacks will be tried instead"
        return warning("quota_exceeded", message, room.command, **room.document())
    return error("quota_exceeded", f"{room.text()}: {kind} would be rejected", room.command, **room.document())


def zones_finding(kind: str, region: str, zones: Sequence[str]) -> Problem:
    message = f"{kind} is offered in {', '.join(zones)}"
    return ok("zones", message, region=region, zones=list(zones), instance_type=kind)


def addresses_finding(subnet: str, free: int | DeployError) -> Problem:
    if isinstance(free, DeployError):
        return unanswered(free)
    message = f"{subnet} has {free:,} free addresses"
    if free > 0:
        return ok("subnet", message, subnet=subnet, free_addresses=free)
    return warning("subnet_full", message, "other zones will be tried; or choose another --subnet", subnet=subnet)


def static_ip_finding(region: str, answer: tuple[int, int] | DeployError) -> Problem:
    if isinstance(answer, DeployError):
        return unanswered(answer)
    used, limit = answer
    message = f"{region} has {used} of at most {limit} Elastic IP addresses"
    if used < limit:
        return ok("addresses", message, used=used, limit=limit)
    return error("quota_exceeded", message, more_addresses(region, used), used=used, limit=limit)


def route_finding(
    subnet: str, default_route: str | DeployError | None, *, public: bool, static_ip: bool = False
) -> Problem:
    """`public`: whether the machine gets a public address, `static_ip` whether it is reached at one that stays."""
    if isinstance(default_route, DeployError):
        return unanswered(default_route)
    if default_route is None:
        return ok("route", f"{subnet} is on this computer: its routes are not checked", subnet=subnet)
    if not default_route:
        message = f"{subnet} has no default route: the machine could not reach the hub or the image registry"
        remedy = "choose a --subnet with a route to an internet or NAT gateway, or add one to its route table"
        return error("no_egress_route", message, remedy, subnet=subnet)
    if default_route.startswith("internet gateway") and not public:
        message = f"{subnet} routes to an {default_route}, which does not work without a public address"
        return error("no_public_address", message, "choose a --subnet behind a NAT gateway", subnet=subnet)
    if static_ip and not default_route.startswith("internet gateway"):
        message = f"{subnet} routes to a {default_route}: a static IP address needs an internet gateway"
        remedy = "choose a --subnet with a route to an internet gateway, or omit --static-ip"
        return error("no_public_address", message, remedy, subnet=subnet)
    return ok("route", f"{subnet} routes to {default_route}", subnet=subnet, default_route=default_route)
