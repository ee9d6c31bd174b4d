"""The parts in isolation: parsing, tokens, generation, examples, metrics, logs."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest

from tgi_deploy.sandbox.engine.bodies import ApiError, parameters, read
from tgi_deploy.sandbox.engine.flags import ExitError, parse
from tgi_deploy.sandbox.engine.generator import Generation, Query, Tokenizer, example, forced_text, generate
from tgi_deploy.sandbox.engine.inference import Metrics
from tgi_deploy.sandbox.engine.launcher import cache_folder, devices_found, image_environment, prepare
from tgi_deploy.sandbox.engine.logs import Log
from tgi_deploy.sandbox.engine.memory import capacity
from tgi_deploy.sandbox.engine.routes import token_list
from tgi_deploy.sandbox.engine.situation import Container, Host, Pace, find_checkpoint
from tgi_deploy.values.engine import Flag

FLAGS = {
    flag.name: flag
    for flag in (
        Flag(name="--model-id", env="MODEL_ID", kind="string", default="bigscience/bloom-560m"),
        Flag(name="--num-shard", env="NUM_SHARD", kind="uint"),
        Flag(name="--dtype", env="DTYPE", kind="enum", values=("float16", "bfloat16")),
        Flag(name="--cuda-graphs", env="CUDA_GRAPHS", kind="list[uint]"),
        Flag(name="--cuda-memory-fraction", env="CUDA_MEMORY_FRACTION", kind="float", default=1.0),
        Flag(name="--trust-remote-code", env="TRUST_REMOTE_CODE", kind="bool", default=False, switch=True),
        Flag(name="--sharded", env="SHARDED", kind="bool"),
        Flag(name="--env", env=None, kind="bool", default=False, switch=True),
        Flag(name="--api-key", env="API_KEY", kind="string"),
    )
}
TOKENIZER = Tokenizer(vocab_size=32000)


def parsed(line="", **environ):
    return parse(FLAGS, line.split(), environ).values


def test_defaults_then_environment_then_command_line():
    assert parsed()["model-id"] == "bigscience/bloom-560m"
    assert parsed(MODEL_ID="a/b")["model-id"] == "a/b"
    assert parsed("--model-id c/d", MODEL_ID="a/b")["model-id"] == "c/d"
    assert parsed("--model-id=c=d")["model-id"] == "c=d"


def test_values_get_their_types():
    values = parsed("--num-shard 2 --cuda-graphs 1,2 --cuda-graphs 4 --cuda-memory-fraction 0.5 --sharded false")
    assert values["num-shard"] == 2
    assert values["cuda-graphs"] == (1, 2, 4)
    assert values["cuda-memory-fraction"] == 0.5
    assert values["sharded"] is False


def test_switches_and_short_options():
    assert parsed("--trust-remote-code -e")["trust-remote-code"] is True
    assert parsed("-e")["env"] is True
    assert parsed(TRUST_REMOTE_CODE="true")["trust-remote-code"] is True
    assert parsed(ENV="true")["env"] is False


@pytest.mark.parametrize("line", ["word", "-x", "--", "--num-shard 1.5", "--num-shard ٣", "--dtype FLOAT16", "--nope"])
def test_invalid_arguments_are_rejected(line):
    with pytest.raises(ExitError, match="For more information, try '--help'"):
        parsed(line)


def test_the_debug_form_prints_the_key_on_its_own_line():
    lines = parse(FLAGS, ["--api-key", 'a"b', "--dtype", "bfloat16"], {}).debug().splitlines()
    assert lines[0] == "Args {"
    assert lines[-1] == "}"
    assert lines[lines.index("    api_key: Some(") + 1] == '        "a\\"b",'
    assert lines[lines.index("    dtype: Some(") + 1] == "        Bfloat16,"
    assert "    trust_remote_code: false," in lines


@pytest.mark.parametrize(
    ("version", "environ", "count"),
    [
        ("3.3.7", {}, 4),
        ("3.3.7", {"NVIDIA_VISIBLE_DEVICES": "void"}, 4),
        ("3.3.6", {}, 1),
        ("3.3.6", {"NVIDIA_VISIBLE_DEVICES": "0,1,2"}, 3),
        ("3.3.7", {"CUDA_VISIBLE_DEVICES": "1"}, 1),
    ],
)
def test_devices_are_detected(catalog, version, environ, count):
    release, card = catalog.release(version), catalog.accelerator("L4")
    host = Host(accelerator=card, gpus=4, memory_bytes=card.memory_bytes)
    assert devices_found({**image_environment(release), **environ}, host, release) == count


def test_no_device_variable_means_no_count(catalog):
    release, card = catalog.release("3.3.7"), catalog.accelerator("L4")
    assert devices_found({}, Host(accelerator=card, gpus=4, memory_bytes=card.memory_bytes), release) is None


def test_checkpoints_come_from_shapes_and_published_copies(catalog):
    release = catalog.release("3.3.7")
    own = find_checkpoint(catalog, release, "elinas/Llama-3-13B-Instruct")
    copy = find_checkpoint(catalog, release, "TheBloke/CodeLlama-7B-AWQ")
    assert (own.weights.name, copy.weights.name) == ("none", "awq")
    assert copy.stored_bytes < 5e9 < own.stored_bytes
    assert len(own.files()) == 6
    assert copy.files() == ("model.safetensors",)
    assert own.exists
    assert not find_checkpoint(catalog, release, "llama3-13b").exists
    assert not find_checkpoint(catalog, release, "nobody/nothing").exists


def tokens(catalog, version, card, line, memory_bytes=None, **environ):
    """The cache's tokens of the launcher's command line on one card."""
    release, accelerator = catalog.release(version), catalog.accelerator(card)
    memory = accelerator.memory_bytes if memory_bytes is None else memory_bytes
    container = Container(
        release=release, host=Host(accelerator=accelerator, gpus=1, memory_bytes=memory),
        environ={**image_environment(release), **environ}, faults=frozenset(), models=catalog,
        listen=("127.0.0.1", 0), pace=Pace(speed=1e9), out=StringIO(), err=StringIO(),
    )  # fmt: skip
    return capacity(prepare(container, line.split())).tokens


def test_quantizing_leaves_more_memory_for_the_cache(catalog):
    def on_l40s(more="", **environ):
        line = f"--model-id elinas/Llama-3-13B-Instruct --max-batch-prefill-tokens 2048 --max-total-tokens 8192 {more}"
        return tokens(catalog, "3.3.7", "L40S", line, **environ)

    assert on_l40s() < on_l40s("--quantize eetq") < on_l40s("--quantize bitsandbytes-nf4")
    assert on_l40s() < on_l40s("--kv-cache-dtype fp8_e4m3fn")
    assert on_l40s("--cuda-memory-fraction 0.8") < on_l40s()
    assert on_l40s(ATTENTION="flashdecoding") % 256 == 0


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HF_HOME": "/data"}, "/data/hub/models--a--b/"),
        ({"HUGGINGFACE_HUB_CACHE": "/data"}, "/data/models--a--b/"),
        ({"HUGGINGFACE_HUB_CACHE": "/elsewhere", "HF_HOME": "/data"}, "/elsewhere/models--a--b/"),
    ],
)
def test_cache_folder(environ, folder):
    class Named:
        model_id = "a/b"
        commit = "c0ffee"

    assert cache_folder(Named(), environ) == f"{folder}snapshots/c0ffee"


@pytest.mark.parametrize("text", ["Hello, world", "  two\n\tlines", "naïve café", "漢字かな", "🙂🙂", "a_b-c" * 40, ""])
def test_pieces_join_to_the_text(text):
    pieces = TOKENIZER.encode(text)
    assert "".join(piece.text for piece in pieces) == text
    assert all(0 < piece.id < TOKENIZER.vocab_size for piece in pieces)
    assert all(text[item["start"] : item["stop"]] == item["text"] for item in token_list(pieces))


def steps(prompt="prompt", limit=500, **given):
    query = Query(route="generate", inputs=prompt, parameters=parameters(**given))
    generation = Generation(query=query, pieces=TOKENIZER.encode(prompt), max_new_tokens=limit)
    return list(generate(generation, TOKENIZER))


def test_generation_ends_by_itself():
    every = steps()
    assert every[-1].finish_reason == "eos_token"
    assert every[-1].token.special
    assert all(step.finish_reason is None for step in every[:-1])


def test_alternatives_do_not_change_the_text():
    plain, rich = steps(), steps(top_n_tokens=3)
    assert [step.token for step in plain] == [step.token for step in rich]
    assert all(len(step.top) == 3 and step.top[0] == step.token for step in rich)


def test_limit_and_stop():
    assert [step.finish_reason for step in steps(limit=2)] == [None, "length"]
    second = steps(limit=2)[1].token.text
    assert steps(stop=[second])[-1].finish_reason == "stop_sequence"


def test_prompts_differ():
    assert [step.token for step in steps("one")] != [step.token for step in steps("two")]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text"),
        ({"const": 7}, 7),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": ["integer", "null"]}, 1),
        ({"type": "array", "items": {"type": "number"}}, [1.5]),
        ({"type": "array"}, []),
        ({"properties": {"a": {"type": "object"}}}, {"a": {}}),
        ("nonsense", {}),
    ],
)
def test_examples(schema, value):
    assert example(schema) == value


def test_a_grammar_with_an_unknown_type_is_invalid():
    """As TGI 3.3.7 answered on a CPU on 2026-11-22."""
    words = "\"bogus\" is not valid under any of the schemas listed in the 'anyOf' keyword"
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "bogus"}}}}
    with pytest.raises(ApiError) as error:
        forced_text(read({"type": "json", "value": schema}, "GrammarType"))
    assert error.value.body["error"] == f"Input validation error: grammar is not valid: {words}"


def test_examples_of_endless_schemas_end():
    schema = {"type": "object", "properties": {}}
    schema["properties"]["again"] = schema
    assert json.dumps(example(schema)).count("again") == 12


def test_metrics_text():
    metrics = Metrics(500, 600)
    assert metrics.render() == ""
    metrics.add("tgi_request_failure", label='err="x"')
    metrics.add("tgi_request_failure", label='err="x"')
    metrics.add("tgi_queue_size", 2)
    metrics.add("tgi_queue_size", -1)
    metrics.observe("tgi_request_input_length", 53)
    lines = metrics.render().splitlines()
    assert lines[:3] == ["# TYPE tgi_request_failure counter", 'tgi_request_failure{err="x"} 2', ""]
    assert lines[3:6] == ["# HELP tgi_queue_size Current queue size", "# TYPE tgi_queue_size gauge", "tgi_queue_size 1"]
    assert 'tgi_request_input_length_bucket{le="50"} 0' in lines
    assert 'tgi_request_input_length_bucket{le="55"} 1' in lines
    assert lines[-4:] == [
        'tgi_request_input_length_bucket{le="+Inf"} 1', "tgi_request_input_length_sum 53",
        "tgi_request_input_length_count 1", "",
    ]  # fmt: skip


def test_pauses_end_on_a_stop_request():
    event = threading.Event()
    pace = Pace(speed=1e9, stopping=event)
    pace.pause(3600)
    event.set()
    for seconds in (0, 1, float("inf")):
        with pytest.raises(ExitError):
            pace.pause(seconds)


def test_log_shapes():
    out = StringIO()
    log = Log(
        out=out, launcher_color=False, router_color=False,
        now=lambda: datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    )  # fmt: skip
    log.launcher("Starting shard", span="shard-manager", rank=1)
    log.router("Connected", level="WARN", line=7)
    log.json_output = True
    log.launcher("two\nlines")
    log.router("Connected")
    launcher, router, launcher_json, router_json = out.getvalue().splitlines()
    stamp = "2026-01-02T03:04:05.000006Z"
    assert launcher == f"{stamp}  INFO shard-manager: text_generation_launcher: Starting shard rank=1"
    assert router == f"{stamp}  WARN text_generation_router::server: router/src/server.rs:7: Connected"
    assert json.loads(launcher_json)["fields"] == {"message": "two\nlines"}
    assert json.loads(router_json)["message"] == "Connected"


def test_colors_are_those_of_the_recorded_lines():
    out = StringIO()
    log = Log(out=out, now=lambda: datetime(2026, 11, 22, 13, 49, 2, 437815, UTC))
    log.launcher("Starting shard", span="shard-manager", rank=0)
    log.router("Connected", line=2302)
    times = (0.007049474, 0.000445404, 0.000052859, 0.006551432, 0.003275716)
    log.answered(Query(route="generate", inputs="", parameters=parameters(max_new_tokens=2)), times, None)
    recorded = (Path(__file__).parents[2] / "cases/engine/coloured.txt").read_text(encoding="utf-8")
    assert out.getvalue().replace("\x1b", "ESC") == recorded


def test_the_token_capacity_matches_a_recorded_start(catalog):
    """Llama-3.1-8B on one A10G under TGI 2.2: "Setting max batch total tokens to 19056" (issue of September 2024)."""
    line = "--model-id meta-llama/Llama-3.1-8B-Instruct"
    found = tokens(catalog, "2.2.0", "A10G", line, memory_bytes=int(22.49 * 1024**3))
    assert found == pytest.approx(19056, rel=0.1)
