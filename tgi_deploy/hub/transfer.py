"""One GET from the hub, bounded in bytes, total time and redirects.

huggingface_hub provides the HTTP library (requests before 1.0, httpx since) with its proxies, certificates and offline
switch. Its own calls are not used for reading: both libraries time out only on silence, and read every response, error
and redirect to the end, however long.
"""

from __future__ import annotations

import http.client
import importlib
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from huggingface_hub import get_session

from tgi_deploy.futures import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CALLS: Final = logging.getLogger("tgi_deploy.calls")
_SILENCE_S: Final = 20.0
_PIECE_BYTES: Final = 64 * 1024
_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ENCODING: Final = "content-encoding"
_PLAIN: Final = frozenset({"", "identity"})
_HUB_ONLY: Final = frozenset({"authorization", "cookie"})


class BadAnswerError(Exception):
    """The hub sent an invalid response; the message completes a sentence."""


class Deadline:
    """A deadline shared by several requests."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._ends = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        return self._ends - time.monotonic()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """`headers` have lower-case names. `content` is empty unless the status is 2xx; `whole`: nothing was cut off."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    whole: bool


def get(url: str, headers: Mapping[str, str], *, most_bytes: int, deadline: Deadline) -> Answer:
    """Return the response to one GET, following redirects.

    Runs in a separate thread because no library bounds name lookups or headers that arrive byte by byte. An abandoned
    thread ends with the process.

    Raises:
        BadAnswerError: for endless or invalid redirects, and for unrequested compression.
        TimeoutError: when `deadline` has passed.
        transport_errors(): when the request can't be made.
    """
    session = get_session()  # one per thread, so that connections are reused
    answer = in_thread(partial(_get, session, url, headers, most_bytes, deadline))
    try:
        return answer.result(timeout=max(0.0, deadline.left_s))
    except TimeoutError:
        if answer.done():
            raise
        raise _too_late(deadline) from None


@cache
def transport_errors() -> tuple[type[Exception], ...]:
    """Return the HTTP library's exceptions for a request that can't be sent or breaks."""
    library: Any = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    every = (OSError, ValueError, http.client.HTTPException)  # ValueError: a host that is not a name
    if hasattr(library, "RequestException"):
        urllib3: Any = importlib.import_module("urllib3")
        return (*every, library.RequestException, urllib3.exceptions.HTTPError)
    return (*every, library.HTTPError, library.InvalidURL, library.StreamError)


def _get(session: Any, url: str, headers: Mapping[str, str], most_bytes: int, deadline: Deadline) -> Answer:  # noqa: ANN401 -- of either library
    sent = {**headers, "Accept-Encoding": "identity"}
    for _ in range(_MOST_REDIRECTS + 1):
        with _opened(session, url, sent) as (status, received, pieces):
            place = received.get("location")
            if status not in _REDIRECTS or not place:
                return _read(status, received, pieces, most_bytes, deadline)
        there = _redirected(url, place)
        if _origin(there) != _origin(url):
            sent = {name: value for name, value in sent.items() if name.lower() not in _HUB_ONLY}
        url = there
    raise BadAnswerError(f"it redirects more than {_MOST_REDIRECTS} times")


def _redirected(url: str, place: str) -> str:
    try:
        there = urljoin(url, place)
        if _origin(there)[0] in {"http", "https"}:
            return there
    except ValueError:
        pass
    raise BadAnswerError("it redirects to an invalid URL")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return the origin, which must match for a token to be sent. Raises ValueError for an invalid port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _read(
    status: int, headers: Mapping[str, str], pieces: Iterator[bytes], most_bytes: int, deadline: Deadline
) -> Answer:
    """Read the response, but not the body of an error: status and headers suffice."""
    if status // 100 != 2:  # noqa: PLR2004 -- 2xx
        return Answer(status=status, headers=headers, content=b"", whole=False)
    if headers.get(_ENCODING, "").strip().lower() not in _PLAIN:
        raise BadAnswerError("it sends a compressed response although an uncompressed one was requested")
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > most_bytes:
            break
        if deadline.left_s <= 0:
            raise _too_late(deadline)
    whole = len(content) <= most_bytes
    return Answer(status=status, headers=headers, content=bytes(content[:most_bytes]), whole=whole)


def _too_late(deadline: Deadline) -> TimeoutError:
    return TimeoutError(f"it took more than {deadline.limit_s:g} s")


@contextmanager
def _opened(
    session: Any,  # noqa: ANN401 -- of either library
    url: str,
    headers: Mapping[str, str],
) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
    """Yield status, headers and the unread chunks of the body."""
    send = _with_httpx if hasattr(session, "build_request") else _with_requests
    response, pieces = send(session, url, headers)
    CALLS.info("hub GET %s: %s", urlsplit(url)._replace(query="").geturl(), response.status_code)
    try:
        yield response.status_code, {name.lower(): value for name, value in response.headers.items()}, pieces
    finally:
        response.close()


def _with_httpx(session: Any, url: str, headers: Mapping[str, str]) -> tuple[Any, Iterator[bytes]]:  # noqa: ANN401 -- of either library
    request = session.build_request("GET", url, headers=headers, timeout=_SILENCE_S)
    response = session.send(request, stream=True, follow_redirects=False)
    return response, response.iter_raw(_PIECE_BYTES)


def _with_requests(session: Any, url: str, headers: Mapping[str, str]) -> tuple[Any, Iterator[bytes]]:  # noqa: ANN401 -- of either library
    """Use the session's adapter: the session itself reads a redirect's body even if it does not follow it."""
    library: Any = importlib.import_module("requests")
    request = session.prepare_request(library.Request("GET", url, headers=headers))
    settings = session.merge_environment_settings(request.url, {}, True, None, None)  # noqa: FBT003 -- its signature: stream
    response = session.get_adapter(request.url).send(request, timeout=_SILENCE_S, **settings)

    def read() -> bytes:
        piece: bytes = response.raw.read(_PIECE_BYTES, decode_content=False)
        return piece

    return response, iter(read, b"")
