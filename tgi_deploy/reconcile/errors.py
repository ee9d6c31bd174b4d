"""Errors of resource operations, named by how the caller should react."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import ConflictError, DeployError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.resource import Found


class NoCapacityError(DeployError):
    """This pool has no capacity now: try the next zone, then the next candidate."""

    refused = True

    def __init__(self, message: str, *, pool: str = "", cause: str = "") -> None:
        super().__init__("no_capacity", message, hint="try again in a few minutes, or allow more regions or markets")
        self.pool = pool
        self.cause = cause


class QuotaError(DeployError):
    """The account's quota for this instance family is used up: other zones can't help."""

    refused = True

    def __init__(self, message: str, *, cause: str = "", hint: str | None = None) -> None:
        super().__init__("quota_exceeded", message, hint=hint)
        self.cause = cause


class ThrottledError(DeployError):
    """Throttled, or a transient failure of the service: wait, then repeat the same request.

    `unsure`: the request may have taken effect anyway.
    """

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__("throttled", message, hint="run the command again in a minute; it resumes where it stopped")
        self.unsure = unsure


class LostReplyError(DeployError):
    """The request may or may not have taken effect: look before repeating it."""

    def __init__(self, message: str) -> None:
        super().__init__("lost_reply", message, hint="run the same command again; it checks what exists first")


class ExistsError(LostReplyError):
    """The unique name is taken, by an earlier request of ours whose reply was lost, or by someone else."""


class ClaimedError(ConflictError):
    """The name belongs to someone else's deployment, which must not be changed."""

    refused = True

    def __init__(self, message: str, *, hint: str, data: Mapping[str, str]) -> None:
        super().__init__("name_taken", message, hint=hint, data={"claim": dict(data)})


class NotYetError(DeployError):
    """A new resource is not visible everywhere yet: wait briefly."""

    def __init__(self, message: str) -> None:
        super().__init__("not_visible_yet", message, hint="run the same command again; it resumes where it stopped")


class InUseError(DeployError):
    """Another resource still uses this one: wait until the other is gone."""

    def __init__(self, message: str) -> None:
        super().__init__("in_use", message)


class ResourceNotFoundError(DeployError):
    """The resource does not exist, or no longer exists."""

    def __init__(self, message: str) -> None:
        super().__init__("resource_missing", message)


class StaleTokenError(DeployError):
    """The request token belongs to an earlier request, which created `ended`: use a new token."""

    def __init__(self, message: str, *, ended: Found | None = None) -> None:
        super().__init__("stale_token", message, hint="run the same command again")
        self.ended = ended


class TokenMismatchError(StaleTokenError):
    """The token belongs to an earlier request with different parameters, which may have taken effect: look first."""


class PermissionDeniedError(DeployError):
    """The caller lacks the permission for `action`."""

    refused = True

    def __init__(self, message: str, *, action: str) -> None:
        super().__init__(
            "permission_denied",
            message,
            hint=f"allow the action '{action}', then try again; 'tgi-deploy doctor --policy' prints the policy",
        )
        self.action = action


class BadRequestError(DeployError):
    """The service rejects the request itself: repeating it can't help."""

    refused = True

    def __init__(self, message: str, *, code: str = "request_refused", hint: str | None = None) -> None:
        super().__init__(code, message, hint=hint)
