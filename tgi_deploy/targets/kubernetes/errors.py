"""Translates errors of an API server, by its status codes and the messages in `profiles/kubernetes/errors.json`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.reconcile.errors import BadRequestError, LostReplyError, ResourceNotFoundError, ThrottledError
from tgi_deploy.targets.reply import Reply, ReplyError
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from tgi_deploy.targets.kubernetes.place import Place

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
FORBIDDEN_CODE: Final = "cluster_forbidden"
NOT_FOUND: Final = 404
CONFLICT: Final = 409
INVALID: Final = 422
TOO_MANY: Final = 429
_SERVER: Final = 500
_FIELD_MANAGER: Final = "FieldManagerConflict"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    code: str
    pattern: re.Pattern[str]
    hint: str


@cache
def _rows() -> tuple[_Row, ...]:
    rows = Store.behind().json("kubernetes/errors.json")["refusals"]
    return tuple(
        _Row(code=row["code"], pattern=re.compile(row["match"], re.IGNORECASE), hint=row["hint"]) for row in rows
    )


def refused(status: int, reply: Reply, *, doing: str, place: Place, changing: bool) -> DeployError:
    """Return the error for a reply with an error status. `changing`: the request was to change something."""
    error = _refused(status, reply, doing=doing, place=place, changing=changing)
    return error.copy(hint=place.problem(error.problem).hint)


def _refused(status: int, reply: Reply, *, doing: str, place: Place, changing: bool) -> DeployError:
    said = one_line(reply.optional_text("message") or f"HTTP status {status}")
    message = f"{doing} in {place.namespace}: {said}"
    if status == CONFLICT and (held := _held_by_others(reply)):
        return ConflictError(
            "fields_conflict",
            f"{doing} in {place.namespace}: another field manager has changed it: {held}",
            hint="'kubectl get -o yaml --show-managed-fields' shows who; undo that change, or run "
            "'tgi-deploy down NAME' and then the same 'up'",
        )
    known = known_refusal(said)
    if known is not None:
        code, hint = known
        kind = ConflictError if code == "name_taken" else ClusterRefusedError
        return kind(code, message, hint=hint)
    return _by_status(status, message, said, changing=changing)


def known_refusal(said: str) -> tuple[str, str] | None:
    """Return the code and the remedy of a refusal of the cluster's own rules."""
    return next(((row.code, row.hint) for row in _rows() if row.pattern.search(said)), None)


def _by_status(status: int, message: str, said: str, *, changing: bool) -> DeployError:
    if status == UNAUTHORIZED:
        return InputError(
            "cluster_login",
            f"the cluster does not accept the credentials of this context ({said})",
            hint="log in again; 'kubectl auth whoami' shows which user the cluster sees",
        )
    if status == FORBIDDEN:
        hint = "'kubectl auth can-i --list' shows what you may do; docs/kubernetes.md lists what is needed"
        return ClusterRefusedError(FORBIDDEN_CODE, message, hint=hint)
    if status == NOT_FOUND:
        return ResourceNotFoundError(message)
    if status == TOO_MANY or status >= _SERVER:
        return ThrottledError(message, unsure=changing and status != TOO_MANY)
    return BadRequestError(message, hint="'tgi-deploy status NAME' shows what exists")


class ClusterRefusedError(BadRequestError):
    """The cluster rejects the request, for a reason with a code and a remedy."""

    def __init__(self, code: str, message: str, *, hint: str | None) -> None:
        DeployError.__init__(self, code, message, hint=hint)


class UnreadableError(DeployError):
    """A reply, or an object in it, is not one that the API has. Nothing was to be changed."""

    def __init__(self, message: str) -> None:
        super().__init__("cluster_unreachable", message, hint="check the kubeconfig and any proxy, then try again")


def _held_by_others(reply: Reply) -> str:
    """Return who holds which fields, in words; empty if that is not the reason."""
    try:
        causes = reply.optional_part("details").optional_parts("causes")
        held = [
            f"{cause.optional_text('field')}, {cause.optional_text('message')}"
            for cause in causes
            if cause.optional_text("reason") == _FIELD_MANAGER
        ]
    except ReplyError:
        return ""
    return one_line("; ".join(held))


def unreachable(error: Exception, *, doing: str, server: str, changing: bool, sent: bool) -> DeployError:
    """Return the error for a connection that failed. `sent`: the request may have arrived."""
    said = one_line(str(error) or type(error).__name__)
    if changing and sent:
        return LostReplyError(f"{doing}: the reply was lost ({said})")
    return DeployError(
        "cluster_unreachable",
        f"{doing}: no Kubernetes API server answers at {server} ({said})",
        hint="'kubectl cluster-info' asks the same server; check the VPN, the kubeconfig and its context",
    )
