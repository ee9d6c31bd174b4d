"""Reads a region's state before a launch: identity, quotas, routes, and permissions by dry run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import ClientError

from tgi_deploy.catalog.quotas import ADDRESSES
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import PermissionDeniedError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import acknowledged, each, read_pages, read_reply
from tgi_deploy.targets.aws.errors import refusal_of, translated
from tgi_deploy.targets.aws.session import is_loopback
from tgi_deploy.targets.ec2.dry_run import OF_STATIC_IP, REQUESTS, request_of
from tgi_deploy.targets.ec2.inspection import AccountPolicy, Identity, Usage
from tgi_deploy.targets.reply import ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.targets.aws.session import SessionFactory
    from tgi_deploy.targets.ec2.inspection import RehearsedLaunch, Verdict
    from tgi_deploy.targets.reply import Reply

_T = TypeVar("_T")
_COUNTED: Final = ("pending", "running")
_PAGE: Final = 1000
_ALLOWED: Final = "DryRunOperation"
# Errors that prove nothing about this request.
_PROVES_NOTHING: Final = frozenset({"bad_credentials", "throttled", "cloud_unreachable"})
_ANYWHERE: Final = ("0.0.0.0/0", "::/0")
# Names of route targets, by the prefix of their ids.
_EXITS: Final = {"igw": "internet gateway", "nat": "NAT gateway", "tgw": "transit gateway", "vgw": "VPN gateway"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ec2Inspector:
    """Never waits: the result of a failed lookup is unknown. After an unreadable reply, a request is repeated once."""

    region: str
    sessions: SessionFactory
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def warm_up(self) -> None:
        """Create the clients now, because creating boto3 clients is not thread-safe."""
        for service in ("ec2", "sts", "service-quotas"):
            self.sessions.client(service, self.region, creating=True)

    def identity(self) -> Identity:
        def read(reply: Reply) -> Identity:
            return Identity(account=reply.text("Account"), arn=reply.text("Arn"), skew_s=_skew_s(reply, self.now()))

        return self._ask("sts", "get_caller_identity", "reading your identity", read)

    def region_status(self) -> str:
        parameters = {"Filters": [{"Name": "region-name", "Values": [self.region]}], "AllRegions": True}
        read = each("Regions", lambda region: region.optional_text("OptInStatus") or "opt-in-not-required")
        regions = self._ask("ec2", "describe_regions", "reading the region's status", read, **parameters)
        return regions[0] if regions else ""

    def quota(self, code: str) -> float:
        return self._ask(
            "service-quotas",
            "get_service_quota",
            f"reading the quota {code}",
            lambda reply: float(reply.part("Quota").number("Value")),
            ServiceCode="ec2",
            QuotaCode=code,
        )

    def usage(self, patterns: Sequence[str], market: str) -> tuple[Usage, ...]:
        """Read the usage, a thousand machines per page. Types are filtered here: not every endpoint supports `g*`."""
        filters = [{"Name": "instance-state-name", "Values": list(_COUNTED)}]
        parameters = {"Filters": filters, "PaginationConfig": {"PageSize": _PAGE}}

        def read(page: Reply) -> list[Usage]:
            machines = [item for group in page.parts("Reservations") for item in group.parts("Instances")]
            return [_usage(item) for item in machines if _market(item) == market and _is_like(item, patterns)]

        client = self.sessions.client("ec2", self.region, creating=True)
        return self._twice(
            "ec2", "counting running machines", lambda: read_pages(client, "describe_instances", parameters, read)
        )

    def free_addresses(self, subnet: str) -> int:
        def read(reply: Reply) -> int:
            return int(reply.first("Subnets").number("AvailableIpAddressCount"))

        return self._ask("ec2", "describe_subnets", "reading the subnet", read, SubnetIds=[subnet])

    def elastic_addresses(self) -> tuple[int, int]:
        read = each("Addresses", lambda _item: None)
        used = self._ask("ec2", "describe_addresses", "counting Elastic IP addresses", read)
        return len(used), int(self.quota(ADDRESSES))

    def default_route(self, subnet: str, network: str) -> str | None:
        """Return None for a local endpoint, where an EC2 emulator routes nothing."""
        if self.sessions.endpoint_url is not None and is_loopback(self.sessions.endpoint_url):
            return None
        filters = [{"Name": "vpc-id", "Values": [network]}]
        return self._ask(
            "ec2",
            "describe_route_tables",
            "reading the routes",
            lambda reply: exit_of(reply.parts("RouteTables"), subnet),
            Filters=filters,
        )

    def policy(self, name: str) -> AccountPolicy | None:
        """Read a policy. Its client is created here, not by `warm_up`, because few launches need it."""
        doing, who = f"reading the policy {name}", self.identity()
        arn = f"arn:{who.arn.split(':')[1]}:iam::{who.account}:policy/{name}"
        try:
            version = self._ask(
                "iam", "get_policy", doing, lambda reply: reply.part("Policy").text("DefaultVersionId"), PolicyArn=arn
            )
            document = self._ask(
                "iam",
                "get_policy_version",
                doing,
                lambda reply: reply.part("PolicyVersion").part("Document").content,
                PolicyArn=arn,
                VersionId=version,
            )
        except ResourceNotFoundError:
            return None
        return AccountPolicy(arn=arn, document=document)

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(name for name in REQUESTS if name not in OF_STATIC_IP)

    def rehearse(self, action: str, launch: RehearsedLaunch) -> Verdict:
        client = self.sessions.client("ec2", self.region, creating=True)
        try:
            return self._twice("ec2", f"rehearsing {action}", lambda: _rehearsed(client, action, launch))
        except PermissionDeniedError:
            return "denied"
        except DeployError as error:
            if isinstance(error.__cause__, ClientError) and error.code not in _PROVES_NOTHING:
                return "unproved"
            raise

    def _ask(
        self,
        service: str,
        method: str,
        doing: str,
        read: Callable[[Reply], _T],
        **parameters: Any,  # noqa: ANN401 -- the API's own
    ) -> _T:
        client = self.sessions.client(service, self.region, creating=True)
        return self._twice(service, doing, lambda: read_reply(client, method, parameters, read))

    def _twice(self, service: str, doing: str, request: Callable[[], _T]) -> _T:
        with translated(self.sessions.table, doing=f"{doing} in {self.region}", service=service):
            try:
                return request()
            except ReplyError:
                return request()


def _rehearsed(client: Any, action: str, launch: RehearsedLaunch) -> Verdict:  # noqa: ANN401 -- boto3 makes clients at run time
    method, parameters = request_of(action, launch)
    try:
        read_reply(client, method, {"DryRun": True, **parameters}, acknowledged)
    except ClientError as error:
        if refusal_of(error).code == _ALLOWED:
            return "allowed"
        raise
    return _not_rehearsed(action)


def _not_rehearsed(action: str) -> Verdict:
    """Return the verdict of an endpoint that ignored DryRun. Only describing calls are harmless."""
    if action.startswith("ec2:Describe"):
        return "allowed"
    raise DeployError(
        "dry_run_ignored",
        f"dry run of {action}: the endpoint carried the request out",
        hint="'tgi-deploy gc' finds what it created; use --no-preflight with this endpoint",
    )


def exit_of(tables: Sequence[Reply], subnet: str) -> str:
    """Return the target of the subnet's default route, by its network's route tables; empty for none."""
    own = [table for table in tables if _is_for(table, subnet)]
    main = [table for table in tables if any(link.flag("Main") for link in table.optional_parts("Associations"))]
    for table in (own or main)[:1]:
        for route in table.optional_parts("Routes"):
            if _destination(route) in _ANYWHERE:
                return _target(route)
    return ""


def _is_for(table: Reply, subnet: str) -> bool:
    return any(link.optional_text("SubnetId") == subnet for link in table.optional_parts("Associations"))


def _destination(route: Reply) -> str:
    return route.optional_text("DestinationCidrBlock") or route.optional_text("DestinationIpv6CidrBlock")


def _target(route: Reply) -> str:
    if route.optional_text("State") == "blackhole":
        return ""
    names = ("GatewayId", "NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId")
    target = next((text for name in names if (text := route.optional_text(name))), "something")
    return f"{_EXITS.get(target.partition('-')[0], 'appliance')} {target}"


def _usage(item: Reply) -> Usage:
    cores = item.optional_part("CpuOptions")
    vcpus = cores.integer("CoreCount") * cores.integer("ThreadsPerCore")
    return Usage(instance_type=item.text("InstanceType"), vcpus=vcpus or None)


def _is_like(item: Reply, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(item.text("InstanceType"), pattern) for pattern in patterns)


def _market(item: Reply) -> str:
    return "spot" if item.optional_text("InstanceLifecycle") == "spot" else "on-demand"


def _skew_s(reply: Reply, now: datetime) -> float | None:
    """Return the clock skew. Replies have whole seconds and take some time: accurate to half a minute."""
    headers = reply.optional_part("ResponseMetadata").optional_part("HTTPHeaders")
    sent = headers.optional_text("date")
    try:
        return (now - parsedate_to_datetime(sent)).total_seconds() if sent else None
    except (TypeError, ValueError):
        return None
