"""One region looked at before anything is made: identity, quotas, routes, and permissions by dry run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from tgi_deploy.adapters.aws.errors import translate
from tgi_deploy.adapters.aws.rehearsal import REQUESTS, request_of
from tgi_deploy.adapters.aws.session import is_loopback
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import GoneError, PermissionDeniedError
from tgi_deploy.reconcile.inspection import AccountPolicy, Identity, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.adapters.aws.api import Answer
    from tgi_deploy.adapters.aws.session import SessionFactory
    from tgi_deploy.reconcile.inspection import RehearsedLaunch, Verdict

_COUNTED: Final = ("pending", "running")
_PAGE: Final = 1000
_ALLOWED: Final = "DryRunOperation"
_ANYWHERE: Final = ("0.0.0.0/0", "::/0")
# The part of a target's id before its dash, as people call it.
_EXITS: Final = {"igw": "internet gateway", "nat": "NAT gateway", "tgw": "transit gateway", "vgw": "VPN gateway"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ec2Inspector:
    """Every question is asked once: what can't be answered now is unknown, not worth waiting for."""

    region: str
    sessions: SessionFactory
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def warm_up(self) -> None:
        """Make the clients here and now: boto3 makes clients safely only in one thread."""
        for service in ("ec2", "sts", "service-quotas"):
            self.sessions.client(service, self.region, creating=True)

    def identity(self) -> Identity:
        answer = self._ask("sts", "get_caller_identity", "asking who you are")
        return Identity(account=answer["Account"], arn=answer["Arn"], skew_s=_skew_s(answer, self.now()))

    def region_status(self) -> str:
        parameters = {"Filters": [{"Name": "region-name", "Values": [self.region]}], "AllRegions": True}
        regions = self._ask("ec2", "describe_regions", "looking at the region", **parameters)["Regions"]
        return str(regions[0].get("OptInStatus", "opt-in-not-required")) if regions else ""

    def quota_vcpus(self, code: str) -> float:
        answer = self._ask(
            "service-quotas", "get_service_quota", f"reading the quota {code}", ServiceCode="ec2", QuotaCode=code
        )
        return float(answer["Quota"]["Value"])

    def usage(self, patterns: Sequence[str], market: str) -> tuple[Usage, ...]:
        """A page for each thousand machines. Types are compared here: not every endpoint knows `g*`."""
        filters = [{"Name": "instance-state-name", "Values": list(_COUNTED)}]
        found: list[Usage] = []
        more: dict[str, str] = {}
        while True:
            page = self._ask(
                "ec2", "describe_instances", "counting running machines", Filters=filters, MaxResults=_PAGE, **more
            )
            machines = [item for group in page["Reservations"] for item in group["Instances"]]
            found += [_usage(item) for item in machines if _market(item) == market and _is_like(item, patterns)]
            if not page.get("NextToken"):
                return tuple(found)
            more = {"NextToken": page["NextToken"]}

    def free_addresses(self, subnet: str) -> int:
        subnets = self._ask("ec2", "describe_subnets", "reading the subnet", SubnetIds=[subnet])["Subnets"]
        return int(subnets[0]["AvailableIpAddressCount"])

    def way_out(self, subnet: str, network: str) -> str | None:
        """None on an endpoint of this computer: what stands in for EC2 there routes nothing."""
        if self.sessions.endpoint_url is not None and is_loopback(self.sessions.endpoint_url):
            return None
        filters = [{"Name": "vpc-id", "Values": [network]}]
        tables = self._ask("ec2", "describe_route_tables", "reading the routes", Filters=filters)["RouteTables"]
        return exit_of(tables, subnet)

    def policy(self, name: str) -> AccountPolicy | None:
        """The only question that makes a client where it is asked, in one thread: few launches need it."""
        doing, who = f"reading the policy {name}", self.identity()
        arn = f"arn:{who.arn.split(':')[1]}:iam::{who.account}:policy/{name}"
        try:
            version = self._ask("iam", "get_policy", doing, PolicyArn=arn)["Policy"]["DefaultVersionId"]
            answer = self._ask("iam", "get_policy_version", doing, PolicyArn=arn, VersionId=version)
        except GoneError:
            return None
        return AccountPolicy(arn=arn, document=answer["PolicyVersion"]["Document"])

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(REQUESTS)

    def rehearse(self, action: str, launch: RehearsedLaunch) -> Verdict:
        method, parameters = request_of(action, launch)
        client = self.sessions.client("ec2", self.region, creating=True)
        try:
            getattr(client, method)(DryRun=True, **parameters)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == _ALLOWED:
                return "allowed"
            failure = self._translated(error, f"rehearsing {action}", "ec2")
            if isinstance(failure, PermissionDeniedError):
                return "denied"
            if failure.code in {"bad_credentials", "throttled"}:
                raise failure from None
            return "unproved"
        except BotoCoreError as error:
            raise self._translated(error, f"rehearsing {action}", "ec2") from error
        return _not_rehearsed(action)

    def _ask(self, service: str, method: str, doing: str, **parameters: Any) -> Answer:  # noqa: ANN401 -- the API's own
        client = self.sessions.client(service, self.region, creating=True)
        try:
            answer: Answer = getattr(client, method)(**parameters)
        except (ClientError, BotoCoreError) as error:
            raise self._translated(error, doing, service) from error
        return answer

    def _translated(self, error: Exception, doing: str, service: str) -> DeployError:
        where = f"{doing} in {self.region}"
        return translate(error, self.sessions.table, doing=where, service=service, creating=False)


def _not_rehearsed(action: str) -> Verdict:
    """The endpoint knows no dry runs and has done it. Describing calls do no harm."""
    if action.startswith("ec2:Describe"):
        return "allowed"
    raise DeployError(
        "dry_run_ignored",
        f"rehearsing {action}: the endpoint carried the request out instead of refusing it",
        hint="'tgi-deploy gc' finds what it made; use --no-preflight with this endpoint",
    )


def exit_of(tables: Sequence[Mapping[str, Any]], subnet: str) -> str:
    """What the default route of `subnet` leads to, by the tables of its network; empty for nothing."""
    own = [table for table in tables if _is_for(table, subnet)]
    main = [table for table in tables if any(link.get("Main") for link in table.get("Associations", ()))]
    for table in (own or main)[:1]:
        for route in table.get("Routes", ()):
            if route.get("DestinationCidrBlock", route.get("DestinationIpv6CidrBlock")) in _ANYWHERE:
                return _target(route)
    return ""


def _is_for(table: Mapping[str, Any], subnet: str) -> bool:
    return any(link.get("SubnetId") == subnet for link in table.get("Associations", ()))


def _target(route: Mapping[str, Any]) -> str:
    if route.get("State") == "blackhole":
        return ""
    names = ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId")
    target = next((str(route[name]) for name in names if route.get(name)), "something")
    return f"{_EXITS.get(target.partition('-')[0], 'appliance')} {target}"


def _usage(item: Mapping[str, Any]) -> Usage:
    cores = item.get("CpuOptions") or {}
    vcpus = int(cores.get("CoreCount", 0)) * int(cores.get("ThreadsPerCore", 0))
    return Usage(instance_type=item["InstanceType"], vcpus=vcpus or None)


def _is_like(item: Mapping[str, Any], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(item["InstanceType"], pattern) for pattern in patterns)


def _market(item: Mapping[str, Any]) -> str:
    return "spot" if item.get("InstanceLifecycle") == "spot" else "on-demand"


def _skew_s(answer: Mapping[str, Any], now: datetime) -> float | None:
    """Answers carry whole seconds, and take some themselves: good for half a minute, not for less."""
    sent = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return (now - parsedate_to_datetime(sent)).total_seconds() if sent else None
    except (TypeError, ValueError):
        return None
