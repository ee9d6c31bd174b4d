"""Folders that pretend to be models: errors are named, within limits of time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from mutations import models
from mutations.changes import Raw
from mutations.trial import trials

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.catalog.safetensors import Tensor
from tgi_deploy.catalog.tensors import contents

BASE = models.MODELS["Qwen/Qwen2.5-0.5B-Instruct", None]
# A separate process, because VmHWM is the peak of the whole process.
MEASURED = """
import sys
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
code = frame.run(ROOT, ["plan", sys.argv[1], "--json"])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak) // 1024, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def trial(tmp_path):
    with trials(tmp_path) as found:
        yield found


def config(**changes):
    return {models.CONFIG: (models.dump(BASE.config | changes), None)}


def whole(**headers):
    """The model with the entries `headers` added to its first file."""
    files = {name: (content, None) for name, content in BASE.files().items() if name.endswith(".json")}
    for name, table, size in zip(models.SHARDS, BASE.headers, BASE.sizes, strict=True):
        more = headers if name == models.SHARDS[0] else {}
        files[name] = (models.head(table | more), size + 10_000_000)
    return files


@pytest.mark.parametrize(
    "files",
    [
        config(hidden_size=10**9, intermediate_size=10**9, num_hidden_layers=10**9),
        config(num_attention_heads=10**30),
        config(vocab_size=Raw("9" * 5000)),
        config(quantization_config={"quant_method": "awq", "bits": Raw("NaN")}),
        config(num_experts=8, num_experts_per_tok=9, moe_intermediate_size=1),
        config(num_experts=8, num_experts_per_tok=2, first_k_dense_replace=1000),
        config(model_type="deepseek_v2", kv_lora_rank=512, v_head_dim="x"),
        config(model_type="deepseek_v2", kv_lora_rank=512, qk_rope_head_dim=[64]),
        config(model_type="\ud800"),
        config(text_config={"model_type": ["llama"]}, hidden_size=None),
        {models.CONFIG: (b'{"a":' * 100_000, None)},
    ],
    ids=lambda files: ascii(files[models.CONFIG][0][-60:]),
)
def test_an_incomplete_config_is_rejected(files, trial):
    assert trial.run("plan", str(trial.folder(files))) == (2, "bad_model_config")


@pytest.mark.parametrize(
    "kind", ["fifo", "folder", "/dev/zero", "/dev/full", "/no/such/file", "config.json", "/proc/kmsg"]
)
def test_a_config_that_is_not_a_file(kind, trial):
    assert trial.run("plan", str(trial.folder({models.CONFIG: (models.Special(kind), None)}))) == (2, "unreadable_path")


def test_a_config_that_is_too_large(trial):
    assert trial.run("plan", str(trial.folder({models.CONFIG: (b"{}", 33 * 2**20)}))) == (2, "unreadable_path")


def test_state_space_configs_may_contain_infinity(trial):
    files = config(time_step_limit=[0.0, Raw("Infinity")])
    assert trial.run("plan", str(trial.folder(files)), "--hardware", "1xL4") == (0, "ok")


@pytest.mark.parametrize(
    "entries",
    [
        {"model.layers." + "9" * 5000 + ".x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
        {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0.0, 8.0]}},
        {"x": {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]}},
        {"x": {"dtype": "F4", "shape": [10**30, 2], "data_offsets": [0, 10**30]}},
        {"x": {"dtype": "U8", "shape": [Raw("9" * 5000)], "data_offsets": [0, 1]}},
        {"x\ud800": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
    ],
    ids=lambda entries: ascii(next(iter(entries.values())))[:60],
)
def test_a_header_that_describes_no_tensors(entries, trial):
    assert trial.run("plan", str(trial.folder(whole(**entries)))) == (2, "bad_checkpoint")


@pytest.mark.parametrize(
    "entries",
    [
        {
            "model.layers.0.a.q_weight": {"dtype": "I32", "shape": [8, 8], "data_offsets": [0, 256]},
            "model.layers.0.a.q_perm": {"dtype": "I32", "shape": [8], "data_offsets": [0, 32]},
            "model.layers.0.a.q_scale": {"dtype": "I32", "shape": [], "data_offsets": [0, 4]},
        },
        {"model.layers.0.self_attn.q_scale": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}},
        {"model.layers.#.x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
        {"model.layers.\u0661.x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
    ],
)
def test_unusual_but_valid_tensors_are_accepted(entries, trial):
    assert trial.run("plan", str(trial.folder(whole(**entries))), "--hardware", "1xL4") == (0, "ok")


def test_exl2_parts_count_in_any_order_and_file():
    parts = (
        Tensor(name="a.q_weight", dtype="I32", shape=(5, 8), size_bytes=160),
        Tensor(name="a.q_invperm", dtype="I32", shape=(32,), size_bytes=128),
        Tensor(name="a.q_scale", dtype="I32", shape=(1, 16), size_bytes=64),
    )
    counted = {
        contents(order, layers=1, tied=False, quantization=None).parameters for order in (parts, tuple(reversed(parts)))
    }
    assert counted == {32 * 16 * 8}


def test_a_duplicate_name_counts_once():
    tensor = Tensor(name="a.weight", dtype="F32", shape=(2, 3), size_bytes=24)
    assert contents([tensor, tensor], layers=1, tied=False, quantization=None).parameters == 6


def test_weights_with_an_invalid_name_are_reported(trial):
    folder = trial.folder(config())
    header = models.head({"__metadata__": {}})
    (folder / os.fsdecode(b"\xff\x1b.safetensors")).write_bytes(header)
    assert trial.run("plan", str(folder)) == (2, "bad_checkpoint")


def test_a_profile_nested_too_deep_is_named(tmp_path):
    path = tmp_path / "models"
    path.mkdir()
    (path / "mine.toml").write_text("x = " + "[" * 5000)
    with pytest.raises(Exception, match=r"mine\.toml") as caught:
        Catalog.open(tmp_path).resolve("mine")
    assert caught.value.code == "bad_profile"


def measured(folder, home):
    environ = {**os.environ, "TGI_DEPLOY_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        timeout=60,
    )
    errors = json.loads(done.stdout)["errors"]
    return int(done.stderr), errors[0]["message"]


def big(header_bytes, fill):
    """Create six sparse files whose headers have that many bytes."""
    files = config()
    for number in range(1, 7):
        head = header_bytes.to_bytes(8, "little") + fill(header_bytes)
        files[f"model-{number:05}-of-00006.safetensors"] = (head, header_bytes + 8)
    return files


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells the peak")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("header_bytes", "fill", "says"),
    [
        (99_000_000, lambda _: b"", "its header has 99,000,000 bytes"),
        (24_000_000, b"{}".ljust, "more than 100,000,000 bytes in total"),
        (9_500_000, (b'{"a":["' + "🚀".encode() + b"x" * 9_000_000 + b'"]}').ljust, "has an invalid entry"),
        (1_900_000, (b'{"a":[' + b"{}," * 600_000 + b"{}]}").ljust, "larger than its memory limit"),
        (1_300_000, (b'{"a":[' + b"[]," * 420_000 + b"[]]}").ljust, "has an invalid entry"),
    ],
    ids=["99 MB each", "spaces", "wide characters", "too many tables", "as many lists as are allowed"],
)
def test_six_headers_stay_within_300_mb(header_bytes, fill, says, trial, tmp_path):
    peak_mib, message = measured(trial.folder(big(header_bytes, fill)), tmp_path / "state")
    assert says in message
    assert peak_mib < 300
