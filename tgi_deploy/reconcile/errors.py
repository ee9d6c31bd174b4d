"""Failures of the acting half, named by what the caller should do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import ConflictError, DeployError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.resource import Found


class NoCapacityError(DeployError):
    """Nothing free in this pool now: go to the next zone, then to the next candidate."""

    refused = True

    def __init__(self, message: str, *, pool: str = "", cause: str = "") -> None:
        super().__init__("no_capacity", message, hint="try again in some minutes, or allow more regions or markets")
        self.pool = pool
        self.cause = cause


class QuotaError(DeployError):
    """The account may not have more of this family here: other zones can't help."""

    refused = True

    def __init__(self, message: str, *, cause: str = "", hint: str | None = None) -> None:
        super().__init__("quota_exceeded", message, hint=hint)
        self.cause = cause


class ThrottledError(DeployError):
    """Too fast, or a passing failure of the service: wait, then send the same request again.

    `unsure`: the request may have taken effect all the same.
    """

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__("throttled", message, hint="run the same command again in a minute: it goes on from there")
        self.unsure = unsure


class LostReplyError(DeployError):
    """The request may or may not have taken effect: look before asking again."""

    def __init__(self, message: str) -> None:
        super().__init__("lost_reply", message, hint="run the same command again: it finds out what exists")


class ExistsError(LostReplyError):
    """The unique name is taken: by an earlier request of ours whose reply got lost, or by somebody else."""


class ClaimedError(ConflictError):
    """The deployment's name belongs to somebody else's deployment, of which nothing may be touched."""

    refused = True

    def __init__(self, message: str, *, hint: str, data: Mapping[str, str]) -> None:
        super().__init__("name_taken", message, hint=hint, data={"claim": dict(data)})


class NotYetError(DeployError):
    """Something just made is not visible everywhere yet: a short wait helps."""

    def __init__(self, message: str) -> None:
        super().__init__("not_visible_yet", message, hint="run the same command again: it goes on from there")


class InUseError(DeployError):
    """Something else still holds it: wait until that is gone."""

    def __init__(self, message: str) -> None:
        super().__init__("in_use", message)


class GoneError(DeployError):
    """It does not exist (any more)."""

    def __init__(self, message: str) -> None:
        super().__init__("gone", message)


class StaleTokenError(DeployError):
    """The request token belongs to an earlier request, which has made `ended`: take a new one."""

    def __init__(self, message: str, *, ended: Found | None = None) -> None:
        super().__init__("stale_token", message, hint="run the same command again")
        self.ended = ended


class TokenMismatchError(StaleTokenError):
    """The token belongs to an earlier request with other parameters, which may have taken effect: look first."""


class PermissionDeniedError(DeployError):
    """The caller lacks the permission for `action`."""

    refused = True

    def __init__(self, message: str, *, action: str) -> None:
        super().__init__(
            "permission_denied",
            message,
            hint=f"allow the action '{action}', then try again; 'tgi-deploy doctor --policy' prints what is needed",
        )
        self.action = action


class BadRequestError(DeployError):
    """The service refuses the request itself: trying again can't help."""

    refused = True

    def __init__(self, message: str, *, code: str = "request_refused", hint: str | None = None) -> None:
        super().__init__(code, message, hint=hint)
