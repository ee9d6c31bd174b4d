"""Reads a model's files for the planner. Counts are exact if the weights have headers."""

from __future__ import annotations

import hashlib
import os.path
import posixpath
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.config import MOST_PARAMETERS, model_spec
from tgi_deploy.catalog.repository import (
    CONFIG,
    WeightFiles,
    has_chat_template,
    headers,
    parse_object,
    weight_files,
)
from tgi_deploy.catalog.safetensors import bad_checkpoint
from tgi_deploy.catalog.tensors import contents
from tgi_deploy.errors import InputError
from tgi_deploy.text import printable
from tgi_deploy.values.base import replaced
from tgi_deploy.values.model import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.repository import DirectorySource, ModelSource
    from tgi_deploy.catalog.tensors import Contents
    from tgi_deploy.values.model import ModelSpec

_DTYPES: Final = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
_BILLION: Final = 1e9
# Files that transformers' AutoTokenizer reads: any of them is enough.
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", ".tiktoken")
_NO_TOKENIZER: Final = "the folder has no tokenizer file (tokenizer.json, tokenizer.model): the engine will not start"
_ADAPTER_WEIGHTS: Final = "adapter_model"
# Four bytes per parameter, and as much again that is not loaded.
_MOST_STORED_BYTES: Final = 8 * MOST_PARAMETERS


def read_profile(source: ModelSource, hub_id: str, *, local_path: str | None = None) -> Profile:
    """Return the profile of the model in `source`, named `hub_id`.

    Raises:
        InputError: `unreadable_path`, `bad_model_config`, `bad_checkpoint`, or what the source raises.
    """
    spec = read_model(source, hub_id, local_path=local_path)
    summary = f"the model in {source.name}" if local_path else f"{spec.architecture}, {_size(spec)}"
    return Profile(name=hub_id, model=spec, summary=summary, chat=spec.chat_template is not False)


def read_folder(source: DirectorySource) -> Profile:
    """Return the profile of the model in a folder, named after it. Raises like `read_profile`."""
    check_folder(source)
    resolved = source.folder.resolve()
    profile = read_profile(source, resolved.name, local_path=str(resolved))
    return replaced(profile, notice=tokenizer_notice(source))


def tokenizer_notice(source: DirectorySource) -> str | None:
    """Return a notice if weights have no tokenizer. A folder with only a config is for planning."""
    found = any(name.endswith(_TOKENIZERS) for name in source.files())
    return None if found or not weight_files(source).downloaded else _NO_TOKENIZER


def check_folder(source: DirectorySource) -> None:
    """Raise InputError `unreadable_path`, or `bad_checkpoint` for a folder without a model."""
    try:
        source.read(CONFIG)  # first, because it explains a wrong path best
    except InputError:
        if not os.path.isdir(source.folder) or _what_it_is(source) is None:  # noqa: PTH112 -- Path's own raises for some names
            raise
        raise _not_a_model(source, "there is no config.json") from None


def read_model(source: ModelSource, hub_id: str, *, local_path: str | None = None) -> ModelSpec:
    """See `read_profile`."""
    config, digest = _config(source)
    files = weight_files(source)
    _check_weights(source, files, optional=local_path is not None)
    known: dict[str, Any] = {
        "local_path": local_path,
        "revision": source.revision,
        "gated": source.gated,
        "license": source.license,
        "config_sha256": digest,
        "source": posixpath.join(source.name, CONFIG) + (" and the headers of its weights" if files.loaded else ""),
        **_sizes(source, files),
    }
    if not files.loaded:
        return model_spec(config, hub_id, **known)
    return _measured(config, hub_id, source, files, known)


def _config(source: ModelSource) -> tuple[dict[str, Any], str]:
    place = posixpath.join(source.name, CONFIG)
    if source.revision is not None and CONFIG not in source.files():
        raise _not_a_model(source, "there is no config.json")
    content = source.read(CONFIG)
    try:
        # Models with state-space layers have "time_step_limit": [0.0, Infinity], as transformers writes it.
        return parse_object(place, content, infinite=True), hashlib.sha256(content).hexdigest()
    except InputError as problem:
        raise InputError("bad_model_config", problem.message, hint=problem.hint) from None


def _check_weights(source: ModelSource, files: WeightFiles, *, optional: bool) -> None:
    """Check the weights. A folder may have only a config (for planning before downloading), a repository may not."""
    if files.downloaded and not all(name.startswith(_ADAPTER_WEIGHTS) for name in files.downloaded):
        return
    if not optional or _what_it_is(source) is not None:
        raise _not_a_model(source, "there are no safetensors or .bin weights")


def _not_a_model(source: ModelSource, problem: str) -> InputError:
    return InputError(
        "bad_checkpoint",
        f"reading the model {printable(source.name)}: {_what_it_is(source) or problem}",
        hint="use the repository of the original weights, with config.json and safetensors files",
    )


def _what_it_is(source: ModelSource) -> str | None:
    """Describe a repository that is not a complete model, from its files."""
    names = source.files()
    if "adapter_config.json" in names:
        return "it is an adapter (LoRA), not a whole model"
    if "model_index.json" in names:
        return "it is a diffusion pipeline, not a language model"
    if any(name.endswith(".gguf") for name in names):
        return "it has GGUF files only, which this engine does not load"
    return None


def _sizes(source: ModelSource, files: WeightFiles) -> dict[str, Any]:
    sizes = source.files()
    stored = sum(sizes[name] for name in files.downloaded)
    if stored > _MOST_STORED_BYTES:
        raise bad_checkpoint(source.name, f"its files have an implausible {stored:,} bytes in total")
    return {
        "stored_bytes": stored or None,
        "duplicate_bytes": sum(sizes[name] for name in files.duplicates),
        "needs_conversion": bool(files.converted),
        "chat_template": has_chat_template(source) if files.downloaded else None,
    }


def _measured(
    config: Mapping[str, Any], hub_id: str, source: ModelSource, files: WeightFiles, known: Mapping[str, Any]
) -> ModelSpec:
    """Return the shape by the config, with counts and bytes by the headers."""
    shape = model_spec(config, hub_id, **known)
    found = contents(
        headers(source, files.loaded), layers=shape.layers, tied=shape.tied_embeddings, quantization=shape.quantization
    )
    if found.parameters == 0:
        raise _not_a_model(source, f"{printable(files.loaded[0])} has no model weights")
    if found.parameters > MOST_PARAMETERS:
        raise bad_checkpoint(source.name, f"its headers describe an implausible {found.parameters:,} parameters")
    measured: dict[str, Any] = {
        "parameters": found.parameters,
        "vision_parameters": found.vision_parameters,
        "active_parameters": _active(shape, found),
        "quantized_parameters": found.quantized_parameters,
        "quantized_bytes": found.quantized_bytes,
        "tensor_bytes": found.bytes_by_dtype,
        "head_stored": found.head_stored,
        "tied_embeddings": shape.tied_embeddings or (found.has_table and not found.head_stored),
    }
    if not {"torch_dtype", "dtype"} & _keys(config):
        measured["torch_dtype"] = _dominant_dtype(found)
    return _check_weights_match(model_spec(config, hub_id, **known, **measured), source)


def _check_weights_match(spec: ModelSpec, source: ModelSource) -> ModelSpec:
    """Check that config and weights match: all formats store the token tables unpacked, so fewer weights can't fit."""
    tables = spec.vocab_size * spec.hidden_size * (1 if spec.tied_embeddings else 2)
    if spec.parameters - spec.vision_parameters >= tables:
        return spec
    raise bad_checkpoint(
        source.name,
        f"its headers describe {spec.parameters:,} parameters, but by its config.json the token tables alone have "
        f"{tables:,}",
        hint="use the config.json that came with these weights, and all of their files",
    )


def _keys(config: Mapping[str, Any]) -> set[str]:
    inner = config.get("text_config")
    return {*config, *(inner if isinstance(inner, dict) else ())}


def _active(shape: ModelSpec, found: Contents) -> int | None:
    """Return the parameters that a token uses: all but those of inactive routed experts."""
    if not shape.experts or not found.expert_parameters:
        return None
    idle = shape.experts - shape.experts_per_token
    return found.parameters - found.expert_parameters * idle // shape.experts


def _dominant_dtype(found: Contents) -> str:
    floats = {dtype: size for dtype, size in found.bytes_by_dtype if dtype in _DTYPES}
    return _DTYPES[max(floats, key=floats.__getitem__)] if floats else "float16"


def _size(spec: ModelSpec) -> str:
    total = f"{spec.parameters / _BILLION:.1f} B parameters"
    return f"{total}, {spec.active_parameters / _BILLION:.1f} B active" if spec.active_parameters else total
