"""How much of a quota is left, and the request for more: one text for doctor, preflight and failed launches."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.ec2.survey import attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.values.plan import Candidate

_OF_VOLUMES: Final = ("Volume", "IOPS")
_E = TypeVar("_E", bound=DeployError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Headroom:
    """A quota against a launch, in vCPUs. None is unknown: `why_unknown` is what kept it from being read."""

    code: str
    name: str
    region: str
    needed: int
    limit: int | None = None
    used: int | None = None
    why_unknown: str = ""

    @property
    def short(self) -> bool | None:
        """Whether the launch would be refused; None when that can't be told."""
        if self.limit is None:
            return None
        return self.limit - (self.used or 0) < self.needed

    def text(self) -> str:
        """`quota L-… (Running On-Demand G and VT instances) in us-east-1: limit 0, in use 0, needed 4 vCPUs`."""
        name = f" ({self.name})" if self.name else ""
        return (
            f"quota {self.code}{name} in {self.region}: limit {_told(self.limit)}, in use {_told(self.used)}, "
            f"needed {self.needed} vCPUs"
        )

    @property
    def command(self) -> str:
        """What asks for enough, to be run as it is. Only more than the limit can be asked for."""
        enough = (self.used or 0) + self.needed
        if self.limit is not None and enough <= self.limit:
            enough = self.limit + self.needed
        words = ("aws", "service-quotas", "request-service-quota-increase", "--service-code", "ec2")
        return shlex.join((*words, "--quota-code", self.code, "--desired-value", str(enough), "--region", self.region))

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


def quota_code(candidate: Candidate) -> str | None:
    kind = candidate.offer.instance_type
    return kind.quota_spot if candidate.offer.market == "spot" else kind.quota_on_demand


def counts_vcpus(cause: str) -> bool:
    """Whether the cloud's code is about a quota of machines; the others that a launch meets are of its volume."""
    return not any(word in cause for word in _OF_VOLUMES)


def headroom(survey: Survey | None, candidate: Candidate) -> Headroom | None:
    """As far as it can be read now; None where no quota is known for the machine."""
    code, region = quota_code(candidate), candidate.offer.region
    if survey is None or code is None:
        return headroom_of(survey, candidate, None, None)
    limit = attempt(lambda: survey.inspector(region).quota_vcpus(code))
    return headroom_of(survey, candidate, limit, attempt(lambda: used_vcpus(survey, region, code)))


def headroom_of(
    survey: Survey | None, candidate: Candidate, limit: float | DeployError | None, used: int | DeployError | None
) -> Headroom | None:
    """Answers, or what came instead of them, as one value."""
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
        why_unknown="; ".join(unknown) or "nobody was asked",
    )


def with_rooms(error: _E, rooms: tuple[Headroom, ...]) -> _E:
    """The same error with the quotas that stood in the way: the requests for more in its hint, numbers in its data."""
    if not rooms:
        return error
    asked = "; ".join(f"{room.text()}: {room.command}" for room in rooms)
    hint = f"{asked}; or {error.hint}" if error.hint else asked
    return error.copy(hint=hint, data={**error.problem.data, "quotas": [room.document() for room in rooms]})


def used_vcpus(survey: Survey, region: str, code: str, ending: Sequence[tuple[str, str]] = ()) -> int:
    """What counts for the quota, but for machines of these (type, market) that are `ending` before the launch.

    A machine of which nobody knows the size counts as nothing.
    """
    quota = survey.quotas().get(code)
    if quota is None:
        raise DeployError("quota_unknown", f"which machines count for {code} is not known")
    machines = survey.inspector(region).usage(quota.types, quota.market)
    used = sum(survey.vcpus(item.instance_type) or item.vcpus or 0 for item in machines)
    counted = {item.instance_type for item in machines}
    freed = (survey.vcpus(kind) or 0 for kind, market in ending if market == quota.market and kind in counted)
    return max(0, used - sum(freed))


def _told(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
