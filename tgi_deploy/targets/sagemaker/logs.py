"""The containers' output, from CloudWatch Logs: one stream per machine and start.

A group outlives its endpoint, and a later endpoint of the same name writes to the same group: only streams that are
newer than a revision's configuration belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.aws.api import each

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply

SERVICE: Final = "logs"
_STARTING: Final = "[tgi-deploy] phase=starting-engine"
_MOST_STREAMS: Final = 50
# The end of a long log is what matters; a reply has at most 1 MB or 10,000 lines.
_MOST_LINES: Final = 5000
_MOST_PAGES: Final = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    name: str
    created_ms: int


def streams(api: Api, group: str, since: str) -> tuple[Stream, ...]:
    """Return the streams that were created after `since` (ISO 8601; empty: all), oldest first."""

    def read(item: Reply) -> Stream:
        return Stream(name=item.text("logStreamName"), created_ms=item.integer("creationTime"))

    listed = api.list(
        "describe_log_streams", "looking for the containers' logs", each("logStreams", read), service=SERVICE,
        logGroupName=group, orderBy="LastEventTime", descending=True, PaginationConfig={"MaxItems": _MOST_STREAMS},
    )  # fmt: skip
    least_ms = datetime.fromisoformat(since).timestamp() * 1000 if since else 0
    return tuple(
        sorted((item for item in listed if item.created_ms >= least_ms), key=lambda item: (item.created_ms, item.name))
    )


def output(api: Api, group: str, stream: Stream) -> str:
    """Return the end of a stream's text, a line for each event."""
    lines: list[str] = []
    token: str | None = None
    for _ in range(_MOST_PAGES):
        found, following = _page(api, group, stream, token)
        lines[:0] = found
        if following == token or len(lines) >= _MOST_LINES:
            break
        token = following
    return "".join(f"{line}\n" for line in (_STARTING, *lines[-_MOST_LINES:]))


def _page(api: Api, group: str, stream: Stream, token: str | None) -> tuple[list[str], str]:
    """Return a page of lines, the last one first, and the token of the one before."""

    def read(reply: Reply) -> tuple[list[str], str]:
        events = reply.optional_parts("events")
        return [item.optional_text("message").rstrip("\n") for item in events], reply.text("nextBackwardToken")

    more = {} if token is None else {"nextToken": token}
    return api.ask("get_log_events", "reading a container's log", read, service=SERVICE, logGroupName=group,
                   logStreamName=stream.name, startFromHead=False, **more)  # fmt: skip


def outputs(api: Api, group: str, found: Iterable[Stream]) -> Mapping[str, str]:
    """Return the output of each machine by its id; if it started several times, that of the last start."""
    latest = {stream.name.rpartition("/")[2].partition("-data")[0]: stream for stream in found}
    return {machine: output(api, group, stream) for machine, stream in latest.items()}
