"""Widely used clients work with the stub server."""

from __future__ import annotations

import json

import pytest
import text_generation
from huggingface_hub import InferenceClient
from openai import APIStatusError, AuthenticationError, OpenAI

KEY = "made-up-key"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
# The client's last release (0.7.0) calls methods that pydantic 2 renamed.
OLD_PYDANTIC_CALLS = pytest.mark.filterwarnings(
    "ignore:The `dict` method is deprecated:pydantic.PydanticDeprecatedSince20"
)
TOO_LONG = "word " * 20_000
MESSAGES = [{"role": "user", "content": "Say hello"}]


@pytest.fixture(scope="module")
def engine(start_engine):
    with start_engine("--api-key", KEY) as engine:
        engine.wait_until_ready()
        yield engine
        assert engine.stop() == 0


@pytest.fixture
def hub(engine):
    return InferenceClient(base_url=engine.url, api_key=KEY)


@pytest.fixture
def openai(engine):
    with OpenAI(base_url=f"{engine.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_hub_client_generates(engine):
    client = InferenceClient(model=engine.url, token=KEY)
    answer = client.text_generation("Say hello", max_new_tokens=6, details=True)
    assert answer.details.generated_tokens == 6
    assert answer.details.finish_reason == "length"
    assert client.text_generation("Say hello", max_new_tokens=6) == answer.generated_text


def test_hub_client_streams(engine):
    client = InferenceClient(model=engine.url, token=KEY)
    parts = list(client.text_generation("Say hello", max_new_tokens=6, details=True, stream=True))
    assert len(parts) == 6
    text = "".join(part.token.text for part in parts)
    assert parts[-1].generated_text == f"Say hello{text}", "the route at / repeats the prompt"


def test_hub_client_chats(hub):
    reply = hub.chat_completion(MESSAGES, max_tokens=7)
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.usage.completion_tokens == 7
    assert reply.model == MODEL


def test_hub_client_streams_a_chat(hub):
    whole = hub.chat_completion(MESSAGES, max_tokens=7).choices[0].message.content
    parts = list(hub.chat_completion(MESSAGES, max_tokens=7, stream=True))
    assert "".join(part.choices[0].delta.content for part in parts) == whole
    assert parts[-1].choices[0].finish_reason == "length"


def test_hub_client_asks_for_json(hub):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    # The client's own form, "json_schema", is one that the engine refuses: exchange chat_rf_schema.
    wanted = {"type": "json_object", "value": schema}
    reply = hub.chat_completion(MESSAGES, max_tokens=30, response_format=wanted)
    assert json.loads(reply.choices[0].message.content) == {"ok": True}


@OLD_PYDANTIC_CALLS
def test_text_generation_client(engine):
    client = text_generation.Client(engine.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    answer = client.generate("Say hello", max_new_tokens=6, decoder_input_details=True)
    assert answer.details.generated_tokens == 6
    assert [token.text for token in answer.details.prefill] == ["Say", " hello"]
    parts = list(client.generate_stream("Say hello", max_new_tokens=6))
    assert parts[-1].generated_text == answer.generated_text
    with pytest.raises(text_generation.errors.ValidationError, match="must be <="):
        client.generate(TOO_LONG, max_new_tokens=1)


@OLD_PYDANTIC_CALLS
def test_text_generation_client_chats(engine):
    client = text_generation.Client(engine.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    messages = [text_generation.types.Message(role="user", content="Say hello")]
    assert client.chat(messages, max_tokens=5).usage["completion_tokens"] == 5
    # This release of the client can't read TGI's streamed chats: it expects tool calls in every part.


def test_openai_lists_models(openai):
    assert [model.id for model in openai.models.list()] == [MODEL]


def test_openai_chats(openai):
    reply = openai.chat.completions.create(model="tgi", messages=MESSAGES, max_tokens=7, temperature=0)
    assert reply.model == MODEL
    assert reply.system_fingerprint.startswith("3.3.6-dev0-sha-")
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 7


def test_openai_streams_with_usage(openai):
    stream = openai.chat.completions.create(
        model="tgi", messages=MESSAGES, max_completion_tokens=7, stream=True, stream_options={"include_usage": True}
    )
    *parts, last = list(stream)
    assert len(parts) == 7
    assert {part.choices[0].delta.role for part in parts} == {"assistant"}
    assert last.choices == []
    assert last.usage.completion_tokens == 7


def test_openai_stops_at_the_end_of_the_answer(openai):
    reply = openai.chat.completions.create(model="tgi", messages=MESSAGES, logprobs=True, top_logprobs=2)
    assert reply.choices[0].finish_reason == "stop"
    assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 2


def test_openai_calls_a_tool(openai):
    parameters = {"type": "object", "properties": {"days": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "forecast", "parameters": parameters}}
    wanted = {"model": "tgi", "messages": MESSAGES, "tools": [tool], "tool_choice": "required"}
    reply = openai.chat.completions.create(**wanted)
    assert json.loads(reply.choices[0].message.tool_calls[0].function.arguments) == {"days": 1}
    parts = openai.chat.completions.create(**wanted, stream=True)
    calls = [call for part in parts for call in part.choices[0].delta.tool_calls]
    assert json.loads("".join(call.function.arguments for call in calls)) == {"days": 1}


def test_openai_completes(openai):
    reply = openai.completions.create(model="tgi", prompt="Once upon a time", max_tokens=5)
    assert reply.usage.completion_tokens == 5
    parts = openai.completions.create(model="tgi", prompt="Once upon a time", max_tokens=5, stream=True)
    assert "".join(part.choices[0].text for part in parts) == reply.choices[0].text


def test_openai_reads_the_errors(engine, openai):
    with pytest.raises(APIStatusError) as refused:
        openai.chat.completions.create(model="tgi", messages=[{"role": "user", "content": TOO_LONG}], max_tokens=1)
    assert refused.value.status_code == 422
    with OpenAI(base_url=f"{engine.url}/v1", api_key="another", max_retries=0) as stranger:
        with pytest.raises(AuthenticationError):
            stranger.chat.completions.create(model="tgi", messages=MESSAGES)
        assert list(stranger.models.list())
