"""Releases of TGI, from `profiles/engines/tgi/`: each file says only what differs from the one it extends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from tgi_deploy.engines.release_files import ReleaseFile, table, with_capabilities
from tgi_deploy.engines.tgi.builds import Backends, build_for, read_backends
from tgi_deploy.values.base import Value, Where, decode, replaced
from tgi_deploy.values.engine import Flag, Release
from tgi_deploy.values.hardware import Accelerator, ComputeCapability

NAME: Final = "tgi"
QUANTIZATIONS: Final = "quantizations.json"
MODEL_CLASSES: Final = "model_classes.json"
_PORT_VARIABLE: Final = "PORT"  # set in the image


class QuantizationRule(Value, frozen=True, kw_only=True):
    """What a quantization method needs and costs in a release.

    `bits` is what a linear layer's weight ends at, before group scales; `group_overhead_bits` is divided by the
    group size. `checkpoint_bits` are those that its kernels take of a packed checkpoint; empty: all. `fused_moe`: a
    kernel routes tokens to packed experts. `packs_head`: the head is packed like the layers. Of methods that are equal
    otherwise the one with the lower `after` is taken.
    """

    method: str
    on_the_fly: bool = False
    prequantized: bool = False
    bits: float
    group_overhead_bits: float
    min_compute_capability: ComputeCapability
    shardable: bool = True
    takes_dtype: bool = False
    forces_dtype: str | None = None
    transformers_backend: bool = False
    fused_moe: bool = False
    packs_head: bool = False
    checkpoint_bits: tuple[int, ...] = ()
    after: int = 0
    cuda_graphs: bool = True
    native_fp8_compute: ComputeCapability | None = None
    note: str = ""
    source: str = ""

    def takes(self, bits: int) -> bool:
        """Whether a packed checkpoint of so many bits can be loaded."""
        return self.prequantized and (not self.checkpoint_bits or bits in self.checkpoint_bits)


class ModelClass(Value, frozen=True, kw_only=True):
    """How a release serves a `model_type`.

    `backend`: a class of the engine's own; transformers' class with the engine's attention and tensor parallelism
    (`transformers`), or as it is, padded and on one card (`plain`). `experts` that are not `fused` run in a loop over
    the chosen ones, or all of them at once (`gathered`). Where no fused kernel takes the weights (the method has none,
    or the class none for packed ones: `fused_quantized`) all of them run, one by one, if there is a `dense_fallback`.
    `whole_experts` stay on every rank. Beside the layers the warm-up takes `image_bytes` for its image, split over
    shards, and `mask_bytes` (and `mask_bytes_per_head`) for each pair of a prompt's tokens.
    """

    model_type: str
    backend: Literal["native", "transformers", "plain", "refused"]
    flash: bool = True
    cuda_graphs: bool = True
    experts: Literal["fused", "looped", "gathered"] = "fused"
    fused_quantized: bool = True
    dense_fallback: bool = True
    whole_experts: bool = False
    image_bytes: int = 0
    mask_bytes: int = 0
    mask_bytes_per_head: int = 0
    default_dtype: str = "float16"
    shardable: bool = True
    replicated_kv: bool = False
    prefill_chunking: bool = True
    paged_only: bool = False
    reason: str = ""
    source: str = ""


class TgiRelease(Release, frozen=True, kw_only=True):
    """A release with its rules.

    `request_counters` are those of `metrics_path` that rise with requests and their tokens, and with nothing else.
    `counts_all_devices`: left to itself, it takes `NVIDIA_VISIBLE_DEVICES=all` for all cards, not for one.
    `memory_share` is of the card's `total`, or of what the warm-up left `free`; `context_bytes` is what is used before
    any weight is. `score_copies` of the logits exist while prompts are scored. `block_scaled_fp8`: the image has the
    kernels for fp8 weights with a scale for each block. `refused_backends` do not start: backend → why.
    `backends` has the images for chips without CUDA; on such a chip, `host` is how they get in. `fixed_batches`: shapes
    are compiled for the largest batch, which a flag names.
    """

    quantizations: Mapping[str, QuantizationRule]
    model_classes: Mapping[str, ModelClass]
    memory_share: float
    share_of: Literal["free", "total"]
    context_bytes: int
    score_copies: int
    block_scaled_fp8: bool
    refused_backends: Mapping[str, str] = {}
    workspace_bytes: int
    chunked_prefill: bool
    default_attention: str
    block_tokens: Mapping[str, int]
    flash_head_dims: tuple[int, ...]
    cache_env: Mapping[str, str]
    metrics_path: str | None = None
    request_counters: tuple[str, ...] = ()
    counts_all_devices: bool = False
    title: str = "CUDA image"
    sliding_window: bool = True
    fixed_batches: bool = False
    backends: Backends = Backends()

    def on(self, chip: Accelerator) -> TgiRelease:
        """Return this release as the chip's own image has it: the CUDA image's where there is no other."""
        return self if chip.compute_capability is not None else build_for(self, chip.name) or self

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.quantizations)

    @property
    def reserved_env(self) -> frozenset[str]:
        return frozenset({*self.cache_env, _PORT_VARIABLE})

    def model_class(self, model_type: str) -> ModelClass:
        known = self.model_classes.get(model_type)
        reason = f"TGI {self.version} has no class for it, nor have the transformers that it bundles"
        return known or ModelClass(model_type=model_type, backend="refused", reason=reason)


def read_release(version: str, documents: Mapping[str, Any]) -> TgiRelease:
    """Return one release with everything it inherits. Raises InputError `bad_profile` or `missing_profile`."""
    file = ReleaseFile(NAME, version, documents)
    fields = file.fields()
    fields["quantizations"] = _quantizations(documents, file.versions, fields["flags"])
    fields["model_classes"] = _model_classes(documents, file.versions, fields.get("refused_backends", {}))
    fields["backends"] = read_backends(documents, f"engines/{NAME}")
    return decode(fields, TgiRelease, file.where)


def _changed(raw: object, versions: tuple[str, ...], where: Where) -> dict[str, Any]:
    """Return an entry as of the newest release: its changes up to there laid over it."""
    entry = dict(table(raw, where))
    changes = table(entry.pop("changes", {}), where.child("changes"))
    for version in filter(changes.__contains__, versions):
        entry.update(table(changes[version], where.child("changes").child(version)))
    return entry


def _quantizations(
    documents: Mapping[str, Any], versions: tuple[str, ...], flags: Mapping[str, Flag]
) -> dict[str, QuantizationRule]:
    """The methods this release's `--quantize` takes."""
    where = Where(f"engines/{NAME}/{QUANTIZATIONS}").child("quantizations")
    accepted = flags["--quantize"].values if "--quantize" in flags else ()
    found = {}
    for method, raw in table(documents[QUANTIZATIONS].get("quantizations"), where).items():
        if method in accepted:
            below = where.child(method)
            entry = with_capabilities(_changed(raw, versions, below), below)
            found[method] = decode({**entry, "method": method}, QuantizationRule, below)
    return found


def _model_classes(
    documents: Mapping[str, Any], versions: tuple[str, ...], refused: Mapping[str, str]
) -> dict[str, ModelClass]:
    where = Where(f"engines/{NAME}/{MODEL_CLASSES}").child("model_classes")
    entries = table(documents[MODEL_CLASSES].get("model_classes"), where)
    classes = {name: _model_class(name, raw, versions, where.child(name)) for name, raw in entries.items()}
    return {
        name: replaced(known, backend="refused", reason=refused[known.backend]) if known.backend in refused else known
        for name, known in classes.items()
    }


def _model_class(name: str, raw: object, versions: tuple[str, ...], where: Where) -> ModelClass:
    entry = _changed(raw, versions, where)
    since = entry.pop("since", None)
    if since is not None and since not in versions:
        entry.update(backend="refused", reason=f"it is served from release {since} on")
    return decode({**entry, "model_type": name}, ModelClass, where)
