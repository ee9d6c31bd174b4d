"""A minimal client of the sandbox's AWS API, for machines, without an SDK."""

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
    """The API's address and access key. With an instance id, calls have the permissions of that machine's role."""

    url: str
    access_key: str = field(repr=False)
    instance_id: str = ""


def machine_key(access_key: str, instance_id: str = "") -> str:
    """Return the access key of machines, whose calls are excluded from the call log."""
    return f"{access_key}-machine{instance_id and ':'}{instance_id}"


def machine_of(key: str, access_key: str) -> str | None:
    """Return the machine of this key: empty for an unnamed one, None if it is not a machine's key."""
    given, _, instance_id = key.partition(":")
    return instance_id if hmac.compare_digest(given.encode(), machine_key(access_key).encode()) else None


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


def ssm(endpoint: Endpoint, region: str, action: str, params: Mapping[str, object]) -> dict[str, Any]:
    # Like moto, the sandbox reads key and scope but does not check the signature.
    scope = f"{machine_key(endpoint.access_key, endpoint.instance_id)}/20260101/{region}/ssm/aws4_request"
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": f"AmazonSSM.{action}",
    }
    status, text = send(endpoint.url, "POST", "/", json.dumps(dict(params)).encode(), headers)
    answer: dict[str, Any] = json.loads(text)
    if status != _OK:
        code = str(answer.get("__type", "InternalServerError")).rpartition("#")[2]
        raise ApiError(code, str(answer.get("message", "")))
    return answer
