"""Hub models through the real huggingface_hub client and a hub on loopback."""

from __future__ import annotations

import json

import pytest
from fakes import checkpoints
from fakes.hub_server import TOKEN, running_hub

from tgi_deploy.catalog.kept_models import KEPT_MODELS, CachedModels, models_folder
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.hub.client import HuggingFaceHub
from tgi_deploy.hub.models import HubModels
from tgi_deploy.sandbox.engine.__main__ import models_of
from tgi_deploy.wiring import open_catalog

SHAPES = json.loads((profiles_dir() / "models" / "shapes.json").read_text())["shapes"]
LLAMA = SHAPES["meta-llama/Llama-3.1-8B"]
DAY_S = 24 * 3600


class Place:
    """A hub, a cache and a clock; `connections` counts connections to the hub."""

    def __init__(self, hub, folder):
        self.hub, self.folder, self.now_s, self.connections = hub, folder, 1_800_000_000.0, 0
        self.endpoint = hub.endpoint

    def add(self, hub_id, shape=LLAMA, *, shards=2, gated=False, tags=(), **tree):
        config = checkpoints.config_of(shape)
        folder = self.folder / hub_id
        checkpoints.write_tree(folder, config, checkpoints.tensors_of(config), shards=shards, **tree)
        self.hub.add(hub_id, folder, gated=gated, tags=tags)
        return folder

    def resolve(self, model, *, offline=False):
        return open_catalog(more=self.models(offline=offline)).resolve(model)

    def models(self, *, offline=False):
        kept = CachedModels(self.folder / "cache", now=lambda: self.now_s)
        return kept if offline else HubModels(kept, self._connect)

    def _connect(self):
        self.connections += 1
        return HuggingFaceHub(self.endpoint)

    def refusal(self, model, **settings):
        with pytest.raises(InputError) as caught:
            self.resolve(model, **settings)
        assert caught.value.hint
        assert caught.value.message.isprintable()
        return caught.value


@pytest.fixture
def place(tmp_path):
    with running_hub() as hub:
        yield Place(hub, tmp_path)


def test_verbose_prints_each_call_without_the_token(place, caplog, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    caplog.set_level("INFO", "tgi_deploy.calls")
    place.add("acme/model")
    place.resolve("acme/model")
    assert any(line.startswith(f"hub GET {place.endpoint}/acme/model/") for line in caplog.messages)
    assert TOKEN not in caplog.text


def test_an_unknown_model_is_read_from_its_headers(place):
    place.add("acme/llama", shards=4, tags=["transformers", "license:apache-2.0"])
    profile = place.resolve("acme/llama")
    model = profile.model
    assert (profile.name, model.hub_id, model.local_path) == ("acme/llama", "acme/llama", None)
    assert model.parameters == LLAMA["parameters"]
    assert model.revision == place.hub.commit("acme/llama")
    assert (model.license, model.gated, model.chat_template) == ("apache-2.0", False, True)
    assert dict(model.tensor_bytes) == {"BF16": 2 * LLAMA["parameters"]}


def test_a_folder_and_the_hub_are_read_the_same_way(place):
    folder = place.add("acme/llama")
    local = open_catalog().resolve(str(folder)).model
    remote = place.resolve("acme/llama").model
    different = {name for name in checkpoints.fields_of(local) if getattr(local, name) != getattr(remote, name)}
    assert different == {"hub_id", "local_path", "revision", "source"}


def test_only_heads_of_large_files_are_fetched(place):
    place.add("acme/mixtral", SHAPES["mistralai/Mixtral-8x7B-v0.1"], shards=19)
    assert place.resolve("acme/mixtral").model.parameters == 46_702_792_704
    pieces = [piece for path, piece in place.hub.bytes_asked if path.endswith(".safetensors")]
    assert pieces == ["bytes=0-131071"] * 19
    assert len(place.hub.requests) == 1 + 3 + 19


def test_a_long_header_takes_a_second_request(place):
    shape = SHAPES["deepseek-ai/DeepSeek-V2-Lite"]
    place.add("acme/moe", shape, shards=1)
    assert place.resolve("acme/moe").model.parameters == shape["parameters"]
    first, second = (piece for path, piece in place.hub.bytes_asked if path.endswith(".safetensors"))
    assert first == "bytes=0-131071"
    assert second.startswith("bytes=131072-")


def test_a_mirror_without_range_support(place):
    config = checkpoints.config_of(LLAMA, hidden_size=64, vocab_size=16)
    many = {f"model.layers.0.extra.{number}.weight": ("F16", (2,)) for number in range(3_000)}
    folder = checkpoints.write_tree(place.folder / "m", config, many)
    place.hub.add("acme/many", folder)
    place.hub.knows_ranges = False
    assert place.resolve("acme/many").model.parameters == 6_000
    assert len([path for path, _ in place.hub.bytes_asked if path.endswith(".safetensors")]) == 2


def test_read_once_for_each_commit(place):
    folder = place.add("acme/llama")
    first = place.resolve("acme/llama")
    asked = len(place.hub.requests)
    assert place.resolve("acme/llama") == first
    assert (len(place.hub.requests), place.connections) == (asked, 1)

    place.now_s += DAY_S + 1
    assert place.resolve("acme/llama") == first
    assert len(place.hub.requests) == asked + 1

    config = checkpoints.config_of(LLAMA, max_position_embeddings=4096)
    (folder / "config.json").write_text(json.dumps(config))
    assert place.resolve("acme/llama") == first
    place.now_s += DAY_S + 1
    newer = place.resolve("acme/llama").model
    assert newer.max_position_embeddings == 4096
    assert newer.revision != first.model.revision
    assert place.resolve(f"acme/llama@{first.model.revision}") == first


def test_a_revision_is_pinned(place):
    place.add("acme/llama")
    commit = place.hub.commit("acme/llama")
    assert place.resolve("acme/llama@v1").model.revision == commit
    assert place.resolve(f"acme/llama@{commit}").model.revision == commit
    refusal = place.refusal("acme/llama@v9")
    assert refusal.code == "hub_not_found"
    assert "no such revision" in refusal.message


def test_offline_uses_cached_models(place):
    place.add("acme/llama")
    assert place.refusal("acme/llama", offline=True).code == "hub_offline"
    assert place.connections == 0
    online = place.resolve("acme/llama")
    place.now_s += 100 * DAY_S
    assert place.resolve("acme/llama", offline=True) == online
    assert place.connections == 1


def test_an_unreachable_hub_does_not_clear_the_cache(place):
    place.add("acme/llama")
    online = place.resolve("acme/llama")
    place.hub.fails_with = 503
    place.now_s += 2 * DAY_S
    kept = place.resolve("acme/llama")
    assert kept.model == online.model
    assert "it answered 503" in kept.notice
    assert online.model.revision in kept.notice


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 1, "summary": "x", "chat": true}'])
def test_a_corrupt_cache_entry_is_read_again(content, place):
    place.add("acme/llama")
    online = place.resolve("acme/llama")
    (kept,) = (place.folder / "cache" / "acme--llama").glob("*.json")
    kept.write_text(content)
    assert place.resolve("acme/llama") == online
    assert json.loads(kept.read_text())["format"] == 2


def test_an_unwritable_cache_is_not_an_error(place):
    place.add("acme/llama")
    (place.folder / "cache").write_text("a file where a folder should be")
    assert place.resolve("acme/llama").model.parameters == LLAMA["parameters"]
    assert place.resolve("acme/llama").model.parameters == LLAMA["parameters"]
    assert place.connections == 2


def test_nothing_half_written_is_left(place):
    place.add("acme/llama")
    place.resolve("acme/llama")
    names = sorted(path.name for path in (place.folder / "cache" / "acme--llama").iterdir())
    assert names == [f"{place.hub.commit('acme/llama')}.json", "main.ref"]


def test_missing(place):
    refusal = place.refusal("acme/llama")
    assert refusal.code == "hub_not_found"
    assert "acme/llama" in refusal.message
    assert "did you mean meta-llama/Llama-3.1-8B" in place.refusal("meta-llama/Llama-3.1-9B").hint


def test_gated(place, monkeypatch):
    place.add("acme/llama", gated=True)
    refusal = place.refusal("acme/llama")
    assert refusal.code == "hub_gated"
    assert "no token is set" in refusal.message
    assert "huggingface.co/acme/llama" in refusal.hint

    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    refusal = place.refusal("acme/llama")
    assert "the current token has no access" in refusal.message
    assert "somebody_else" not in refusal.message + refusal.hint

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    model = place.resolve("acme/llama").model
    assert model.gated
    assert model.parameters == LLAMA["parameters"]
    assert {token for path, _, token in place.hub.requests if "/resolve/" in path} >= {f"Bearer {TOKEN}"}


def test_a_token_is_never_stored(place, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    place.add("acme/llama", gated=True)
    place.resolve("acme/llama")
    kept = [path.read_text() for path in (place.folder / "cache").rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert not any(TOKEN in content for content in kept)


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "hub_gated"), (403, "hub_gated"), (429, "hub_unreachable"), (500, "hub_unreachable")],
)
def test_other_answers(status, code, place):
    place.add("acme/llama")
    place.hub.fails_with = status
    assert place.refusal("acme/llama").code == code


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_no_network(endpoint, place):
    place.endpoint = endpoint
    refusal = place.refusal("acme/llama")
    assert refusal.code == "hub_unreachable"
    assert endpoint in refusal.message


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"adapter_config.json": "{}", "adapter_model.safetensors": ""}, "it is an adapter (LoRA)"),
        ({"model_index.json": "{}"}, "it is a diffusion pipeline"),
        ({"tiny.Q4_K_M.gguf": "GGUF"}, "it has GGUF files only"),
        ({"params.json": "{}"}, "there is no config.json"),
    ],
)
def test_repositories_without_a_model(files, problem, place):
    folder = place.folder / "acme"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    place.hub.add("acme/other", folder)
    refusal = place.refusal("acme/other")
    assert refusal.code == "bad_checkpoint"
    assert problem in refusal.message


def test_a_repository_without_weights_is_rejected(place):
    place.hub.add("acme/empty", checkpoints.write_tree(place.folder / "e", checkpoints.config_of(LLAMA)))
    refusal = place.refusal("acme/empty")
    assert refusal.code == "bad_checkpoint"
    assert "no safetensors or .bin weights" in refusal.message


def test_weights_in_subfolders_are_ignored(place):
    folder = place.add("acme/llama")
    (folder / "original").mkdir()
    checkpoints.write_file(folder / "original" / "consolidated.00.safetensors", {"x": ("F32", (1_000_000,))})
    model = place.resolve("acme/llama").model
    assert model.duplicate_bytes == 0
    assert model.parameters == LLAMA["parameters"]


def test_a_broken_file_of_the_hub_is_named(place):
    folder = place.add("acme/llama")
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"<html>")
    refusal = place.refusal("acme/llama")
    assert refusal.code == "bad_checkpoint"
    assert "acme/llama/model-00002-of-00002.safetensors" in refusal.message
    assert not list((place.folder / "cache").rglob("*.json"))


def test_without_a_hub_nothing_changes():
    with pytest.raises(InputError) as caught:
        open_catalog().resolve("acme/llama")
    assert caught.value.code == "unknown_model"


def test_a_known_model_is_not_requested_from_the_hub(place):
    assert place.resolve("meta-llama/Llama-3.1-8B").model.parameters == LLAMA["parameters"]
    assert place.resolve("llama3-8b").name == "llama3-8b"
    assert (place.connections, place.hub.requests) == (0, [])


def test_the_stub_server_serves_cached_models(place):
    place.add("acme/llama")
    planned = place.resolve("acme/llama")
    place.now_s += 100 * DAY_S
    environ = {KEPT_MODELS: str(place.folder / "cache")}
    assert models_of(environ).resolve("acme/llama") == planned
    with pytest.raises(InputError):
        models_of({}).resolve("acme/llama")
    with pytest.raises(InputError) as caught:
        models_of(environ).resolve("acme/other")
    assert caught.value.code == "hub_offline"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"TGI_DEPLOY_HOME": "/a", "XDG_CACHE_HOME": "/b"}, "/a/cache/models"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/tgi-deploy/models"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/tgi-deploy/models"),
    ],
)
def test_where_models_are_kept(environ, folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert str(models_folder(environ)) == folder


def test_a_license_with_escape_codes_is_ignored(place):
    place.add("acme/llama", tags=["license:\x1b[31mmit", "license:", "license:mit"])
    assert place.resolve("acme/llama").model.license == "mit"


def test_a_changed_folder_is_read_again(place, monkeypatch):
    folder = place.add("acme/llama")
    first = place.resolve(str(folder))
    assert first == open_catalog().resolve(str(folder))
    with monkeypatch.context() as patched:
        patched.setattr("tgi_deploy.catalog.checkpoint.headers", None)
        assert place.resolve(str(folder)) == first
    config = checkpoints.config_of(LLAMA, max_position_embeddings=4096)
    (folder / "config.json").write_text(json.dumps(config))
    assert place.resolve(str(folder)).model.max_position_embeddings == 4096
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"")
    assert place.refusal(str(folder)).code == "bad_checkpoint"
    assert place.connections == 0


def test_a_folder_without_weights_is_not_cached(place):
    folder = checkpoints.write_tree(place.folder / "m", checkpoints.config_of(LLAMA))
    assert place.resolve(str(folder)).model.local_path == str(folder)
    assert not (place.folder / "cache").exists()
