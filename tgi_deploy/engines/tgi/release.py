"""Releases of TGI, from `profiles/engines/tgi/`."""

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
    """Requirements and sizes of a quantization method in a release.

    `bits` is the size of a linear layer's weight without group scales; `group_overhead_bits` is divided by the group
    size. `checkpoint_bits` are the packed sizes that its kernels support; empty: all. `fused_moe`: a kernel routes
    tokens to packed experts. `packs_head`: the head is packed like the layers. Ties go to the lower `after`.
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
        """Return whether it can load a packed checkpoint with this many bits."""
        return self.prequantized and (not self.checkpoint_bits or bits in self.checkpoint_bits)


class ModelClass(Value, frozen=True, kw_only=True):
    """How a release serves a `model_type`.

    `backend`: the engine's own class; transformers' class with the engine's attention and tensor parallelism
    (`transformers`); or transformers' class unchanged, padded and on one GPU (`plain`). `experts` that are not `fused`
    run in a loop over the selected ones, or all at once (`gathered`). Without a fused kernel for the weights (the
    method has none, or the class has none for packed ones: `fused_quantized`) all run one by one if there is a
    `dense_fallback`. `whole_experts` are replicated on every rank. The warm-up also needs `image_bytes` for its image,
    split over shards, and `mask_bytes` (and `mask_bytes_per_head`) per pair of prompt tokens.
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

    `request_counters` are the metrics that increase only with requests and their tokens. `counts_all_devices`: by
    default it takes `NVIDIA_VISIBLE_DEVICES=all` as all GPUs, not as one. `memory_share` is a share of the GPU's
    `total`, or of what is `free` after the warm-up; `context_bytes` is used before any weights. `score_copies` is the
    number of copies of the logits while prompts are scored. `block_scaled_fp8`: the only version whose image has
    kernels for fp8 weights with block scales, if any. `refused_backends` do not start: backend → why.
    `backends` has the images for chips without CUDA, and `host` how such chips are passed to the container.
    `fixed_batches`: shapes are compiled for the largest batch, which a flag sets.
    """

    quantizations: Mapping[str, QuantizationRule]
    model_classes: Mapping[str, ModelClass]
    memory_share: float
    share_of: Literal["free", "total"]
    context_bytes: int
    score_copies: int
    block_scaled_fp8: str
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
        """Return this release with the chip's image, or the CUDA image if there is no other."""
        return self if chip.compute_capability is not None else build_for(self, chip.name) or self

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.quantizations)

    @property
    def reserved_env(self) -> frozenset[str]:
        return frozenset({*self.cache_env, _PORT_VARIABLE})

    def model_class(self, model_type: str) -> ModelClass:
        known = self.model_classes.get(model_type)
        reason = f"neither TGI {self.version} nor its bundled transformers has a class for it"
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
    """Return an entry with its changes up to the newest release applied."""
    entry = dict(table(raw, where))
    changes = table(entry.pop("changes", {}), where.child("changes"))
    for version in filter(changes.__contains__, versions):
        entry.update(table(changes[version], where.child("changes").child(version)))
    return entry


def _quantizations(
    documents: Mapping[str, Any], versions: tuple[str, ...], flags: Mapping[str, Flag]
) -> dict[str, QuantizationRule]:
    """Return the methods of this release's `--quantize`."""
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
