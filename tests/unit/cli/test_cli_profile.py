"""Profiles created from a directory: the draft is valid, and gives the same plan as the directory."""

from __future__ import annotations

import json

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
AWQ = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


@pytest.fixture
def model(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(json.dumps(getattr(request, "param", LLAMA)))
    (tmp_path / "mine" / "models").mkdir(parents=True)
    return tmp_path


def data(capsys, *argv):
    exit_code = frame.run(ROOT, [*argv, "--json"])
    out, err = capsys.readouterr()
    assert exit_code == 0, out + err
    return json.loads(out)["data"]


@pytest.mark.parametrize("model", [LLAMA, AWQ], ids=["plain", "quantized"], indirect=True)
def test_a_draft_is_valid_and_gives_the_same_plan(model, capsys):
    assert frame.run(ROOT, ["profile", "new", "./my-model", "--out", "mine/models/mine.toml"]) == 0
    validated = data(capsys, "profile", "validate", "mine/models/mine.toml")["profile"]
    assert validated["name"] == "mine"
    from_draft = data(capsys, "plan", "mine", "--profiles-dir", "mine", "--hardware", "1xL4")["plan"]
    from_directory = data(capsys, "plan", "./my-model", "--hardware", "1xL4")["plan"]
    assert from_draft["chosen"] == from_directory["chosen"]
    assert from_draft["memory"] == from_directory["memory"]


def test_without_out_the_draft_goes_to_stdout(model, capsys):
    assert frame.run(ROOT, ["profile", "new", "./my-model"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# The model's id on the hub")
    assert "attention_heads = 32\n" in out


def test_user_profiles_are_listed(model, capsys):
    frame.run(ROOT, ["profile", "new", "./my-model", "--out", "mine/models/mine.toml"])
    capsys.readouterr()
    names = [item["name"] for item in data(capsys, "profile", "list", "--profiles-dir", "mine")["profiles"]]
    assert "mine" in names
    assert "llama3-13b" in names


def test_validating_writes_nothing(model, capsys, monkeypatch, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    frame.run(ROOT, ["profile", "new", "./my-model", "--out", "mine/models/mine.toml"])
    data(capsys, "profile", "validate", "mine/models/mine.toml")
    assert list(temporary.iterdir()) == []


def test_an_invalid_profile_is_named_by_its_own_path(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drafts").mkdir()
    (tmp_path / "drafts" / "mine.toml").write_text('model = "llama3-13b"\n')
    assert frame.run(ROOT, ["profile", "validate", "drafts/mine.toml"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[bad_profile]: drafts/mine.toml: ")
    assert "models/" not in err


def test_a_runbook_keeps_the_profiles_in_a_file_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    words = ("runbook", "qwen2.5-7b", "--budget", "5", "--profiles-dir", "mine")
    assert frame.run(ROOT, [*words, "--out", "RUNBOOK.md"]) == 0
    written = (tmp_path / "RUNBOOK.md").read_text()
    assert "tgi-deploy up --profiles-dir mine qwen2.5-7b" in written
    capsys.readouterr()
    assert frame.run(ROOT, words) == 0
    assert capsys.readouterr().out == written
