"""What can be looked up before anything is made: facts only; what they mean is for the use cases to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# `unproved`: the cloud got past the permission to something else that is wrong with a rehearsed request.
Verdict = Literal["allowed", "denied", "unproved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who the credentials belong to. `skew_s`: this computer's clock minus the cloud's; None when it did not say."""

    account: str
    arn: str
    skew_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """One running machine as quotas count it. `vcpus` None: the cloud did not say."""

    instance_type: str
    vcpus: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsedLaunch:
    """A launch to be refused at the last moment: what the permission to launch may depend on."""

    image: str
    instance_type: str
    subnet: str
    network: str
    market: str
    tags: Mapping[str, str] = field(default_factory=dict)
    instance_profile: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountPolicy:
    """A policy of the account's own, as it is in force."""

    arn: str
    document: Mapping[str, Any]


class Inspector(Protocol):
    """One region of a cloud, looked at without changing it.

    Methods raise DeployError for what can't be looked up: `no_credentials`, PermissionDeniedError, ….
    """

    @property
    def region(self) -> str: ...

    def identity(self) -> Identity: ...

    def region_status(self) -> str:
        """`opt-in-not-required`, `opted-in`, `not-opted-in`, or empty for a region that does not exist."""

    def quota_vcpus(self, code: str) -> float: ...

    def usage(self, patterns: Sequence[str], market: str) -> tuple[Usage, ...]:
        """Machines that count for a quota: pending and running ones of types like `g*`."""

    def free_addresses(self, subnet: str) -> int: ...

    def way_out(self, subnet: str, network: str) -> str | None:
        """What the subnet's default route leads to, empty for nothing; None where that can't be known."""

    def policy(self, name: str) -> AccountPolicy | None:
        """Return the account's policy of that name, None where there is none."""

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that `rehearse` knows."""

    def rehearse(self, action: str, launch: RehearsedLaunch) -> Verdict:
        """Ask for `action` in a way that only tells whether it would be allowed."""
