"""Routes, shapes, statuses and error bodies, as bare HTTP."""

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


@pytest.mark.parametrize("path", ["/health", "/ping", "/"])
def test_health_is_an_empty_200(engine, path):
    status, headers, body = engine.request("GET", path)
    assert (status, body, headers["Content-Length"]) == (200, "", "0")


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
        status, headers, body = served.request("GET", "/docs")
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/html")
        assert "/api-doc/openapi.json" in body
        described[name] = json.loads(served.request("GET", "/api-doc/openapi.json")[2])["paths"]
    assert list(described["engine"]["/"]) == ["get", "post"]
    assert list(described["guarded"]["/generate"]) == ["post"]
    assert described["engine"].keys() - described["old"].keys() == {"/v1/models", "/chat_tokenize"}


def test_old_releases_stop_after_100_tokens_by_default(old, start_engine):
    reply = post_json(old, "/generate", {"inputs": "Tell a long story", "parameters": {"details": True}})[1]
    assert reply["details"]["generated_tokens"] <= 100


def test_unknown_route_and_wrong_method(engine):
    assert engine.request("GET", "/nothing")[0] == 404
    assert engine.request("GET", "/generate")[0] == 405
    assert engine.request("PUT", "/generate")[0] == 405
    assert post(engine, "/health", {})[0] == 405


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


def test_native_stream(engine):
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 3}}
    status, headers, text = post(engine, "/generate_stream", body)
    parts = [json.loads(event) for event in events(text)]
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    assert [part["index"] for part in parts] == [1, 2, 3]
    assert [part["generated_text"] for part in parts[:-1]] == [None, None]
    assert parts[-1]["generated_text"] == "".join(part["token"]["text"] for part in parts)
    assert parts[-1]["details"] == {
        "finish_reason": "length", "generated_tokens": 3, "seed": None, "input_length": 1
    }  # fmt: skip
    assert parts[-1]["generated_text"] == post_json(engine, "/generate", body)[1]["generated_text"]


def test_grammar_gives_json(engine):
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "size": {"type": "integer"}}}
    for grammar in ({"type": "json", "value": schema}, {"type": "json", "value": json.dumps(schema)}):
        body = {"inputs": "Where?", "parameters": {"grammar": grammar, "max_new_tokens": 30}}
        assert json.loads(post_json(engine, "/generate", body)[1]["generated_text"]) == {"city": "text", "size": 1}


def test_tokenize(engine):
    status, pieces = post_json(engine, "/tokenize", {"inputs": "Hello, wide world"})
    assert status == 200
    assert [piece["text"] for piece in pieces] == ["Hello", ",", " wide", " world"]
    assert [(piece["start"], piece["stop"]) for piece in pieces] == [(0, 5), (5, 6), (6, 11), (11, 17)]


VALIDATION = [
    ({"inputs": ""}, "Input validation error: `inputs` cannot be empty"),
    ({"inputs": "word " * 45}, "`inputs` must have less than 40 tokens. Given: 46"),
    (
        {"inputs": "a b", "parameters": {"max_new_tokens": 63}},
        "`inputs` tokens + `max_new_tokens` must be <= 64. Given: 2 `inputs` tokens and 63 `max_new_tokens`",
    ),
    ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, "`max_new_tokens` must be strictly positive"),
    ({"inputs": "a", "parameters": {"temperature": 0}}, "`temperature` must be strictly positive"),
    ({"inputs": "a", "parameters": {"top_p": 1.0}}, "`top_p` must be > 0.0 and < 1.0"),
    ({"inputs": "a", "parameters": {"top_k": 0}}, "`top_k` must be strictly positive"),
    ({"inputs": "a", "parameters": {"best_of": 3}}, "`best_of` must be > 0 and <= 2. Given: 3"),
    ({"inputs": "a", "parameters": {"truncate": 41}}, "`truncate` must be strictly positive and less than 40"),
    ({"inputs": "a", "parameters": {"stop": ["x", "y", "z"]}}, "`stop` supports up to 2 stop sequences. Given: 3"),
    ({"inputs": "a", "parameters": {"top_n_tokens": 6}}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"),
    ({"inputs": "a", "parameters": {"frequency_penalty": 3}}, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
]


@pytest.mark.parametrize(("body", "message"), VALIDATION)
def test_validation_errors(engine, body, message):
    status, reply = post_json(engine, "/generate", body)
    assert (status, reply["error_type"]) == (422, "validation")
    assert message in reply["error"]
    # A stream tells the same inside a 200.
    status, headers, text = post(engine, "/generate_stream", body)
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    assert [json.loads(event) for event in events(text)] == [reply]


def test_best_of(engine):
    def reply(path="/generate", **parameters):
        return post(engine, path, {"inputs": "a", "parameters": {"best_of": 2, "max_new_tokens": 2, **parameters}})[2]

    assert "you must use sampling when `best_of` is > 1" in reply()
    assert "`seed` must not be set when `best_of` > 1" in reply(do_sample=True, seed=1)
    assert "`best_of` != 1 is not allowed when streaming tokens" in reply("/generate_stream", do_sample=True)
    details = json.loads(reply(do_sample=True, details=True))["details"]
    assert len(details["best_of_sequences"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ("{not json", 400, "Failed to parse the request body as JSON"),
        ('{"inputs": "a", "parameters": {"temperature": NaN}}', 400, "Failed to parse"),
        ('{"inputs": "\\ud800"}', 400, "Failed to parse"),
        ("[" * 3000, 400, "Failed to parse"),
        ("[1]", 422, "Failed to deserialize the JSON body into the target type"),
        ({}, 422, "missing field `inputs`"),
        ({"inputs": 5}, 422, "expected a string"),
        ({"inputs": "a", "parameters": {"max_new_tokens": "many"}}, 422, 'invalid type: string "many"'),
        ({"inputs": "a", "parameters": {"details": 1}}, 422, "expected a boolean"),
        ({"inputs": "a", "parameters": {"stop": "x"}}, 422, "expected a sequence of strings"),
        ({"inputs": "a", "parameters": {"grammar": "json"}}, 422, "expected grammar"),
        ({"inputs": "a" * 6000}, 413, "length limit exceeded"),
    ],
)
def test_the_framework_refuses_bodies_in_plain_text(engine, body, status, fragment):
    found, headers, text = post(engine, "/generate", body)
    assert found == status
    assert headers["Content-Type"].startswith("text/plain")
    assert fragment in text


def test_a_body_of_another_type_is_refused(engine):
    assert engine.request("POST", "/generate", "x=1", {"Content-Type": "text/plain"})[0] == 415


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({}, "missing field `messages`"),
        ({"messages": [{"content": "x"}]}, "missing field `role`"),
        ({"messages": [{"role": "user", "content": 5}]}, "missing field `content`"),
        ({"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}, "temperature: invalid type"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": -1}, "max_tokens: invalid value"),
        ({"messages": [{"role": "user", "content": "x"}], "stop": 3}, "stop: invalid type"),
    ],
)
def test_chat_bodies_of_the_wrong_shape(engine, body, fragment):
    status, _, text = post(engine, "/v1/chat/completions", body)
    assert status == 422
    assert fragment in text


def test_chat_stream_errors_arrive_as_events(engine):
    body = {"messages": [{"role": "user", "content": "word " * 60}], "stream": True}
    status, _, text = post(engine, "/v1/chat/completions", body)
    first, *_, last = events(text)
    assert status == 200
    assert json.loads(first)["error"]["http_status_code"] == 422
    assert last == "[DONE]"


def test_chat_tool_call(engine):
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    body = {
        "messages": [{"role": "user", "content": "Rain?"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
    }
    choice = post_json(engine, "/v1/chat/completions", body)[1]["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    call = choice["message"]["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("weather", {"city": "text"})
    missing = {**body, "tool_choice": {"type": "function", "function": {"name": "other"}}}
    status, reply = post_json(engine, "/v1/chat/completions", missing)
    assert (status, reply["error_type"]) == (422, "tool_error")


def test_completions(engine):
    status, reply = post_json(engine, "/v1/completions", {"prompt": ["one", "two"], "max_tokens": 3})
    assert status == 200
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}
    status, refusal = post_json(engine, "/v1/completions", {"prompt": "one", "suffix": "x"})
    assert (status, refusal["error_type"]) == (422, "validation")
    assert post(engine, "/v1/completions", {"prompt": ["a"] * 5})[0] == 422
    assert post(engine, "/v1/completions", {"prompt": 4})[0] == 422


def test_invocations_take_any_of_three_bodies(engine):
    native = {"inputs": "hello", "parameters": {"max_new_tokens": 2}}
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    plain = {"prompt": "hello", "max_tokens": 2}
    assert isinstance(post_json(engine, "/invocations", native)[1], list)
    assert post_json(engine, "/invocations", chat)[1]["object"] == "chat.completion"
    assert post_json(engine, "/invocations", plain)[1]["object"] == "text_completion"


def test_vertex(engine):
    instance = {"inputs": "hello", "parameters": {"max_new_tokens": 2}}
    assert len(post_json(engine, "/vertex", {"instances": [instance, instance]})[1]["predictions"]) == 2
    assert post(engine, "/vertex", {})[0] == 422


def test_chat_tokenize(engine):
    body = {"messages": [{"role": "user", "content": "hi"}]}
    status, reply = post_json(engine, "/chat_tokenize", body)
    assert status == 200
    assert "".join(piece["text"] for piece in reply["tokenize_response"]) == reply["templated_text"]


def test_one_connection_serves_many_requests(engine):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=30)
    for path, status in (("/generate", 422), ("/nothing", 404), ("/generate", 422)):
        connection.request("POST", path, json.dumps({"inputs": ""}), JSON)
        reply = connection.getresponse()
        assert reply.status == status
        reply.read()
    connection.close()


def test_the_key_guards_inference_alone(guarded):
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


def test_metrics_count_for_real(start_engine):
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


def test_faults_that_show_only_over_http(start_engine):
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
        ([], ["--no-chat-template"], 422),
    ],
)
def test_base_models_have_no_chat_template(start_engine, args, options, status):
    with start_engine(*args, options=options) as engine:
        engine.wait_until_ready()
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
        assert post(engine, "/v1/chat/completions", chat)[0] == status
        assert post(engine, "/generate", {"inputs": "x", "parameters": {"max_new_tokens": 2}})[0] == 200
