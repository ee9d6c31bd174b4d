"""Requests to an endpoint through SageMaker's runtime: InvokeEndpoint and its stream form, signed with SigV4.

SageMaker ends a whole answer after 60 s, and a stream after 8 minutes. The SDK's own retries are off: an invocation
that may have been answered is not repeated.
"""

from __future__ import annotations

import json
import shlex
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from tgi_deploy.errors import NotHealthyError
from tgi_deploy.targets.aws.errors import SDK_FAILURES, refusal_of, translated
from tgi_deploy.targets.protocol import Invocation
from tgi_deploy.targets.reply import Reply, ReplyError, understood

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.targets.aws.api import Api

SERVICE: Final = "sagemaker-runtime"
_JSON: Final = "application/json"
_OK: Final = 200
_TIMED_OUT: Final = 504  # what SageMaker calls status 0: the container has not answered in time, or is gone
# Codes of errors that are the engine's, or the endpoint's, and not the caller's: what an HTTP client would see.
_STATUS: Final = {"ServiceUnavailable": 503, "ModelNotReadyException": 503, "ThrottlingException": 429}
_CHUNK_BYTES: Final = 65_536


def invoke(api: Api, endpoint: str, body: bytes, *, streamed: bool) -> Invocation:
    """Raises NotHealthyError `engine_unreachable`, DeployError for what concerns the caller's credentials."""
    client = api.sessions.client(SERVICE, api.region, creating=True)
    asked = {"EndpointName": endpoint, "Body": body, "ContentType": _JSON, "Accept": _JSON}
    send = client.invoke_endpoint_with_response_stream if streamed else client.invoke_endpoint
    try:
        with understood(SDK_FAILURES):
            answer = send(**asked)
    except ClientError as error:
        with translated(api.table, doing=f"invoking {endpoint} in {api.region}", service="sagemaker"):
            return _of_error(error)
    except (*SDK_FAILURES, ReplyError) as error:
        raise unreachable(endpoint, str(error)) from error
    return Invocation(
        status=_OK, body=_events(answer["Body"], endpoint) if streamed else _whole(answer["Body"], endpoint)
    )


def _of_error(error: ClientError) -> Invocation:
    """Return the engine's own answer, or raise the error."""
    code, message, _ = refusal_of(error)
    if code in _STATUS:
        return Invocation(status=_STATUS[code], body=iter((message.encode(),)))
    if code != "ModelError":
        raise error
    reply = Reply.of(error.response)
    status = reply.integer("OriginalStatusCode") or _TIMED_OUT
    return Invocation(status=status, body=iter(((reply.optional_text("OriginalMessage") or message).encode(),)))


def _whole(body: Any, endpoint: str) -> Iterator[bytes]:  # noqa: ANN401 -- botocore's
    with _broken(endpoint), closing(body):
        yield from iter(lambda: body.read(_CHUNK_BYTES), b"")


def _events(stream: Any, endpoint: str) -> Iterator[bytes]:  # noqa: ANN401 -- botocore's
    """Yield the parts of an event stream. An error inside it is how the stream ended."""
    with _broken(endpoint), closing(stream):
        for event in stream:
            if "PayloadPart" not in event:
                raise unreachable(endpoint, f"its answer was cut off: {next(iter(event), 'an unknown event')}")
            found = Reply.of(event).part("PayloadPart").content.get("Bytes")
            if not isinstance(found, bytes):
                raise ReplyError("a part of the stream has no bytes")
            yield found


@contextmanager
def _broken(endpoint: str) -> Iterator[None]:
    """Translate what a broken connection raises while an answer is read."""
    try:
        with understood(SDK_FAILURES):
            yield
    except (*SDK_FAILURES, ReplyError) as error:
        raise unreachable(endpoint, f"its answer was cut off: {error}") from error


def unreachable(endpoint: str, why: str) -> NotHealthyError:
    return NotHealthyError(
        "engine_unreachable",
        f"invoking {endpoint}: {why[:300]}",
        hint="'tgi-deploy status NAME' shows whether it still runs, 'tgi-deploy logs NAME' its log",
    )


def invocation_lines(region: str, endpoint: str, body: Mapping[str, Any], *, streamed: bool) -> tuple[str, str]:
    """Return a line of the shell, and one of Python, that invoke an endpoint by hand.

    The AWS CLI has no command for streams, so that the shell's line runs Python's.
    """
    python = _python_line(region, endpoint, body, streamed=streamed)
    if streamed:
        return f"python3 -c {shlex.quote(python)}", python
    shell = (
        f"aws sagemaker-runtime invoke-endpoint --region {region} --endpoint-name {endpoint} --content-type {_JSON}"
        f" --cli-binary-format raw-in-base64-out --body {shlex.quote(json.dumps(body))} /dev/stdout"
    )
    return shell, python


def _python_line(region: str, endpoint: str, body: Mapping[str, Any], *, streamed: bool) -> str:
    form = "_with_response_stream" if streamed else ""
    answer = (
        f"boto3.client({SERVICE!r}, region_name={region!r}).invoke_endpoint{form}("
        f"EndpointName={endpoint!r}, ContentType={_JSON!r}, Body=json.dumps({dict(body)!r}))['Body']"
    )
    if streamed:
        write = "sys.stdout.buffer.write(event['PayloadPart']['Bytes'])"
        return f"import boto3, json, sys; [{write} for event in {answer}]"
    return f"import boto3, json; print({answer}.read().decode())"
