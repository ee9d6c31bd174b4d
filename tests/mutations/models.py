"""Real models and real hub answers, changed: config, headers, index, tokenizer's settings, and how they are served."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from fakes import checkpoints
from fakes.hostile_hub import INFO, Reply
from hypothesis import strategies as st
from mutations.changes import ODD, changed_bytes, changed_document, changed_text, dump

from tgi_deploy.resources import profiles_dir

SHAPES = json.loads((profiles_dir() / "models" / "shapes.json").read_text())["shapes"]
BASES = (
    "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-0.5B-Instruct", "mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b-it",
    "deepseek-ai/DeepSeek-V2-Lite", "Qwen/Qwen3-30B-A3B", "microsoft/Phi-3-mini-4k-instruct",
)  # fmt: skip
QUANTIZED = {
    None: None,
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False},
    "exl2": {"quant_method": "exl2", "bits": 4.65},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "compressed": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
    },
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG, TOKENIZER, INDEX = "config.json", "tokenizer_config.json", "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
NAMES = (
    "model.layers." + "9" * 5000 + ".mlp.up_proj.weight", "model.layers.99999.x", "lm_head.weight", "output.weight",
    "x.s", "model.embed_tokens.weight", "a.q_scale", "a.q_weight", "a.q_perm", "a.q_invperm", "a.qweight",
    "a_blocks", "a.experts.0.b", "model.layers.\u0661.x", "vision_tower.x", "." * 400, "_" * 400, "layers.#.x",
    "attn.bias", "inv_freq", "n" * 501,
)  # fmt: skip
# What a header says of a tensor, consistent in itself, which only the whole gives away.
ENTRIES = (
    {"dtype": "U8", "shape": [], "data_offsets": [0, 1]},
    {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
    {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]},
    {"dtype": "I32", "shape": [2**40], "data_offsets": [0, 2**42]},
    {"dtype": "F4", "shape": [10**30, 2], "data_offsets": [0, 10**30]},
    {"dtype": "F32", "shape": [2], "data_offsets": [0.0, 8.0]},
    {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]},
    {"dtype": "BOOL", "shape": [1], "data_offsets": [5, 6]},
)
LENGTHS = (0, 1, 7, 8, 25_000_000, 25_000_001, 99_000_000, 2**31, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Special:
    """What stands in a folder where a file should be: `fifo`, `folder`, `nothing`, or where a link leads."""

    kind: str


SPECIALS = tuple(
    map(Special, ("fifo", "folder", "nothing", "/dev/zero", "/dev/full", "/no/such/file", ".", "/proc/kmsg"))
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A whole model of two layers in two files, as documents. `sizes`: how long its weights' files are."""

    config: dict
    headers: tuple[dict, ...]
    index: dict
    tokenizer: dict
    sizes: tuple[int, ...]

    def files(self):
        return {
            CONFIG: dump(self.config),
            TOKENIZER: dump(self.tokenizer),
            INDEX: dump(self.index),
            **dict(zip(SHARDS, map(head, self.headers), strict=True)),
        }


def head(table):
    text = dump(table)
    return len(text).to_bytes(8, "little") + text


def model(hub_id, method):
    config = checkpoints.config_of(SHAPES[hub_id], num_hidden_layers=2, num_experts=8, n_routed_experts=8)
    for name in ("num_experts", "n_routed_experts"):
        if not SHAPES[hub_id].get("experts") or "mixtral" in config["model_type"]:
            del config[name]
    tensors = checkpoints.tensors_of({**config, "first_k_dense_replace": config.get("first_k_dense_replace", 0)})
    if method is not None:
        config["quantization_config"] = QUANTIZED[method]
        tensors = getattr(checkpoints, method)(tensors)
    names = sorted(tensors)
    parts = [{name: tensors[name] for name in names[number::2]} for number in range(2)]
    made = [checkpoints.header(part) for part in parts]
    return Model(
        config=config,
        headers=tuple(json.loads(content[8:]) for content, _ in made),
        index={"metadata": {}, "weight_map": {name: SHARDS[number % 2] for number, name in enumerate(names)}},
        tokenizer={"chat_template": "{{ messages }}", "model_max_length": 10**30, "added_tokens_decoder": {}},
        sizes=tuple(size for _, size in made),
    )


MODELS = {(hub_id, method): model(hub_id, method) for hub_id in BASES[:3] for method in QUANTIZED} | {
    (hub_id, None): model(hub_id, None) for hub_id in BASES
}
SOME_MODEL = st.sampled_from(sorted(MODELS, key=str)).map(MODELS.__getitem__)


DTYPES = {"F32": 32, "BF16": 16, "I32": 32, "U8": 8, "I8": 8, "F8_E4M3": 8, "BOOL": 8, "F4": 4, "I64": 64}
SHAPE = st.lists(st.sampled_from((0, 1, 2, 3, 8, 128, 4096, 2**20)), max_size=5)


@st.composite
def strange_tensors(draw):
    """Entries that are right as the format goes, under names that mean something."""
    found = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True)):
        dtype, shape = draw(st.sampled_from(sorted(DTYPES))), draw(SHAPE)
        found[name] = {"dtype": dtype, "shape": shape, "data_offsets": [0, math.prod(shape) * DTYPES[dtype] // 8]}
    return found


@st.composite
def changed_header(draw, table):
    """A head whose entries, names, length or bytes are not what they were."""
    if draw(st.integers(0, 2)) == 0:
        return head({**(table if draw(st.booleans()) else {}), **draw(strange_tensors())})
    content = head(draw(changed_document(table, keys=NAMES, odd=(*ODD, *ENTRIES * 20))))
    change = draw(st.integers(0, 9))
    if change == 0:
        return draw(st.sampled_from(LENGTHS)).to_bytes(8, "little") + content[8:]
    if change == 1:
        return draw(changed_bytes(content))
    return content


@st.composite
def changed_folder(draw, *, what):
    """Files by name: content (weights with their length), or `Special`. `what` part of the model is changed."""
    base = draw(SOME_MODEL)
    files = base.files()
    sizes = dict(zip(SHARDS, base.sizes, strict=True))
    if what == "config":
        files[CONFIG] = draw(changed_text(base.config))
        if draw(st.booleans()):  # counted by formula then, not by headers
            files = {CONFIG: files[CONFIG]}
    elif what == "header":
        number = draw(st.integers(0, 1))
        files[SHARDS[number]] = draw(changed_header(base.headers[number]))
        sizes[SHARDS[number]] += draw(st.sampled_from((0, 0, 2**42, 2**42, -1, 1, 10**6)))
    elif what == "index":
        files[INDEX] = draw(changed_text(base.index, keys=(*SHARDS, CONFIG, "x.safetensors")))
    elif what == "tokenizer":
        files[TOKENIZER] = draw(changed_text(base.tokenizer))
    else:
        files[draw(st.sampled_from(sorted(files)))] = draw(st.sampled_from(SPECIALS))
    return {name: (content, sizes.get(name)) for name, content in files.items()}


def hub_info(files, sizes):
    return {
        "id": "acme/model", "sha": COMMIT, "private": False, "gated": False, "tags": ["transformers", "license:mit"],
        "siblings": [{"rfilename": name, "size": sizes.get(name, len(files[name]))} for name in files],
    }  # fmt: skip


STATUSES = (200, 200, 200, 201, 204, 206, 301, 302, 304, 307, 400, 401, 403, 404, 416, 429, 500, 503)
HEADERS = (
    {}, {}, {"X-Error-Code": "RepoNotFound"}, {"X-Error-Code": "GatedRepo"}, {"X-Error-Code": "x" * 5000},
    {"Content-Encoding": "gzip"}, {"Content-Encoding": "br"}, {"Content-Encoding": "identity"},
    {"Location": "http://["}, {"Location": "file:///etc/passwd"}, {"Location": "http://127.0.0.1:99999/"},
    {"Location": ""}, {"Location": "?"},
    {"Location": "http://" + "a" * 70 + "/"}, {"Content-Type": "text/html; charset=\x80"},
    {"Transfer-Encoding": "gzip"},
)  # fmt: skip


@st.composite
def changed_hub(draw):
    """Replies by file name: mostly the answer about the model changed, else one of its replies."""
    base = draw(SOME_MODEL)
    files = base.files()
    sizes = dict(zip(SHARDS, base.sizes, strict=True))
    info = dump(hub_info(files, sizes))
    replies = {name: Reply(body=content) for name, content in {**files, INFO: info}.items()}
    if draw(st.integers(0, 9)) < 7:
        replies[INFO] = Reply(body=draw(changed_text(hub_info(files, sizes))))
        return replies
    name = draw(st.sampled_from(sorted(replies)))
    body = draw(changed_bytes(replies[name].body)) if draw(st.booleans()) else replies[name].body
    replies[name] = Reply(
        body=body,
        status=draw(st.sampled_from(STATUSES)),
        headers=draw(st.sampled_from(HEADERS)),
        promised=draw(st.sampled_from((None, None, 0, len(body) + 1, max(0, len(body) - 1), 10**12))),
        knows_ranges=draw(st.booleans()),
    )
    return replies
