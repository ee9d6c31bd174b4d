"""InvokeEndpoint and its stream form, which pass a request on to a healthy instance.

Limits: 60 s for a whole answer (API Reference, "InvokeEndpoint"), 8 minutes for a stream.
"""

from __future__ import annotations

import json
import random
import re
import struct
import time
from binascii import crc32
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final

from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.sandbox.wire import Answer, Call, RefusedError, json_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.sandbox.sagemaker.endpoint import Endpoint
    from tgi_deploy.sandbox.sagemaker.node import Node

_WHOLE_S: Final = 60.0
_STREAM_S: Final = 480.0
# Real seconds: how long an instance that hangs can hold a caller, however fast time passes.
_LEAST_S: Final = 10.0
_CHUNK_BYTES: Final = 65_536
_EVENTS: Final = "application/vnd.amazon.eventstream"
_STEP: Final = re.compile(r'^tgi_batch_inference_duration_(sum|count)\{method="decode"\} (\S+)$', re.MULTILINE)
_MODEL_ERROR: Final = 424
_ERROR: Final = 400
_SERVER_ERROR: Final = 500
# As bug reports quote them.
_TIMED_OUT: Final = (
    "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for "
    "each container in Amazon CloudWatch, resolve the issue, and try again."
)
_EXITED: Final = "An error occurred while handling request as the model process exited."


def invoke(call: Call, endpoint: Endpoint | None, speed: float) -> Answer:
    """Raises RefusedError for an endpoint that is not in service."""
    nodes = [node for node in endpoint.nodes if node.in_service] if endpoint else []
    if endpoint is None or not nodes:
        message = f"Endpoint {call.text('EndpointName')} of account {DEFAULT_ACCOUNT_ID} not found."
        raise RefusedError("ValidationError", message)
    ready = [node for node in nodes if node.ready]
    if not ready:
        return _model_error(call, 0, _EXITED)
    random.shuffle(ready)
    node = ready[0] if endpoint.variants[0].routing == "RANDOM" else min(ready, key=lambda one: len(one.requests))
    streams = call.action == "InvokeEndpointWithResponseStream"
    connection = HTTPConnection(*node.address, timeout=max(_LEAST_S, (_STREAM_S if streams else _WHOLE_S) / speed))
    node.requests.add(connection)
    try:
        answer = _passed_on(call, node, connection, streams=streams)
    except TimeoutError:
        answer = _model_error(call, 0, _TIMED_OUT)
    except (OSError, HTTPException):
        answer = _model_error(call, 0, _EXITED)

    def end() -> None:
        connection.close()
        node.requests.discard(connection)

    answer.call_on_close(end)
    return answer


def _passed_on(call: Call, node: Node, connection: HTTPConnection, *, streams: bool) -> Answer:
    """Raises OSError, HTTPException."""
    headers = {"Content-Type": call.headers.get("CONTENT_TYPE", ""), "Accept": call.headers.get("HTTP_ACCEPT", "")}
    connection.request("POST", "/invocations", call.body, headers)
    reply = connection.getresponse()
    kind = reply.headers.get("Content-Type", "")
    if streams and reply.status < _ERROR:
        answer = Answer(_parts(reply, connection.timeout or _LEAST_S), content_type=_EVENTS)
        answer.headers["X-Amzn-SageMaker-Content-Type"] = kind
    else:
        body = reply.read()
        if reply.status >= _ERROR:
            return _model_error(call, reply.status, body.decode("utf-8", "replace"))
        if _modeled_s(node, reply) > _WHOLE_S:
            return _model_error(call, 0, _TIMED_OUT)
        answer = Answer(body, content_type=kind)
    answer.headers["x-Amzn-Invoked-Production-Variant"] = node.spec.variant
    return answer


def _modeled_s(node: Node, reply: HTTPResponse) -> float:
    """Return how long a real GPU would take for a whole answer, from the stub server's metrics.

    The time that passed here says little: it is mostly this computer's own where time passes fast.
    """
    tokens = int(reply.headers.get("x-generated-tokens") or 0)
    with closing(HTTPConnection(*node.address, timeout=_LEAST_S)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", "/metrics")
        found = dict(_STEP.findall(connection.getresponse().read().decode("utf-8", "replace")))
        return tokens * float(found["sum"]) / float(found["count"]) if float(found.get("count", 0)) else 0.0
    return 0.0


def _model_error(call: Call, status: int, message: str) -> Answer:
    region, name = call.region, call.text("EndpointName")
    side = "server" if status == 0 or status >= _SERVER_ERROR else "client"
    group = f"/aws/sagemaker/Endpoints/{name}"
    page = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#logEventViewer:group={group}"
    body = {
        "Message": f'Received {side} error ({status}) from primary with message "{message}". See {page} in account '
        f"{DEFAULT_ACCOUNT_ID} for more information.",
        "OriginalStatusCode": status,
        "OriginalMessage": message,
        "LogStreamArn": f"arn:aws:logs:{region}:{DEFAULT_ACCOUNT_ID}:log-group:{group}",
    }
    answer = json_answer(body, _MODEL_ERROR)
    answer.headers["X-Amzn-ErrorType"] = "ModelError"
    return answer


def _parts(reply: HTTPResponse, limit_s: float) -> Iterator[bytes]:
    """Yield the answer as an event stream, and how it ended if it is incomplete."""
    until, late = time.monotonic() + limit_s, False
    try:
        while not late and (chunk := reply.read1(_CHUNK_BYTES)):
            yield frame({":message-type": "event", ":event-type": "PayloadPart"}, chunk)
            late = time.monotonic() > until
    except TimeoutError:
        late = True
    except (OSError, HTTPException):
        yield _stream_error("StreamBroken", "The connection between the client and the model was closed.")
    if late:
        yield _stream_error("ModelInvocationTimeExceeded", "The model did not finish its answer in time.")


def _stream_error(code: str, message: str) -> bytes:
    body = json.dumps({"Message": message, "ErrorCode": code}).encode()
    return frame({":message-type": "exception", ":exception-type": "ModelStreamError"}, body)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return a message of an event stream, with headers of the type string (7): Smithy, "Amazon Event Stream"."""
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    message = prelude + struct.pack("!I", crc32(prelude)) + packed + payload
    return message + struct.pack("!I", crc32(message))
