"""What the tensors of a checkpoint are: parameters, packed parameters, their scales, or mere buffers.

Names follow transformers and the quantizers' own packages (AutoAWQ, GPTQModel, exllamav2, compressed-tensors, Marlin).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.catalog.safetensors import Tensor
    from tgi_deploy.planner.types import CheckpointQuantization

_BUFFER: Final = re.compile(r"(?:^|\.)(?:inv_freq|masked_bias|position_ids)$")
_MASK: Final = re.compile(r"(?:attn|attention)\.bias$")
_MASK_DIMENSIONS: Final = 3
# Scales, zeros and permutations that stand beside packed weights, and what bitsandbytes keeps of its own state.
_BESIDE: Final = re.compile(
    r"(?:^|[._])(?:g_idx|qzeros|scales|workspace|weight_scale|weight_scale_inv|weight_scale_2|weight_zero_point"
    r"|weight_shape|weight_g_idx|weight_global_scale|input_global_scale|input_scale|output_scale|input_zero_point"
    r"|k_scale|v_scale|q_scale|q_scale_max|q_groups|q_group_map|q_perm|q_invperm|absmax|quant_map|nested_absmax"
    r"|nested_quant_map|SCB)$|\.s$|\.quant_state\."
)
_PACKED: Final = re.compile(r"(?:^|\.)(?:qweight|q_weight|weight_packed|B)$|_blocks$")
_EIGHT_BIT: Final = frozenset({"F8_E4M3", "F8_E5M2", "I8"})
_VISION: Final = re.compile(
    r"^(?:model\.)?(?:vision_|visual\.|vision\.|multi_modal_projector|mm_projector|image_newline|connector\.|audio_tower"
    r"|embed_vision|embed_audio|img_processor|patch_merger)"
)
_HEAD: Final = re.compile(r"^(?:(?:\w+\.)?(?:lm_head|embed_out)|output)\.(?:weight|qweight|q_weight|weight_packed)$")
_TABLE: Final = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in)\.weight$")
_EXPERT: Final = re.compile(r"\.experts\.")
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_WORD_BITS: Final = {"I32": 32, "U8": 8, "I8": 8, "I16": 16, "U32": 32}
_EXL2_PER_WORD: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """Distinct parameters and bytes of what an engine loads. `expert_parameters` are the routed ones."""

    parameters: int
    vision_parameters: int
    expert_parameters: int
    quantized_parameters: int
    quantized_bytes: int
    bytes_by_dtype: tuple[tuple[str, int], ...]
    head_stored: bool
    has_table: bool


def contents(
    tensors: Iterable[Tensor], *, layers: int, tied: bool, quantization: CheckpointQuantization | None
) -> Contents:
    """Adds up the tensors of a checkpoint of `layers` layers; more than those (multi-token prediction) don't load."""
    named = {tensor.name: tensor for tensor in tensors if not _is_buffer(tensor) and not _beyond(tensor.name, layers)}
    sizes: Counter[str] = Counter()
    parameters: Counter[str] = Counter()
    bits = quantization.bits if quantization is not None else 4
    has_table = any(_TABLE.search(name) for name in named)
    for tensor in named.values():
        kinds = _kinds(tensor)
        sizes[tensor.dtype] += tensor.size_bytes
        values = 0 if "beside" in kinds else _values(tensor, named, bits)
        if "head" in kinds and tied and has_table:
            values = 0
        for kind in ("all", *kinds):
            parameters[kind] += values
        if kinds & {"beside", "quantized"}:
            parameters["quantized_bytes"] += tensor.size_bytes
    return Contents(
        parameters=parameters["all"],
        vision_parameters=parameters["vision"],
        expert_parameters=parameters["expert"],
        quantized_parameters=parameters["quantized"],
        quantized_bytes=parameters["quantized_bytes"],
        bytes_by_dtype=tuple(sorted(sizes.items())),
        head_stored=any(_HEAD.search(name) for name in named),
        has_table=has_table,
    )


def _is_buffer(tensor: Tensor) -> bool:
    if _MASK.search(tensor.name) and len(tensor.shape) >= _MASK_DIMENSIONS:
        return True
    return tensor.dtype == "BOOL" or bool(_BUFFER.search(tensor.name))


def _beyond(name: str, layers: int) -> bool:
    match = None if _VISION.match(name) else _LAYER.search(name)
    return match is not None and int(match[1]) >= layers


def _kinds(tensor: Tensor) -> set[str]:
    name = tensor.name
    if _BESIDE.search(name):
        return {"beside"}
    kinds = set()
    if _PACKED.search(name) or tensor.dtype in _EIGHT_BIT or (tensor.dtype == "U8"):
        kinds.add("quantized")
    if _VISION.match(name):
        kinds.add("vision")
    elif _HEAD.search(name):
        kinds.add("head")
    if _EXPERT.search(name):
        kinds.add("expert")
    return kinds


def _values(tensor: Tensor, named: Mapping[str, Tensor], bits: int) -> int:
    """How many weights a tensor holds; several share a word where they are packed."""
    if tensor.name.endswith(".q_weight"):
        return _exl2_values(tensor, named)
    if _PACKED.search(tensor.name) or tensor.dtype == "U8":
        width = 4 if tensor.dtype == "U8" else bits
        return tensor.elements * _WORD_BITS.get(tensor.dtype, width) // width
    return tensor.elements


def _exl2_values(tensor: Tensor, named: Mapping[str, Tensor]) -> int:
    """Its bits differ from row to row: the matrix has a row a permuted input and eight columns a word of scales."""
    module = tensor.name.removesuffix("q_weight")
    rows = named.get(f"{module}q_invperm") or named.get(f"{module}q_perm")
    scales = named.get(f"{module}q_scale")
    if rows is None or scales is None:
        return tensor.elements * _EXL2_PER_WORD
    return rows.elements * scales.shape[-1] * _EXL2_PER_WORD
