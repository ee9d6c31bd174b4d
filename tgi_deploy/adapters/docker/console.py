"""A container's log with the ends of its attempts put where they happened, as a machine's console has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.adapters.docker.container import Containers
from tgi_deploy.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tgi_deploy.adapters.docker.api import Api

_LINES: Final = 5000
_SECRET: Final = re.compile(r"(?:TOKEN|KEY|SECRET|PASSWORD)$")
# What is shorter stands in any text.
_SHORTEST: Final = 4
_NANO: Final = 10**9
_ENDED: Final = frozenset({"exited", "dead"})
_EXIT_LINE: Final = "[tgi-deploy] phase=engine-exited code={}"


def console_of(api: Api, container_id: str) -> str:
    """The last lines it has written, every failed attempt's end among them. Empty when it is gone."""
    item = Containers(api).inspect(container_id)
    if item is None:
        return ""
    raw = api.look(
        "reading the container's log", lambda client: client.logs(container_id, timestamps=True, tail=_LINES)
    )
    lines = [_split(line) for line in (raw or b"").decode("utf-8", "replace").splitlines()]
    text = "".join(f"{text}\n" for _, text in sorted([*lines, *_ends(api, item)], key=lambda line: line[0]))
    return _without_secrets(text, (item.get("Config") or {}).get("Env") or ())


def _without_secrets(text: str, variables: Iterable[str]) -> str:
    """Engines log their own API key: nothing filters a container's log before it comes here, as machines do."""
    for variable in variables:
        name, _, value = variable.partition("=")
        if _SECRET.search(name) and len(value) >= _SHORTEST:
            text = Secret(value).scrub(text)
    return text


def _split(line: str) -> tuple[str, str]:
    """Docker puts a moment of fixed width before each line."""
    at, _, text = line.partition(" ")
    return at, text


def _ends(api: Api, item: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When each attempt ended and with what, from the host's events; it keeps the latest only."""
    state = item["State"]
    ended = state["Status"] in _ENDED
    if not ended and not item.get("RestartCount"):
        return []
    found = [(_moment(event["timeNano"]), _code_of(event)) for event in _deaths(api, item)]
    if ended and not found:
        found = [(str(state.get("FinishedAt", "")).replace("Z", "9Z"), str(state.get("ExitCode", "")))]
    return [(at, _EXIT_LINE.format(code)) for at, code in found]


def _deaths(api: Api, item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Up to the last end: asking for later ones would wait for them."""
    last = int(datetime.fromisoformat(str(item["State"]["FinishedAt"])).timestamp())
    began = int(datetime.fromisoformat(str(item["Created"])).timestamp())
    filters = {"container": item["Id"], "event": "die"}
    events = api.ask(
        "reading the container's history",
        lambda client: list(client.events(since=began, until=last + 1, filters=filters, decode=True)),
    )
    yield from events


def _code_of(event: Mapping[str, Any]) -> str:
    return str((event.get("Actor") or {}).get("Attributes", {}).get("exitCode", ""))


def _moment(nanoseconds: int) -> str:
    """As Docker writes the moments of log lines, so that they sort together."""
    seconds, rest = divmod(nanoseconds, _NANO)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
