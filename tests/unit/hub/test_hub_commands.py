"""Hub models on the command line: planned, drafted, rendered; offline, without the extra, with few imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib

import pytest
from fakes import checkpoints
from fakes.hub_server import TOKEN, running_hub

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.data_files import profiles_dir

SHAPES = json.loads((profiles_dir() / "models" / "shapes.json").read_text())["shapes"]
TOUCHED = """
import sys
from tgi_deploy.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("huggingface_hub" in sys.modules, file=sys.stderr)
"""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        config = checkpoints.config_of(SHAPES["meta-llama/Llama-3.1-8B"])
        folder = tmp_path / "llama"
        running.add("acme/llama", checkpoints.write_tree(folder, config, checkpoints.tensors_of(config), shards=2))
        running.add("acme/gated", folder, gated=True)
        yield running


def run(capsys, *argv):
    exit_code = frame.run(ROOT, [*argv, "--json"])
    out, err = capsys.readouterr()
    assert exit_code == 0, out + err
    return json.loads(out)["data"]


def error(capsys, *argv):
    assert frame.run(ROOT, [*argv, "--json"]) == 2
    envelope = json.loads(capsys.readouterr().out)
    return envelope["errors"][0]


def test_plan_pins_the_commit(hub, capsys):
    made = run(capsys, "plan", "acme/llama", "--budget", "5")["plan"]
    assert made["model"]["id"] == "acme/llama"
    assert made["model"]["params"] == 8_030_261_248
    args = made["engine"]["args"]
    assert args[args.index("--revision") + 1] == hub.commit("acme/llama")


def test_a_hub_model_plans_like_the_same_shape_of_the_catalog(hub, capsys):
    own = run(capsys, "plan", "meta-llama/Llama-3.1-8B", "--budget", "5")["plan"]
    made = run(capsys, "plan", "acme/llama", "--budget", "5")["plan"]
    assert made["chosen"] == own["chosen"]
    assert made["memory"] == own["memory"]


def test_a_hub_model_is_predicted_like_the_same_shape_of_the_catalog(hub, capsys, tmp_path):
    words = ("--accelerator", "L4", "--concurrency", "4")
    assert error(capsys, "predict", "acme/llama", *words, "--offline")["code"] == "hub_offline"
    known = run(capsys, "predict", "meta-llama/Llama-3.1-8B", *words)
    assert run(capsys, "predict", "acme/llama", *words)["tpot_ms"] == known["tpot_ms"]
    asked = len(hub.requests)
    cases = tmp_path / "cases.csv"
    columns = "hub_id,weight_dtype,kv_dtype,gpu,tp,engine,input_len,output_len,concurrency_or_batch,load,metric"
    row = "bf16,fp16,L4,1,tgi,1024,256,4,closed_loop,tpot_ms"
    cases.write_text(f"{columns}\nacme/llama,{row}\nacme/never-read,{row}\n")
    read, unread = run(capsys, "predict", "--cases", str(cases))["predictions"]
    assert read["value"] == pytest.approx(known["tpot_ms"]["median"])
    assert "acme/never-read" in unread["error"]
    assert len(hub.requests) == asked


def test_the_same_plan_offline(hub, capsys):
    assert error(capsys, "plan", "acme/llama", "--offline")["code"] == "hub_offline"
    online = run(capsys, "plan", "acme/llama", "--budget", "5")
    asked = len(hub.requests)
    assert run(capsys, "plan", "acme/llama", "--budget", "5", "--offline") == online
    assert len(hub.requests) == asked


@pytest.mark.parametrize("value", ["1", "true", "ON"])
def test_the_hubs_offline_switch_is_respected(value, hub, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert error(capsys, "plan", "acme/llama")["code"] == "hub_offline"
    assert hub.requests == []


def test_without_the_extra(hub, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delitem(sys.modules, "tgi_deploy.hub.client", raising=False)
    found = error(capsys, "plan", "acme/llama")
    assert found["code"] == "extra_missing"
    assert "pip install 'huggingface" in found["hint"]


def test_gated_models_and_tokens(hub, capsys, monkeypatch):
    assert error(capsys, "plan", "acme/gated")["code"] == "hub_gated"
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    text = json.dumps(run(capsys, "plan", "acme/gated", "--budget", "5"))
    assert '"gated": true' in text
    assert TOKEN not in text


def test_a_draft_plans_without_the_hub(hub, capsys, tmp_path):
    (tmp_path / "mine" / "models").mkdir(parents=True)
    assert frame.run(ROOT, ["profile", "new", "acme/llama", "--out", "mine/models/mine.toml"]) == 0
    capsys.readouterr()
    drafted = tomllib.loads((tmp_path / "mine" / "models" / "mine.toml").read_text())
    assert drafted["hub_id"] == "acme/llama"
    assert drafted["shape"]["revision"] == hub.commit("acme/llama")
    assert drafted["shape"]["tensor_bytes"] == [["BF16", 16_060_522_496]]

    asked = len(hub.requests)
    from_draft = run(capsys, "plan", "mine", "--profiles-dir", "mine", "--budget", "5", "--offline")["plan"]
    from_hub = run(capsys, "plan", "acme/llama", "--budget", "5")["plan"]
    assert from_draft["engine"] == from_hub["engine"]
    assert from_draft["memory"] == from_hub["memory"]
    assert len(hub.requests) == asked


def test_a_draft_of_a_known_model_keeps_profile_facts(hub, capsys):
    drafted = tomllib.loads(run(capsys, "profile", "new", "qwen2.5-7b")["profile"]["text"])
    assert {entry["method"] for entry in drafted["quantized"]} == {"awq", "gptq"}
    assert hub.requests == []


def test_a_draft_notes_a_missing_chat_template(hub, capsys):
    folder = hub.models["acme/llama"]
    (folder / "tokenizer_config.json").write_text("{}")
    drafted = tomllib.loads(run(capsys, "profile", "new", "acme/llama")["profile"]["text"])
    assert drafted["chat"] is False
    assert drafted["shape"]["chat_template"] is False


def loads_the_client(*argv):
    finished = subprocess.run(
        [sys.executable, "-c", TOUCHED, *argv], capture_output=True, text=True, check=True, env=os.environ.copy()
    )
    return finished.stderr.splitlines()[-1] == "True"


@pytest.mark.slow
def test_the_hub_client_is_loaded_only_when_needed(hub):
    assert not loads_the_client("plan", "llama3-13b", "--budget", "5")
    assert not loads_the_client("plan", "./llama", "--hardware", "1xL40S")
    assert loads_the_client("plan", "acme/llama", "--budget", "5")
    assert not loads_the_client("plan", "acme/llama", "--budget", "5")
