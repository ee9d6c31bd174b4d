"""What SageMaker's runtime answers, as the engine's client sees it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.response import StreamingBody
from fakes.computer import FakeClock
from fakes.hosting_api import FakeHosting

from tgi_deploy.errors import NotHealthyError
from tgi_deploy.reconcile.errors import PermissionDeniedError
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.sagemaker.invoking import invoke


def failure(code: str, **more: Any) -> ClientError:
    said = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": 424}, **more}
    return ClientError(said, "InvokeEndpoint")


class Runtime:
    """Answers with `answer`, or fails with it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def invoke_endpoint(self, **_asked: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"Body": self.answer}

    invoke_endpoint_with_response_stream = invoke_endpoint


class Stream(list[Any]):
    closed = False

    def close(self) -> None:
        self.closed = True


def answered(answer: Any, *, streamed: bool = False) -> tuple[int, bytes]:
    hosting = FakeHosting()
    hosting.client = lambda *_at, **_how: Runtime(answer)  # type: ignore[method-assign]
    api = Api(region="us-east-1", sessions=hosting, retrier=Retrier(FakeClock()))  # type: ignore[arg-type]
    found = invoke(api, "tgi-deploy-demo", b"{}", streamed=streamed)
    return found.status, b"".join(found.body)


def part(text: bytes) -> dict[str, Any]:
    return {"PayloadPart": {"Bytes": text}}


def test_a_whole_answer_and_the_parts_of_a_stream_are_passed_on():
    whole = StreamingBody(io.BytesIO(b"[1]"), 3)
    assert answered(whole) == (200, b"[1]")
    stream = Stream([part(b"data:"), part(b"1\n\n")])
    assert answered(stream, streamed=True) == (200, b"data:1\n\n")
    assert stream.closed


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (failure("ModelError", OriginalStatusCode=422, OriginalMessage="too long"), 422),
        (failure("ModelError", OriginalStatusCode=0, OriginalMessage="timed out"), 504),
        (failure("ServiceUnavailable"), 503),
        (failure("ThrottlingException"), 429),
    ],
)
def test_the_engines_own_error_keeps_its_status(error, status):
    assert answered(error)[0] == status


def test_what_concerns_the_caller_is_an_error_of_the_cloud():
    denied = failure("AccessDeniedException")
    with pytest.raises(PermissionDeniedError):
        answered(denied)


@pytest.mark.parametrize(
    "answer",
    [
        EndpointConnectionError(endpoint_url="https://runtime"),
        StreamingBody(io.BytesIO(b"[1"), 3),
    ],
)
def test_a_broken_connection_is_an_engine_that_can_not_be_reached(answer):
    with pytest.raises(NotHealthyError, match="invoking tgi-deploy-demo"):
        answered(answer)


@pytest.mark.parametrize("last", [{"ModelStreamError": {"ErrorCode": "StreamBroken"}}, {"PayloadPart": {"Bytes": 7}}])
def test_a_stream_that_ends_in_an_error_is_cut_off(last):
    with pytest.raises(NotHealthyError, match="cut off"):
        answered(Stream([part(b"data:"), last]), streamed=True)
