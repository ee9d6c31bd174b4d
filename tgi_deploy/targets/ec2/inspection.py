"""Facts about an account that can be read before a launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# `unproved`: the dry run failed for another reason than permissions.
Verdict = Literal["allowed", "denied", "unproved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The caller's identity. `skew_s`: this computer's clock minus the cloud's; None if unknown."""

    account: str
    arn: str
    skew_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """One running machine as counted by quotas. `vcpus` None: unknown."""

    instance_type: str
    vcpus: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsedLaunch:
    """A launch for a dry run, with everything its permission may depend on."""

    image: str
    instance_type: str
    subnet: str
    network: str
    market: str
    tags: Mapping[str, str] = field(default_factory=dict)
    instance_profile: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountPolicy:
    """A customer-managed policy, in its default version."""

    arn: str
    document: Mapping[str, Any]


class Inspector(Protocol):
    """Reads one region without changing it.

    Methods raise DeployError for failed lookups: `no_credentials`, PermissionDeniedError, ….
    """

    @property
    def region(self) -> str: ...

    def identity(self) -> Identity: ...

    def region_status(self) -> str:
        """Return `opt-in-not-required`, `opted-in`, `not-opted-in`, or empty for an unknown region."""

    def quota(self, code: str) -> float: ...

    def usage(self, patterns: Sequence[str], market: str) -> tuple[Usage, ...]:
        """Return the machines that count toward a quota: pending and running ones of types like `g*`."""

    def free_addresses(self, subnet: str) -> int: ...

    def elastic_addresses(self) -> tuple[int, int]:
        """Return how many Elastic IP addresses the region has, and the quota."""

    def default_route(self, subnet: str, network: str) -> str | None:
        """Return the target of the subnet's default route; empty for none, None if unknown."""

    def policy(self, name: str) -> AccountPolicy | None:
        """Return the account's policy of that name, or None."""

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that `rehearse` supports and that any launch may need."""

    def rehearse(self, action: str, launch: RehearsedLaunch) -> Verdict:
        """Check by dry run whether `action` is allowed."""
