"""Cases as files: launcher arguments and a machine → exit code, stderr and log."""

from __future__ import annotations

import json
import threading
from io import StringIO
from pathlib import Path

import pytest

from tgi_deploy.sandbox.engine.container import Run, run
from tgi_deploy.sandbox.engine.faults import parse_faults
from tgi_deploy.sandbox.engine.host import Host, image_environment
from tgi_deploy.sandbox.engine.pace import Pace
from tgi_deploy.sandbox.engine.startup import Container

CASES = sorted((Path(__file__).parents[2] / "cases/engine/starts").glob("*.json"))
KEYS = {
    "args", "exit_code", "stderr", "log", "not_log",
    "version", "accelerator", "gpus", "environ", "faults", "stop_at", "stop_count",
}  # fmt: skip


def _container(case, catalog):
    release = catalog.release(case.get("version", "3.3.7"))
    accelerator = catalog.accelerator(case.get("accelerator", "L40S"))
    return Container(
        release=release,
        host=Host(accelerator=accelerator, gpus=case.get("gpus", 1), memory_bytes=accelerator.memory_bytes),
        environ={**image_environment(release), "NO_COLOR": "1", **case.get("environ", {})},
        faults=parse_faults(case.get("faults", [])),
        models=catalog,
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_start(path, catalog, watched):
    case = json.loads(path.read_text(encoding="utf-8"))
    assert case.keys() <= KEYS
    stopping = threading.Event()
    out = watched(case.get("stop_at", "Connected"), case.get("stop_count", 1), stopping)
    err = StringIO()
    options = Run(
        listen=("127.0.0.1", 0), pace=Pace(speed=1e7, stopping=stopping), chat_template=True, out=out, err=err
    )

    code = run(_container(case, catalog), case.get("args", []), options)

    assert (code, err.getvalue() == "") == (case["exit_code"], case["exit_code"] == 0), err.getvalue()
    for fragment in case.get("stderr", []):
        assert fragment in err.getvalue()
    for fragment in case.get("log", []):
        assert fragment in out.getvalue()
    for fragment in case.get("not_log", []):
        assert fragment not in out.getvalue()


def test_a_local_directory_needs_no_hub(catalog, watched, tmp_path):
    shape = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000,
        "max_position_embeddings": 2048, "torch_dtype": "float16", "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    stopping = threading.Event()
    out, err = watched("Connected", 1, stopping), StringIO()
    options = Run(
        listen=("127.0.0.1", 0), pace=Pace(speed=1e7, stopping=stopping), chat_template=True, out=out, err=err
    )
    assert run(_container({"faults": ["network"]}, catalog), ["--model-id", str(tmp_path)], options) == 0
    assert "Files are already present on the host. Skipping download." in out.getvalue()
    assert "Using the Hugging Face API" not in out.getvalue()
