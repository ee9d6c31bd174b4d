"""Quota headroom and the command to request more, for doctor, preflight and failed launches."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tgi_deploy.catalog.quotas import ADDRESSES
from tgi_deploy.errors import DeployError
from tgi_deploy.targets.ec2.survey import try_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.values.plan import Candidate

_OF_VOLUMES: Final = ("Volume", "IOPS")
_E = TypeVar("_E", bound=DeployError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Headroom:
    """A quota compared with a launch, in vCPUs. None is unknown, for the reason `why_unknown`."""

    code: str
    name: str
    region: str
    needed: int
    limit: int | None = None
    used: int | None = None
    why_unknown: str = ""

    @property
    def short(self) -> bool | None:
        """Whether the launch would exceed the quota; None if unknown."""
        if self.limit is None:
            return None
        return self.limit - (self.used or 0) < self.needed

    def text(self) -> str:
        """`quota L-… (Running On-Demand G and VT instances) in us-east-1: limit 0, in use 0, needed 4 vCPUs`."""
        name = f" ({self.name})" if self.name else ""
        return (
            f"quota {self.code}{name} in {self.region}: limit {_number(self.limit)}, in use {_number(self.used)}, "
            f"needed {self.needed} vCPUs"
        )

    @property
    def command(self) -> str:
        """The command that requests a sufficient quota, which must exceed the current limit."""
        enough = (self.used or 0) + self.needed
        if self.limit is not None and enough <= self.limit:
            enough = self.limit + self.needed
        return _increase(self.code, enough, self.region)

    def document(self) -> dict[str, Any]:
        return {
            "quota_code": self.code,
            "quota_name": self.name or None,
            "region": self.region,
            "limit_vcpus": self.limit,
            "used_vcpus": self.used,
            "needed_vcpus": self.needed,
            "command": self.command,
        }


def _increase(code: str, enough: int, region: str) -> str:
    words = ("aws", "service-quotas", "request-service-quota-increase", "--service-code", "ec2")
    return shlex.join((*words, "--quota-code", code, "--desired-value", str(enough), "--region", region))


def more_addresses(region: str, used: int) -> str:
    """Return the remedy for a region whose quota of Elastic IP addresses is `used` up."""
    return f"release one that is not needed, or request more: {_increase(ADDRESSES, used + 1, region)}"


def quota_code(candidate: Candidate) -> str | None:
    kind = candidate.offer.instance_type
    return kind.quota_spot if candidate.offer.market == "spot" else kind.quota_on_demand


def counts_vcpus(cause: str) -> bool:
    """Return whether the error code concerns an instance quota; other quota errors of a launch concern volumes."""
    return not any(word in cause for word in _OF_VOLUMES)


def headroom(survey: Survey | None, candidate: Candidate) -> Headroom | None:
    """Return the headroom as far as it can be read; None if the machine's quota is unknown."""
    code, region = quota_code(candidate), candidate.offer.region
    if survey is None or code is None:
        return compute_headroom(survey, candidate, None, None)
    limit = try_call(lambda: survey.inspector(region).quota(code))
    return compute_headroom(survey, candidate, limit, try_call(lambda: used_vcpus(survey, region, code)))


def compute_headroom(
    survey: Survey | None, candidate: Candidate, limit: float | DeployError | None, used: int | DeployError | None
) -> Headroom | None:
    """Combine answers, or the errors instead of them, into one value."""
    code = quota_code(candidate)
    if code is None:
        return None
    quota = survey.quotas().get(code) if survey is not None else None
    unknown = [item.message for item in (limit, used) if isinstance(item, DeployError)]
    return Headroom(
        code=code,
        name=quota.name if quota is not None else "",
        region=candidate.offer.region,
        needed=candidate.offer.instance_type.vcpus,
        limit=None if limit is None or isinstance(limit, DeployError) else math.floor(limit),
        used=None if isinstance(used, DeployError) else used,
        why_unknown="; ".join(unknown) or "not read",
    )


def with_headrooms(error: _E, rooms: tuple[Headroom, ...]) -> _E:
    """Add the exceeded quotas to the error: commands to raise them in its hint, numbers in its data."""
    if not rooms:
        return error
    asked = "; ".join(f"{room.text()}: {room.command}" for room in rooms)
    hint = f"{asked}; or {error.hint}" if error.hint else asked
    return error.copy(hint=hint, data={**error.problem.data, "quotas": [room.document() for room in rooms]})


def used_vcpus(survey: Survey, region: str, code: str, ending: Sequence[tuple[str, str]] = ()) -> int:
    """Return the used vCPUs, without the machines of these (type, market) that are `ending` before the launch.

    A machine of unknown size counts as 0.
    """
    quota = survey.quotas().get(code)
    if quota is None:
        raise DeployError("not_checked", f"it is unknown which machines count toward {code}")
    machines = survey.inspector(region).usage(quota.types, quota.market)
    used = sum(survey.vcpus(item.instance_type) or item.vcpus or 0 for item in machines)
    counted = {item.instance_type for item in machines}
    freed = (survey.vcpus(kind) or 0 for kind, market in ending if market == quota.market and kind in counted)
    return max(0, used - sum(freed))


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
