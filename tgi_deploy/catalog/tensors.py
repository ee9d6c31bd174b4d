"""What the tensors of a checkpoint are: parameters, packed parameters, their scales, or mere buffers.

Names follow transformers and the quantizers' own packages (AutoAWQ, GPTQModel, exllamav2, compressed-tensors, Marlin).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.catalog.safetensors import Tensor
    from tgi_deploy.values.model import CheckpointQuantization

_NUMBER: Final = re.compile(r"\d+")
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
_EIGHT_BIT: Final = frozenset({"F8_E4M3", "F8_E5M2", "I8", "U8"})
_HALF_BYTE: Final = 4
_VISION: Final = re.compile(
    r"^(?:model\.)?(?:vision_|visual\.|vision\.|multi_modal_projector|mm_projector|image_newline|connector\.|audio_tower"
    r"|embed_vision|embed_audio|img_processor|patch_merger)"
)
_HEAD: Final = re.compile(r"^(?:(?:\w+\.)?(?:lm_head|embed_out)|output)\.(?:weight|qweight|q_weight|weight_packed)$")
_TABLE: Final = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in)\.weight$")
_EXPERT: Final = re.compile(r"\.experts\.")
_LAYER: Final = re.compile(r"(?:^|\.)layers\.#\.")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Role:
    """What a name says, whichever layer and expert it belongs to."""

    buffer: bool
    mask: bool
    beside: bool
    packed: bool
    variable: bool
    vision: bool
    head: bool
    expert: bool
    numbered: int | None
    """Which of its numbers counts the layers of the language model."""


@cache
def _role(pattern: str) -> _Role:
    """Of a name with `#` for each number: a checkpoint has thousands of tensors, and few patterns."""
    vision = bool(_VISION.match(pattern))
    layer = None if vision else _LAYER.search(pattern)
    return _Role(
        buffer=bool(_BUFFER.search(pattern)),
        mask=bool(_MASK.search(pattern)),
        beside=bool(_BESIDE.search(pattern)),
        packed=bool(_PACKED.search(pattern)),
        variable=pattern.endswith(".q_weight"),
        vision=vision,
        head=not vision and bool(_HEAD.search(pattern)),
        expert=bool(_EXPERT.search(pattern)),
        numbered=pattern.count("#", 0, layer.start()) if layer else None,
    )


class _Sums:
    """Adds up tensors, one by one."""

    def __init__(self, named: Mapping[str, Tensor], *, bits: int, head_is_table: bool) -> None:
        self._named, self._bits, self._head_is_table = named, bits, head_is_table
        self.dtypes: Counter[str] = Counter()
        self.all = self.vision = self.expert = self.quantized = self.quantized_bytes = 0
        self.head_stored = False

    def add(self, tensor: Tensor, role: _Role) -> None:
        self.dtypes[tensor.dtype] += tensor.size_bytes
        self.head_stored |= role.head
        quantized = role.packed or tensor.dtype in _EIGHT_BIT
        if role.beside or quantized:
            self.quantized_bytes += tensor.size_bytes
        if role.beside or (role.head and self._head_is_table):
            return
        values = self._values(tensor, role)
        self.all += values
        self.quantized += values * quantized
        self.vision += values * role.vision
        self.expert += values * role.expert

    def _values(self, tensor: Tensor, role: _Role) -> int:
        """How many weights a tensor holds; several share a word where they are packed."""
        if role.variable:
            return _exl2_values(tensor, self._named)
        if role.packed or tensor.dtype == "U8":
            width = _HALF_BYTE if tensor.dtype == "U8" else self._bits
            return tensor.elements * _WORD_BITS.get(tensor.dtype, width) // width
        return tensor.elements


def contents(
    tensors: Iterable[Tensor], *, layers: int, tied: bool, quantization: CheckpointQuantization | None
) -> Contents:
    """Adds up the tensors of a checkpoint of `layers` layers; more than those (multi-token prediction) don't load."""
    named = {tensor.name: tensor for tensor in tensors}
    has_table = any(_TABLE.search(name) for name in named)
    bits = quantization.bits if quantization is not None else _HALF_BYTE
    sums = _Sums(named, bits=bits, head_is_table=tied and has_table)
    for name, tensor in named.items():
        role = _role(_NUMBER.sub("#", name))
        if not _is_buffer(tensor, role) and not _beyond(name, role, layers):
            sums.add(tensor, role)
    return Contents(
        parameters=sums.all,
        vision_parameters=sums.vision,
        expert_parameters=sums.expert,
        quantized_parameters=sums.quantized,
        quantized_bytes=sums.quantized_bytes,
        bytes_by_dtype=tuple(sorted(sums.dtypes.items())),
        head_stored=sums.head_stored,
        has_table=has_table,
    )


def _is_buffer(tensor: Tensor, role: _Role) -> bool:
    return role.buffer or tensor.dtype == "BOOL" or (role.mask and len(tensor.shape) >= _MASK_DIMENSIONS)


def _beyond(name: str, role: _Role, layers: int) -> bool:
    return role.numbered is not None and int(_NUMBER.findall(name)[role.numbered]) >= layers


def _exl2_values(tensor: Tensor, named: Mapping[str, Tensor]) -> int:
    """Its bits differ from row to row: the matrix has a row a permuted input and eight columns a word of scales."""
    module = tensor.name.removesuffix("q_weight")
    rows = named.get(f"{module}q_invperm") or named.get(f"{module}q_perm")
    scales = named.get(f"{module}q_scale")
    if rows is None or scales is None:
        return tensor.elements * _EXL2_PER_WORD
    return rows.elements * scales.shape[-1] * _EXL2_PER_WORD
