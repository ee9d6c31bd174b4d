"""The supported parts of the AWS protocols: caller, action, parameters, and error bodies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec
from moto.core.exceptions import ServiceException
from moto.core.request import Request
from moto.core.routing import get_service_router
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

# Far more than any request of AWS or of the control interface.
_LARGEST_BODY_BYTES: Final = 1024 * 1024
AMZ_JSON: Final = "application/x-amz-json-1.1"
_Member = str | int | float | bool | dict[str, str] | None
_CREDENTIAL: Final = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")

# Services whose actions are in the method and the path, by the name in signatures, with their models' names.
_REST: Final = {"scheduler": "scheduler", "sagemaker": "sagemaker-runtime"}

Environ = dict[str, Any]
Application = Callable[..., Iterable[bytes]]  # of WSGI


class BadRequestError(ValueError):
    """A request that is rejected with the HTTP status `status`."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class RefusedError(ServiceException):
    """An error of AWS, answered in the call's protocol."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(code, message)
        self.status = status


class Call(Frozen, frozen=True, kw_only=True):
    """One request. `params` are the query protocol's flat names, or the JSON protocol's top-level members."""

    method: str
    path: str
    service: str
    region: str
    action: str
    params: Mapping[str, Any]
    body: bytes
    headers: Mapping[str, str] = {}
    access_key: str = ""

    @property
    def speaks_json(self) -> bool:
        return "HTTP_X_AMZ_TARGET" in self.headers or self.service in _REST

    @property
    def action_name(self) -> str:
        """The action's name in faults and the log: `DryRun:RunInstances` for a dry run."""
        rehearsed = self.text("DryRun").lower() == "true"
        return f"DryRun:{self.action}" if rehearsed else self.action

    def text(self, name: str) -> str:
        return str(self.params.get(name, ""))


class Answer(Response):
    """A response. `drop`: the connection closes without a reply."""

    default_mimetype = "text/xml"
    drop = False

    @property
    def ok(self) -> bool:
        return self.status_code < 300  # noqa: PLR2004 -- HTTP's own boundary

    @property
    def text(self) -> str:
        return self.get_data(as_text=True)


def dropped() -> Answer:
    answer = Answer(status=500)
    answer.drop = True
    return answer


def read_call(environ: Environ) -> Call:
    """Return the request. Raises BadRequestError for a body that is too large or has no length."""
    body = _body(environ)
    headers = {name: str(value) for name, value in environ.items() if name.startswith(("HTTP_", "CONTENT_"))}
    found = _CREDENTIAL.search(headers.get("HTTP_AUTHORIZATION", ""))
    access_key, region, service = found.groups() if found else ("", "", "")
    target, as_rest = headers.get("HTTP_X_AMZ_TARGET", ""), service in _REST
    params = _params(body, str(environ.get("QUERY_STRING", "")), as_json=bool(target) or as_rest)
    action = target.rpartition(".")[2] or str(params.get("Action", ""))
    if as_rest and not target:
        with suppress(NotFound):
            operation, of_path = get_service_router(_REST[service]).match(Request(environ))
            action, params = str(operation.name), {**params, **of_path}
    return Call(
        method=str(environ.get("REQUEST_METHOD", "GET")), path=str(environ.get("PATH_INFO", "/")), service=service,
        region=region, action=action, params=params, body=body, headers=headers, access_key=access_key,
    )  # fmt: skip


def _body(environ: Environ) -> bytes:
    """Read the body, with a limit, because any local program can send one."""
    length = str(environ.get("CONTENT_LENGTH") or "0")
    if "HTTP_TRANSFER_ENCODING" in environ:
        raise BadRequestError("a request needs a Content-Length", 411)
    if not (length.isascii() and length.isdigit()):
        raise BadRequestError("the Content-Length is not a number")
    if len(length) > len(str(_LARGEST_BODY_BYTES)) or int(length) > _LARGEST_BODY_BYTES:
        raise BadRequestError(f"a request may have {_LARGEST_BODY_BYTES} bytes", 413)
    body: bytes = environ["wsgi.input"].read(int(length))
    return body


def read_document(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request to the control interface; no body is an empty one. Raises BadRequestError."""
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, _Member])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise BadRequestError(f"the body is not a JSON object of texts, numbers and switches: {problem}") from problem


def _params(body: bytes, query: str, *, as_json: bool) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")
    if not as_json:
        return dict(parse_qsl(query, keep_blank_values=True) + parse_qsl(text, keep_blank_values=True))
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def error(call: Call, code: str, message: str, status: int = 400) -> Answer:
    """Return an AWS error in the call's protocol."""
    if call.speaks_json:
        answer = json_answer({"__type": code, "message": message}, status, AMZ_JSON)
        answer.headers["X-Amzn-ErrorType"] = code
        return answer
    words = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if call.service == "ec2":
        body = f"<Response><Errors><Error>{words}</Error></Errors><RequestID>sandbox</RequestID></Response>"
    else:
        item = f"<Error><Type>Sender</Type>{words}</Error>"
        body = f"<ErrorResponse>{item}<RequestId>sandbox</RequestId></ErrorResponse>"
    return Answer(body, status)


def json_answer(value: object, status: int = 200, content_type: str = "application/json") -> Answer:
    return Answer(json.dumps(value), status, content_type=content_type)
