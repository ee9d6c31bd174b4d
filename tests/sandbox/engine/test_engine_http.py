"""Routes, response formats, statuses and error bodies over plain HTTP."""

from __future__ import annotations

import http.client
import json

import pytest

JSON = {"Content-Type": "application/json"}
KEY = "Made-Up-Key"
LIMITS = (
    "--max-input-tokens", "40", "--max-total-tokens", "64", "--max-stop-sequences", "2", "--payload-limit", "5000"
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(start_engine):
    with start_engine(*LIMITS) as engine:
        engine.wait_until_ready()
        yield engine
        assert engine.stop() == 0


@pytest.fixture(scope="module")
def guarded(start_engine):
    with start_engine("--api-key", KEY) as engine:
        engine.wait_until_ready()
        yield engine


@pytest.fixture(scope="module")
def old(start_engine):
    with start_engine(options=["--version", "2.0.4"]) as engine:
        engine.wait_until_ready()
        yield engine


def post(engine, path, body, **headers):
    raw = body if isinstance(body, str) else json.dumps(body)
    return engine.request("POST", path, raw, {**JSON, **headers})


def post_json(engine, path, body):
    status, _, text = post(engine, path, body)
    return status, json.loads(text)


def events(text):
    return [line.removeprefix("data:").strip() for line in text.split("\n\n") if line.startswith("data:")]


def test_info(engine):
    status, _, body = engine.request("GET", "/info")
    info = json.loads(body)
    assert status == 200
    assert list(info) == [
        "model_id", "model_sha", "model_pipeline_tag", "max_concurrent_requests", "max_best_of", "max_stop_sequences",
        "max_input_tokens", "max_total_tokens", "validation_workers", "max_client_batch_size", "router", "version",
        "sha", "docker_label",
    ]  # fmt: skip
    assert info["model_id"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert (info["max_input_tokens"], info["max_total_tokens"], info["max_stop_sequences"]) == (40, 64, 2)
    assert info["version"] == "3.3.6-dev0"
    assert info["docker_label"] == "sha-" + info["sha"][:7]


def test_info_of_an_old_release(old):
    info = json.loads(old.request("GET", "/info")[2])
    assert info["version"] == "2.0.4"
    assert info["max_input_length"] == 4095
    assert "max_input_tokens" not in info
    assert info["model_dtype"] == "torch.float16"
    assert info["max_batch_total_tokens"] > 4096


def test_routes_of_newer_releases_are_missing(old):
    assert old.request("GET", "/v1/models")[0] == 404
    assert post(old, "/chat_tokenize", {"messages": []})[0] == 404


def test_the_api_describes_the_routes_it_has(engine, guarded, old):
    described = {}
    for name, served in {"engine": engine, "guarded": guarded, "old": old}.items():
        status, headers, body = served.request("GET", "/docs/")
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/html")
        assert "/api-doc/openapi.json" in body
        described[name] = json.loads(served.request("GET", "/api-doc/openapi.json")[2])["paths"]
    assert list(described["engine"]["/"]) == ["get", "post"]
    assert list(described["guarded"]["/generate"]) == ["post"]
    assert described["engine"].keys() - described["old"].keys() == {"/v1/models", "/chat_tokenize"}


def test_old_releases_stop_after_100_tokens_by_default(old, start_engine):
    reply = post_json(old, "/generate", {"inputs": "Tell a long story", "parameters": {"details": True}})[1]
    assert reply["details"]["generated_tokens"] <= 100


def test_generate(engine):
    body = {"inputs": "Say something", "parameters": {"max_new_tokens": 5}}
    status, headers, text = post(engine, "/generate", body)
    assert status == 200
    assert list(json.loads(text)) == ["generated_text"]
    assert headers["x-prompt-tokens"] == "3"
    assert headers["x-generated-tokens"] == "5"
    assert headers["x-compute-type"] == "1-nvidia-l40s"
    for name in ("total", "validation", "queue", "inference"):
        assert headers[f"x-{name}-time"].isdigit()
    assert headers["x-time-per-token"].isdigit()


def test_details(engine):
    parameters = {"max_new_tokens": 4, "details": True, "decoder_input_details": True, "top_n_tokens": 2}
    reply = post_json(engine, "/generate", {"inputs": "one two", "parameters": parameters})[1]
    details = reply["details"]
    assert details["finish_reason"] == "length"
    assert details["generated_tokens"] == len(details["tokens"]) == 4
    assert [token["text"] for token in details["prefill"]] == ["one", " two"]
    assert details["prefill"][0]["logprob"] is None
    assert "".join(token["text"] for token in details["tokens"]) == reply["generated_text"]
    assert [len(top) for top in details["top_tokens"]] == [2, 2, 2, 2]
    assert details["seed"] is None


def test_full_text_and_truncation(engine):
    whole = {"inputs": "alpha beta gamma", "parameters": {"max_new_tokens": 3, "return_full_text": True}}
    assert post_json(engine, "/generate", whole)[1]["generated_text"].startswith("alpha beta gamma")
    cut = {"inputs": "alpha beta gamma", "parameters": {"max_new_tokens": 3, "truncate": 1, "details": True}}
    headers = post(engine, "/generate", cut)[1]
    assert headers["x-prompt-tokens"] == "1"
    assert (
        post_json(engine, "/generate", cut)[1]["generated_text"]
        == post_json(engine, "/generate", {**cut, "inputs": " gamma"})[1]["generated_text"]
    )


def test_stop_sequence_ends_and_is_part_of_the_text(engine):
    free = post_json(engine, "/generate", {"inputs": "stop me", "parameters": {"max_new_tokens": 20}})[1]
    stop = free["generated_text"].split()[2]
    parameters = {"max_new_tokens": 20, "stop": [stop], "details": True}
    reply = post_json(engine, "/generate", {"inputs": "stop me", "parameters": parameters})[1]
    assert reply["generated_text"].endswith(stop)
    assert reply["details"]["finish_reason"] == "stop_sequence"


def test_greedy_repeats_and_seeds_decide(engine):
    def text(**parameters):
        body = {"inputs": "again", "parameters": {"max_new_tokens": 12, **parameters}}
        return post_json(engine, "/generate", body)[1]["generated_text"]

    assert text() == text()
    assert text(do_sample=True, seed=1) == text(do_sample=True, seed=1)
    assert text(do_sample=True, seed=1) != text(do_sample=True, seed=2)


def test_root_answers_a_list_or_a_stream(engine):
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 2}}
    assert [list(item) for item in post_json(engine, "/", body)[1]] == [["generated_text"]]
    streamed = events(post(engine, "/", {**body, "stream": True})[2])
    assert len(streamed) == 2


def test_tokenize(engine):
    status, pieces = post_json(engine, "/tokenize", {"inputs": "Hello, wide world"})
    assert status == 200
    assert [piece["text"] for piece in pieces] == ["Hello", ",", " wide", " world"]
    assert [(piece["start"], piece["stop"]) for piece in pieces] == [(0, 5), (5, 6), (6, 11), (11, 17)]


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ('{"inputs": "\\ud800"}', 400, "Failed to parse"),
        ("[" * 3000, 400, "Failed to parse"),
        ({"inputs": "a", "parameters": {"details": 1}}, 422, "expected a boolean"),
        ({"inputs": "a", "parameters": {"grammar": "json"}}, 422, "expected adjacently tagged enum GrammarType"),
        ({"inputs": "a" * 6000}, 413, "length limit exceeded"),
    ],
)
def test_invalid_bodies_are_rejected_in_plain_text(engine, body, status, fragment):
    found, headers, text = post(engine, "/generate", body)
    assert found == status
    assert headers["Content-Type"].startswith("text/plain")
    assert fragment in text


def test_chat_stream_errors_arrive_as_events(engine):
    body = {"messages": [{"role": "user", "content": "word " * 60}], "stream": True}
    status, _, text = post(engine, "/v1/chat/completions", body)
    first, *_, last = events(text)
    assert status == 200
    assert json.loads(first)["error"]["http_status_code"] == 422
    assert last == "[DONE]"


def test_completions(engine):
    status, reply = post_json(engine, "/v1/completions", {"prompt": ["one", "two"], "max_tokens": 3})
    assert status == 200
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}


def test_invocations_accept_three_body_formats(engine):
    native = {"inputs": "hello", "parameters": {"max_new_tokens": 2}}
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    plain = {"prompt": "hello", "max_tokens": 2}
    assert isinstance(post_json(engine, "/invocations", native)[1], list)
    assert post_json(engine, "/invocations", chat)[1]["object"] == "chat.completion"
    assert post_json(engine, "/invocations", plain)[1]["object"] == "text_completion"


def test_one_connection_serves_many_requests(engine):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=30)
    for path, status in (("/generate", 422), ("/nothing", 404), ("/generate", 422)):
        connection.request("POST", path, json.dumps({"inputs": ""}), JSON)
        reply = connection.getresponse()
        assert reply.status == status
        reply.read()
    connection.close()


def test_the_key_guards_only_inference(guarded):
    body = {"inputs": "x", "parameters": {"max_new_tokens": 1}}
    assert post(guarded, "/generate", body)[::2] == (401, "")
    assert post(guarded, "/generate", body, Authorization=KEY)[0] == 401
    assert post(guarded, "/generate", body, Authorization=f"Bearer {KEY}")[0] == 200
    assert post(guarded, "/generate", body, Authorization=f"bearer {KEY.upper()}")[0] == 200
    for path in ("/tokenize", "/", "/generate_stream", "/v1/chat/completions", "/v1/completions", "/invocations"):
        assert post(guarded, path, body)[0] == 401
    for path in ("/health", "/info", "/metrics", "/v1/models"):
        assert guarded.request("GET", path)[0] == 200
    assert post(guarded, "/chat_tokenize", {"messages": [{"role": "user", "content": "x"}]})[0] == 200


def test_metrics_count_requests(start_engine):
    with start_engine(*LIMITS) as engine:
        engine.wait_until_ready()
        assert engine.request("GET", "/metrics")[2] == ""
        for _ in range(2):
            post(engine, "/generate", {"inputs": "a b", "parameters": {"max_new_tokens": 3}})
        post(engine, "/generate", {"inputs": ""})
        text = engine.request("GET", "/metrics")[2]
    lines = text.splitlines()
    assert "tgi_request_count 3" in lines
    assert "tgi_request_success 2" in lines
    assert 'tgi_request_failure{err="validation"} 1' in lines
    assert "tgi_request_generated_tokens_sum 6" in lines
    assert "tgi_request_input_length_count 2" in lines
    assert 'tgi_batch_inference_success{method="decode"} 6' in lines
    assert "tgi_queue_size 0" in lines
    for name in ("duration", "validation_duration", "queue_duration", "inference_duration"):
        assert f"tgi_request_{name}_count 2" in lines
    assert "tgi_request_mean_time_per_token_duration_count 2" in lines


def test_http_faults_are_visible(start_engine):
    names = ["--fault", "wrong-model", "--fault", "overloaded", "--fault", "no-chat-template"]
    with start_engine(options=names) as engine:
        engine.wait_until_ready()
        assert json.loads(engine.request("GET", "/info")[2])["model_id"] == "bigscience/bloom-560m"
        assert post(engine, "/generate", {"inputs": "x"})[0] == 429
        streamed = events(post(engine, "/generate_stream", {"inputs": "x"})[2])
        assert json.loads(streamed[0])["error_type"] == "overloaded"
        chat = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        status, reply = post_json(engine, "/v1/chat/completions", chat)
        assert (status, reply) == (
            422, {"error": "Template error: template not found", "error_type": "template_error"}
        )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "options", "status"),
    [
        (["--model-id", "bigcode/starcoder2-3b"], [], 422),
        (["--model-id", "bigcode/starcoder2-3b", "--tokenizer-config-path", "/data/chat.json"], [], 200),
        ([], ["--fault", "no-chat-template"], 422),
    ],
)
def test_base_models_have_no_chat_template(start_engine, args, options, status):
    with start_engine(*args, options=options) as engine:
        engine.wait_until_ready()
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
        assert post(engine, "/v1/chat/completions", chat)[0] == status
        assert post(engine, "/generate", {"inputs": "x", "parameters": {"max_new_tokens": 2}})[0] == 200
