"""A minimal client of the sandbox's control interface."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_OK: Final = 200


class ApiError(Exception):
    """An AWS error: its code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class NoAnswerError(Exception):
    """A server, such as the sandbox, does not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """The API's address and access key."""

    url: str
    access_key: str = field(repr=False)


def observer_key(access_key: str) -> str:
    """Return the access key of an observer, whose calls are neither logged nor subject to faults."""
    return f"{access_key}-observer"


def send(
    endpoint_url: str, method: str, path: str, body: bytes, headers: Mapping[str, str], *, most_bytes: int | None = None
) -> tuple[int, bytes]:
    """Return status and body. Raises NoAnswerError when nothing answers there."""
    place = urlsplit(endpoint_url)
    connection = HTTPConnection(place.hostname or "127.0.0.1", place.port or 80, timeout=10.0)
    try:
        connection.request(method, path, body=body, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.read(most_bytes)
    except (OSError, HTTPException) as problem:
        raise NoAnswerError(str(problem)) from problem
    finally:
        connection.close()


def proof(access_key: str, challenge: str) -> str:
    """Return the answer to a challenge, which proves possession of the key without revealing it."""
    return hmac.new(access_key.encode(), f"health {challenge}".encode(), hashlib.sha256).hexdigest()


def is_our_sandbox(endpoint: Endpoint) -> bool:
    """Return whether the sandbox with this key answers there, not another account's program at its old port."""
    challenge = secrets.token_hex(16)
    try:
        path = f"/_sandbox/health?challenge={challenge}"
        status, text = send(endpoint.url, "GET", path, b"", {}, most_bytes=4096)
        answer = json.loads(text)
    except (NoAnswerError, ValueError, RecursionError):
        return False
    given = answer.get("proof") if isinstance(answer, dict) else None
    return status == _OK and hmac.compare_digest(str(given).encode(), proof(endpoint.access_key, challenge).encode())


def control(endpoint: Endpoint, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 -- any JSON
    """Call the sandbox's control interface. Raises ApiError if it refuses, NoAnswerError if it does not answer."""
    body = b"" if document is None else json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {endpoint.access_key}"}
    status, text = send(endpoint.url, method, path, body, headers)
    try:
        answer = json.loads(text)
    except json.JSONDecodeError as problem:
        raise NoAnswerError("the server there is not a sandbox") from problem
    if status != _OK:
        raise ApiError(str(status), str(answer.get("error", "")))
    return answer
