"""HTTP to servers that may be hostile or broken: the engine's client, the health probe, the caller's public address.

Uses the standard library because a whole response, headers included, must have a deadline and a size limit even if it
arrives byte by byte. The timeouts of urllib3 (2.8) and httpx bound only the silence between bytes.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import ipaddress
import json
import logging
import socket
import ssl
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import SplitResult, urlsplit

from tgi_deploy import bounded_json
from tgi_deploy.errors import DeployError, InputError, NotHealthyError
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.values.probing import HttpReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tgi_deploy.values.probing import ProbeRequest

CALLS: Final = logging.getLogger("tgi_deploy.calls")
_CALLER_ADDRESS_URL: Final = "https://checkip.amazonaws.com"
_BODY_LIMIT_BYTES: Final = 8 * 1024 * 1024
# Every event of a stream repeats its field names; even 100,000 tokens take less.
_ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
_REDIRECTS: Final = range(300, 400)
_END_OF_EVENTS: Final = "[DONE]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """`read_s` bounds the silence between bytes, `total_s` the whole response."""

    connect_s: float = 5.0
    read_s: float = 60.0
    total_s: float = 300.0


# The engine's health check can wait behind a long prefill.
PROBE_TIMEOUTS: Final = Timeouts(connect_s=3.0, read_s=10.0, total_s=12.0)


def _ignore(_event: str) -> None:
    """Ignore a stream event."""


class HttpEngine:
    """One engine at `base_url`. The key is read for each request and goes only into the header.

    `certificate` as in `Address`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        certificate: str | None = None,
        api_key: Callable[[], str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._base = _parse(base_url)
        self._certificate = certificate
        self._api_key = api_key
        self._timeouts = timeouts or Timeouts()

    def ask(self, probe: ProbeRequest, on_event: Callable[[str], None] = _ignore) -> HttpReply:
        """Return the response, a stream's once it has ended; `on_event` gets the events as they arrive.

        Raises NotHealthyError `engine_unreachable` or `wrong_certificate`.
        """
        try:
            with _Exchange(self._base, self._timeouts, self._certificate) as exchange:
                began = time.monotonic()
                response = exchange.send(probe.method, probe.path, headers=self._headers(), body=_encoded(probe.body))
                if probe.streamed and response.status == http.client.OK:
                    return _read_events(exchange.lines(response), response.status, began, on_event)
                text = _text_of(exchange, response)
        except WrongCertificateError as error:
            raise self._distrusted(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(probe.method, probe.path, error) from error
        return HttpReply(status=response.status, body=_json_of(text), text=text)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {_header_safe(self._api_key())}"
        return headers

    def _distrusted(self, error: WrongCertificateError) -> NotHealthyError:
        return NotHealthyError(
            "wrong_certificate",
            f"connecting to {self._base.netloc}: {error}; nothing was sent",
            hint="a proxy may answer here, or another machine may have this address now: "
            "'tgi-deploy status NAME' shows what runs",
        )

    def _unreachable(self, method: str, path: str, error: Exception) -> NotHealthyError:
        return NotHealthyError(
            "engine_unreachable",
            f"request to the engine ({method} {path}): {_classify(error).outcome}, {_reason(error)}",
            hint="'tgi-deploy status NAME' shows whether it still runs, 'tgi-deploy logs NAME' its log",
            data={"path": path},
        )


def probe_health(url: str, *, certificate: str | None = None, timeouts: Timeouts = PROBE_TIMEOUTS) -> Probe:
    """Call an engine's health check once. Connection failures are classified as refused, reset or timeout."""
    try:
        with _Exchange(_parse(url), timeouts, certificate) as exchange:
            response = exchange.send("GET", "", headers={}, body=None)
            return Probe(outcome="status", status=response.status)
    except WrongCertificateError:
        return Probe(outcome="distrusted")
    except (OSError, http.client.HTTPException) as error:
        return _classify(error)


def caller_address(url: str = _CALLER_ADDRESS_URL, *, timeouts: Timeouts = PROBE_TIMEOUTS) -> str:
    """Return this computer's public address, from a service that AWS runs for this purpose.

    Raises:
        DeployError: `caller_address_unknown`.
    """
    try:
        with _Exchange(_parse(url), timeouts) as exchange:
            response = exchange.send("GET", "/", headers={}, body=None)
            text = _text_of(exchange, response).strip()
        if response.status != http.client.OK:
            raise _address_unknown(url, f"it answered {response.status}")
        return str(ipaddress.ip_address(text))
    except (OSError, http.client.HTTPException) as error:
        raise _address_unknown(url, _reason(error)) from error
    except ValueError as error:
        raise _address_unknown(url, "its answer is not an IP address") from error


def _address_unknown(url: str, reason: str) -> DeployError:
    return DeployError(
        "caller_address_unknown",
        f"finding out this machine's public address from {url}: {reason}",
        hint="name the network that may connect, such as --allow-cidr 203.0.113.7/32",
    )


class WrongCertificateError(OSError):
    """The server's certificate is not the expected one."""


class _PinnedConnection(http.client.HTTPSConnection):
    """TLS that accepts one certificate only, whatever its name and issuer, and sends nothing to any other server."""

    def __init__(self, host: str, port: int | None, *, timeout: float, certificate: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # `connect` compares the certificate itself
        super().__init__(host, port, timeout=timeout, context=context)
        self._certificate = certificate

    def connect(self) -> None:
        super().connect()
        shown = self.sock.getpeercert(binary_form=True) or b""
        if hashlib.sha256(shown).hexdigest() != self._certificate:
            self.close()
            raise WrongCertificateError(
                f"its certificate is not the one with the SHA-256 {self._certificate}"
                if self._certificate
                else "its machine has not reported a certificate yet"
            )


class _Exchange:
    """One connection for one request, with separate limits for connecting, silence and the whole exchange."""

    def __init__(self, base: SplitResult, timeouts: Timeouts, certificate: str | None = None) -> None:
        self._base = base
        self._timeouts = timeouts
        self._certificate = certificate
        self._ends = time.monotonic() + timeouts.connect_s + timeouts.total_s
        self._proxy = _proxy_for(base)
        self._connection = self._new_connection()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> http.client.HTTPResponse:
        target = self._base.path.rstrip("/") + path
        CALLS.info("http %s %s%s", method, self._base.netloc, target)
        if self._proxy is not None and self._base.scheme == "http":
            target = f"http://{self._base.netloc}{target}"
        self._connection.connect()
        self._allow_silence()
        self._connection.request(method, target, body=body, headers=dict(headers))
        response = self._connection.getresponse()  # a `_response`: limited from its first byte on
        if response.status in _REDIRECTS:
            raise http.client.HTTPException(f"it redirects elsewhere ({response.status})")
        return response

    def read(self, response: http.client.HTTPResponse) -> bytes:
        parts, size = [], 0
        while chunk := response.read1(65536):
            parts.append(chunk)
            size += len(chunk)
            if size > _BODY_LIMIT_BYTES:
                raise _too_long()
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(parts)

    def lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        return iter(lambda: response.readline(_BODY_LIMIT_BYTES), b"")

    def _response(self, connected: socket.socket, **more: Any) -> http.client.HTTPResponse:  # noqa: ANN401 -- the library's
        return http.client.HTTPResponse(cast("socket.socket", _Bounded(connected, self._allow_silence)), **more)

    def _allow_silence(self) -> None:
        left_s = self._ends - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the whole answer took too long")
        # A connection closed by the server has no socket, but its buffered data can still be read.
        if self._connection.sock is not None:
            self._connection.sock.settimeout(min(self._timeouts.read_s, left_s))

    def _new_connection(self) -> http.client.HTTPConnection:
        base, proxy = self._base, self._proxy
        secure = base.scheme == "https" or self._certificate is not None
        kind: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if self._certificate is not None:
            kind = partial(_PinnedConnection, certificate=self._certificate)
        elif secure:
            kind = http.client.HTTPSConnection
        at = base if proxy is None else proxy
        connection = kind(at.hostname or "", at.port, timeout=self._timeouts.connect_s)
        connection.response_class = cast("type[http.client.HTTPResponse]", self._response)
        if proxy is not None and secure:
            connection.set_tunnel(base.hostname or "", base.port)
        return connection


class _Bounded(io.RawIOBase):
    """A reader that checks the limits at every read: even one header or line can arrive byte by byte without end."""

    def __init__(self, connected: socket.socket, allow_silence: Callable[[], None]) -> None:
        self._raw = connected.makefile("rb", buffering=0)
        self._allow_silence = allow_silence
        self._left_bytes = _ANSWER_LIMIT_BYTES

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 -- any writable memory
        self._allow_silence()
        count = self._raw.readinto(buffer)
        self._left_bytes -= count or 0
        if self._left_bytes < 0:
            raise _too_long()
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _too_long() -> http.client.HTTPException:
    return http.client.HTTPException("its answer is too long")


def _proxy_for(base: SplitResult) -> SplitResult | None:
    """Return the environment's proxy. Loopback never goes through one."""
    host = base.hostname or ""
    if _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxy = urllib.request.getproxies().get(base.scheme)
    return None if not proxy else urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse(url: str) -> SplitResult:
    try:
        base = urlsplit(url)
        usable = base.scheme in ("http", "https") and bool(base.hostname) and (base.port is None or base.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            "bad_url", f"reading the engine's address {url!r}: not an HTTP URL", hint="use http://HOST:PORT"
        )
    return base


def _read_events(lines: Iterator[bytes], status: int, began: float, on_event: Callable[[str], None]) -> HttpReply:
    events: list[str] = []
    arrivals_ms: list[float] = []
    for payload in payloads(lines):
        arrivals_ms.append(round((time.monotonic() - began) * 1000, 3))
        events.append(payload)
        on_event(payload)
    return HttpReply(status=status, events=tuple(events), arrivals_ms=tuple(arrivals_ms))


def payloads(lines: Iterable[bytes]) -> Iterator[str]:
    """Return the data of each server-sent event, up to `[DONE]` or the end of the stream.

    A space after `data:` is optional; comments (keep-alives) and other fields are skipped; the data lines of one event
    are joined. A last event without its blank line counts.
    """
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            if data == [_END_OF_EVENTS]:
                return
            yield "\n".join(data)
            data = []
    if data and data != [_END_OF_EVENTS]:
        yield "\n".join(data)


def _header_safe(key: str) -> str:
    """Check the key here because the library's error for a bad header would quote it."""
    if not key.isascii() or not key.isprintable():
        raise InputError(
            "secret_unusable",
            "the API key has characters that an HTTP header can't contain",
            hint="remove its line breaks and everything else that is not printable ASCII",
        )
    return key


def _encoded(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _text_of(exchange: _Exchange, response: http.client.HTTPResponse) -> str:
    return exchange.read(response).decode("utf-8", "replace")


def _json_of(text: str) -> object:
    try:
        return bounded_json.parse(text)
    except ValueError:
        return None


def _classify(error: Exception) -> Probe:
    """Return the outcome: a silent or unreachable network is a timeout, a broken connection a reset."""
    if isinstance(error, ConnectionRefusedError):
        return Probe(outcome="refused")
    if isinstance(error, ConnectionError | ssl.SSLError | http.client.HTTPException):
        return Probe(outcome="reset")
    return Probe(outcome="timeout")


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its host name can't be resolved"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
