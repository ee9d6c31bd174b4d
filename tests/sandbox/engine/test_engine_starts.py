"""Cases as files: launcher arguments and a machine → exit code, stderr and log."""

from __future__ import annotations

import json
import socket
import threading
from io import StringIO
from pathlib import Path

import pytest

from tgi_deploy.sandbox.engine.launcher import image_environment, run
from tgi_deploy.sandbox.engine.situation import Container, Fault, Host, Pace
from tgi_deploy.values.base import replaced

CASES = sorted((Path(__file__).parents[2] / "cases/engine/starts").glob("*.json"))
SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"
KEYS = {
    "args", "exit_code", "stderr", "log", "not_log",
    "version", "accelerator", "gpus", "environ", "faults", "stop_at", "stop_count",
}  # fmt: skip


def _container(case, catalog, out, err, *, stopping=None, listen=("127.0.0.1", 0)):
    release = catalog.release(case.get("version", "3.3.7"))
    accelerator = catalog.accelerator(case.get("accelerator", "L40S"))
    return Container(
        release=release,
        host=Host(accelerator=accelerator, gpus=case.get("gpus", 1), memory_bytes=accelerator.memory_bytes),
        environ={**image_environment(release), "NO_COLOR": "1", **case.get("environ", {})},
        faults=frozenset(map(Fault, case.get("faults", []))),
        models=catalog,
        listen=listen,
        pace=Pace(speed=1e7, stopping=stopping or threading.Event()),
        out=out,
        err=err,
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_start(path, catalog, watched):
    case = json.loads(path.read_text(encoding="utf-8"))
    assert case.keys() <= KEYS
    stopping = threading.Event()
    out = watched(case.get("stop_at", "Connected"), case.get("stop_count", 1), stopping)
    err = StringIO()

    code = run(_container(case, catalog, out, err, stopping=stopping), case.get("args", []))

    assert (code, err.getvalue() == "") == (case["exit_code"], case["exit_code"] == 0), err.getvalue()
    for fragment in case.get("stderr", []):
        assert fragment in err.getvalue()
    for fragment in case.get("log", []):
        assert fragment in out.getvalue()
    for fragment in case.get("not_log", []):
        assert fragment not in out.getvalue()


def test_a_local_directory_needs_no_hub(catalog, watched, tiny_model):
    stopping = threading.Event()
    out, err = watched("Connected", 1, stopping), StringIO()
    container = _container({"faults": ["network"]}, catalog, out, err, stopping=stopping)
    assert run(container, ["--model-id", str(tiny_model)]) == 0
    assert "Files are already present on the host. Skipping download." in out.getvalue()
    assert "Using the Hugging Face API" not in out.getvalue()


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("config.json", "RuntimeError: Could not determine model type for {model} revision None"),
        ("tokenizer", "OSError: Can't load tokenizer for '{model}'."),
    ],
)
def test_a_local_directory_without_a_file_fails_the_shard(catalog, tiny_model, tmp_path, missing, reason):
    model = tmp_path / "model"
    model.mkdir()
    for file in tiny_model.iterdir():
        if not file.name.startswith(missing):
            (model / file.name).write_bytes(file.read_bytes())
    out, err = StringIO(), StringIO()
    assert run(_container({}, catalog, out, err), ["--model-id", str(model)]) == 1
    assert reason.format(model=model) in out.getvalue()
    assert err.getvalue() == "Error: ShardCannotStart\n"


def test_sharding_without_a_number_panics(catalog):
    out, err = StringIO(), StringIO()
    container = _container({}, catalog, out, err)
    environ = {name: value for name, value in container.environ.items() if name != "NVIDIA_VISIBLE_DEVICES"}
    assert run(replaced(container, environ=environ), ["--sharded", "true"]) == 101
    words = "--num-shard and CUDA_VISIBLE_DEVICES/NVIDIA_VISIBLE_DEVICES/ZE_AFFINITY_MASK are not set"
    assert err.getvalue().splitlines()[-1] == words
    assert f"Parsing num_shard from {words.split()[2]}" in out.getvalue()


def test_a_port_in_use_is_detected_after_connecting(catalog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        out, err = StringIO(), StringIO()
        container = _container({}, catalog, out, err, listen=taken.getsockname())
        assert run(container, ["--model-id", SMALL, "--num-shard", "1"]) == 1
    result = [
        "server.rs:2302: Connected", "Failed to bind to 127.0.0.1:", "Address already in use (os error 98)",
        'Error: WebServer(Axum(Os { code: 98, kind: AddrInUse, message: "Address already in use" }))',
        "Webserver Crashed", "Shutting down shards", "shard terminated",
    ]  # fmt: skip
    places = [out.getvalue().index(words) for words in result]
    assert places == sorted(places)
    assert err.getvalue() == "Error: WebserverFailed\n"
