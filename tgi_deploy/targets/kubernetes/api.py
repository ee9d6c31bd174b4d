"""The API of one cluster: the few requests that this target makes, with their replies read and errors translated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import quote

from tgi_deploy import bounded_json
from tgi_deploy.reconcile.errors import LostReplyError, ResourceNotFoundError
from tgi_deploy.targets.kubernetes.errors import NOT_FOUND, UnreadableError, refused
from tgi_deploy.targets.kubernetes.manifests import TOOL
from tgi_deploy.targets.reply import Reply, ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.errors import DeployError
    from tgi_deploy.targets.kubernetes.place import Place
    from tgi_deploy.targets.kubernetes.transport import Answer

_T = TypeVar("_T")
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
# The reply for a group of kinds that the cluster lacks, instead of an object.
_NO_SUCH_KIND: Final = b"404 page not found"
_PAGE: Final = 500
_STRICTLY: Final = {"fieldManager": TOOL, "fieldValidation": "Strict"}


class Sender(Protocol):
    """Sends requests; `Transport` in this program."""

    def send(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Answer: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    place: Place
    sender: Sender

    def path(self, group: str, plural: str, name: str = "", *, everywhere: bool = False) -> str:
        """Return a path: `group` is `/api/v1` or `/apis/apps/v1`. `everywhere`: of the whole cluster."""
        within = "" if everywhere else f"/namespaces/{quote(self.place.namespace, safe='')}"
        return f"{group}{within}/{plural}{'/' + quote(name, safe='') if name else ''}"

    def get(self, path: str, doing: str, read: Callable[[Reply], _T]) -> _T | None:
        """Return what `read` makes of an object; None if it does not exist."""
        return self._ask("GET", path, doing, read, missing=True)

    def each(
        self, path: str, doing: str, read: Callable[[Reply], _T], *, query: Mapping[str, str] | None = None
    ) -> tuple[_T, ...]:
        """Return what `read` makes of each object of a list, page by page.

        Raises DeployError `cluster_unreachable` if `read` raises ReplyError or ValueError: read nothing of a reply
        elsewhere.
        """
        found: list[_T] = []
        query = {**(query or {}), "limit": str(_PAGE)}
        while True:
            page = self._ask("GET", path, doing, lambda reply: _page(reply, read), query=query)
            if page is None:
                return tuple(found)
            found += page[0]
            if not page[1]:
                return tuple(found)
            query = {**query, "continue": page[1]}

    def apply(self, path: str, doing: str, manifest: Mapping[str, Any], read: Callable[[Reply], _T]) -> _T:
        """Create or change an object by server-side apply; fields that another manager owns are a conflict.

        Raises ConflictError `fields_conflict`.
        """
        return _present(self._ask("PATCH", path, doing, read, query=_STRICTLY, body=manifest, content_type=_APPLY))

    def merge(self, path: str, doing: str, changes: Mapping[str, Any]) -> None:
        """Change only these fields of an existing object, whichever manager owns them."""
        self._ask("PATCH", path, doing, lambda _reply: None, query=_STRICTLY, body=changes, content_type=_MERGE)

    def rehearse(self, path: str, doing: str, manifest: Mapping[str, Any]) -> None:
        """Have the server check `apply`, admission included, and store nothing."""
        query = {**_STRICTLY, "dryRun": "All"}
        self._ask("PATCH", path, doing, lambda _reply: None, query=query, body=manifest, content_type=_APPLY)

    def create(self, path: str, doing: str, manifest: Mapping[str, Any], read: Callable[[Reply], _T]) -> _T:
        """Create an object. If the name is taken, the server refuses."""
        return _present(self._ask("POST", path, doing, read, query=_STRICTLY, body=manifest))

    def review(self, path: str, doing: str, question: Mapping[str, Any], read: Callable[[Reply], _T]) -> _T:
        """Post a question, which creates nothing, and return what `read` makes of the answer."""
        return _present(self._ask("POST", path, doing, read, body=question))

    def delete(self, path: str, doing: str, *, uid: str) -> None:
        """Delete an object and its dependents. Do nothing if it is gone; never delete a later one of the same name."""
        only = {"preconditions": {"uid": uid}} if uid else {}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", **only}
        self._ask("DELETE", path, doing, lambda _reply: None, body=body, missing=True)

    def text(self, path: str, doing: str, query: Mapping[str, str]) -> str:
        """Return a log; empty if there is none."""
        answer = self.sender.send("GET", path, doing=doing, query=query)
        return answer.body.decode("utf-8", "replace") if answer.succeeded else ""

    def _ask(
        self,
        method: str,
        path: str,
        doing: str,
        read: Callable[[Reply], _T],
        *,
        missing: bool = False,
        **how: Any,  # noqa: ANN401 -- of `send`
    ) -> _T | None:
        answer = self.sender.send(method, path, doing=doing, **how)
        changing = method != "GET"
        if answer.status == NOT_FOUND and answer.body.strip() == _NO_SUCH_KIND:
            if missing:
                return None
            raise ResourceNotFoundError(f"{doing}: the cluster has no such kind of object")
        try:
            reply = Reply.of(bounded_json.parse(answer.body))
            if answer.succeeded:
                return read(reply)
            problem = refused(answer.status, reply, doing=doing, place=self.place, changing=changing)
        except (ValueError, ReplyError) as error:
            raise self._unreadable(answer.status, doing, error, changing=changing) from error
        if missing and answer.status == NOT_FOUND:
            return None
        raise problem

    def _unreadable(self, status: int, doing: str, error: Exception, *, changing: bool) -> DeployError:
        why = f"{doing}: the reply is not that of a Kubernetes API server (status {status}: {error})"
        return LostReplyError(why) if changing else UnreadableError(why)


def _present(found: _T | None) -> _T:
    if found is None:
        raise ReplyError("it is empty")
    return found


def _page(reply: Reply, read: Callable[[Reply], _T]) -> tuple[tuple[_T, ...], str]:
    return tuple(map(read, reply.optional_parts("items"))), reply.optional_part("metadata").optional_text("continue")
