"""Requests to an endpoint, as boto3 sends them and decodes the answers."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError, EventStreamError
from builders.hosting import Hosted

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def served(sandbox):
    """Return an account with an endpoint in service, which tests here share."""
    sandbox.control("POST", "reset")
    hosted = Hosted.of(sandbox)
    assert hosted.serve()["EndpointStatus"] == "InService"
    return hosted


def error_of(call, *arguments, **more):
    with pytest.raises(ClientError) as error:
        call(*arguments, **more)
    return error.value.response


def consume(streams):
    """Read one stream after the other."""
    while True:
        for _ in streams():
            pass


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"inputs": "Hello", "parameters": {"max_new_tokens": 2}}, lambda found: found[0]["generated_text"]),
        (CHAT, lambda found: found["choices"][0]["message"]["content"]),
        ({"prompt": "Hello", "max_tokens": 2}, lambda found: found["choices"][0]["text"]),
    ],
    ids=["generate", "chat", "completion"],
)
def test_the_container_answers_by_the_shape_of_the_body(served, body, answer):
    assert answer(served.ask(body))


def test_a_stream_arrives_as_events(served):
    events = [event["PayloadPart"]["Bytes"] for event in served.stream({**CHAT, "stream": True})]
    lines = b"".join(events).decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert [chunk["object"] for chunk in chunks] == ["chat.completion.chunk"] * 4


def test_errors_of_the_container_keep_their_status(served):
    found = error_of(served.ask, {"inputs": "", "parameters": {"max_new_tokens": 2}})
    assert (found["Error"]["Code"], found["OriginalStatusCode"]) == ("ModelError", 422)
    assert json.loads(found["OriginalMessage"])["error_type"] == "validation"
    assert found["Error"]["Message"].startswith("Received client error (422) from primary with message")
    assert found["LogStreamArn"].endswith(":/aws/sagemaker/Endpoints/chat")


def test_an_endpoint_that_does_not_exist_is_not_found(served):
    found = error_of(served.ask, CHAT, name="absent")["Error"]
    assert (found["Code"], found["Message"]) == (
        "ValidationError", "Endpoint absent of account 123456789012 not found.",
    )  # fmt: skip


def test_a_whole_answer_of_more_than_a_minute_times_out_and_its_stream_does_not(cloud):
    hosted = Hosted.of(cloud)
    model = hosted.model("large", "Qwen/Qwen2.5-14B-Instruct")
    # Without a GPU a token takes 1.5 s.
    assert hosted.serve(ModelName=model, InstanceType="ml.m5.24xlarge")["EndpointStatus"] == "InService"
    long = {"inputs": "Hello", "parameters": {"max_new_tokens": 60}}
    found = error_of(hosted.ask, long)
    assert (found["Error"]["Code"], found["OriginalStatusCode"]) == ("ModelError", 0)
    assert "Your invocation timed out while waiting for a response from container primary" in found["OriginalMessage"]
    assert b"generated_text" in b"".join(one["PayloadPart"]["Bytes"] for one in hosted.stream({**long, "stream": True}))


def test_a_container_that_crashes_breaks_its_streams(cloud):
    hosted = Hosted.of(cloud)
    cloud.fault(name="engine", engine="crash-after-ready")
    assert hosted.serve(ModelName=hosted.model("large", "Qwen/Qwen2.5-7B-Instruct"))["EndpointStatus"] == "InService"
    endless = {"inputs": "Hello", "parameters": {"max_new_tokens": 1024}, "stream": True}
    with pytest.raises((EventStreamError, ClientError)) as error:
        consume(lambda: hosted.stream(endless))
    assert error.value.response["Error"]["Code"] in {"ModelStreamError", "ModelError"}
