"""A container's log with its exits inserted where they happened, as on a machine's console."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tgi_deploy.secret import Secret
from tgi_deploy.targets.docker.container import Containers
from tgi_deploy.targets.reply import Reply, ReplyError, replies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tgi_deploy.targets.docker.api import Api

_LINES: Final = 5000
_SECRET: Final = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD)$")
# Shorter values occur in any text.
_SHORTEST: Final = 4
_NANO: Final = 10**9
_ENDED: Final = frozenset({"exited", "dead"})
_EXIT_LINE: Final = "[tgi-deploy] phase=engine-exited code={}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Container:
    """The fields needed to read the log. `finished`: when the latest run ended, in Docker's format."""

    id: str
    ended: bool
    restarts: int
    finished: str
    code: int
    history: tuple[int, int]
    variables: tuple[str, ...]

    @classmethod
    def of(cls, item: Reply) -> _Container:
        state, settings = item.part("State"), item.optional_part("Config")
        ended = state.text("Status") in _ENDED
        failed = ended or item.integer("RestartCount") > 0
        return cls(
            id=item.text("Id"),
            ended=ended,
            restarts=item.integer("RestartCount"),
            finished=state.optional_text("FinishedAt"),
            code=state.integer("ExitCode"),
            history=(_second(item, "Created"), _second(state, "FinishedAt")) if failed else (0, 0),
            variables=settings.texts("Env") if settings.has("Env") else (),
        )


def console_of(api: Api, container_id: str) -> str:
    """Return the last lines of its log with all exits; empty if it is gone."""
    container = Containers(api).inspect(container_id, _Container.of)
    if container is None:
        return ""
    written = log_of(api, container_id, _LINES).decode("utf-8", "replace")
    lines = [_split(line) for line in written.splitlines()]
    text = "".join(f"{text}\n" for _, text in sorted([*lines, *_ends(api, container)], key=lambda line: line[0]))
    return _without_secrets(text, container.variables)


def log_of(api: Api, container_id: str, lines: int) -> bytes:
    """Return the last lines of its log, each with its timestamp; none if it is gone."""
    raw = api.look(
        "reading the container's log",
        lambda client: client.logs(container_id, timestamps=True, tail=lines),
        _bytes,
    )
    return raw or b""


def _bytes(raw: object) -> bytes:
    if not isinstance(raw, bytes):
        raise ReplyError("the log is not text")
    return raw


def _second(item: Reply, member: str) -> int:
    return int(item.time(member).timestamp())


def _without_secrets(text: str, variables: Iterable[str]) -> str:
    """Remove secrets: engines log their API key, and unlike a machine's console, a container's log is unfiltered."""
    for variable in variables:
        name, _, value = variable.partition("=")
        if _SECRET.search(name) and len(value) >= _SHORTEST:
            text = Secret(value).scrub(text)
    return text


def _split(line: str) -> tuple[str, str]:
    """Split off Docker's fixed-width timestamp."""
    at, _, text = line.partition(" ")
    return at, text


def _ends(api: Api, container: _Container) -> list[tuple[str, str]]:
    """Return when each run ended and its exit code, from the host's events; it keeps only the latest."""
    if not container.ended and not container.restarts:
        return []
    found = _deaths(api, container)
    if container.ended and not found:
        found = [(container.finished.replace("Z", "9Z"), str(container.code))]
    return [(at, _EXIT_LINE.format(code)) for at, code in found]


def _deaths(api: Api, container: _Container) -> list[tuple[str, str]]:
    """Return the exits up to the last one: a request for later events would block."""
    began, last = container.history
    filters = {"container": container.id, "event": "die"}
    return api.ask(
        "reading the container's history",
        lambda client: list(client.events(since=began, until=last + 1, filters=filters, decode=True)),
        lambda events: [(_moment(event.integer("timeNano")), _code_of(event)) for event in replies(events)],
    )


def _code_of(event: Reply) -> str:
    return event.optional_part("Actor").optional_part("Attributes").optional_text("exitCode")


def _moment(nanoseconds: int) -> str:
    """Return a time in the format of Docker's log timestamps, so that both sort together."""
    seconds, rest = divmod(nanoseconds, _NANO)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
