"""Classifies the tensors of a checkpoint: parameters, packed parameters, scales, or buffers.

Names follow transformers and the quantizers' packages (AutoAWQ, GPTQModel, exllamav2, compressed-tensors, Marlin).
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.catalog.safetensors import Tensor
    from tgi_deploy.values.model import CheckpointQuantization

_NUMBER: Final = re.compile(r"\d+")
_BUFFER: Final = re.compile(r"(?:^|\.)(?:inv_freq|masked_bias|position_ids)$")
_MASK: Final = re.compile(r"(?:attn|attention)\.bias$")
_MASK_DIMENSIONS: Final = 3
# Scales, zeros and permutations of packed weights, and bitsandbytes' state.
_COMPANION: Final = re.compile(
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
_LAYER_NUMBER: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_WORD_BITS: Final = {"I32": 32, "U8": 8, "I8": 8, "I16": 16, "U32": 32}
_EXL2_PER_WORD: Final = 8
_EXL2_PART: Final = re.compile(r"(?<=\.)q_(?:weight|scale|perm|invperm)$")
# A real checkpoint has a hundred; a hostile one may have one per tensor.
_MOST_PATTERNS: Final = 4096


class Contents(Value, frozen=True, kw_only=True):
    """Distinct parameters and bytes that an engine loads. `expert_parameters` are the routed ones."""

    parameters: int
    vision_parameters: int
    expert_parameters: int
    quantized_parameters: int
    quantized_bytes: int
    bytes_by_dtype: tuple[tuple[str, int], ...]
    head_stored: bool
    has_table: bool


class _Role(Value, frozen=True, kw_only=True):
    """The role of a tensor's name, regardless of layer and expert."""

    buffer: bool
    mask: bool
    companion: bool
    packed: bool
    exl2: str
    """The part of a matrix in exl2's format; "" for anything else."""
    vision: bool
    head: bool
    table: bool
    expert: bool
    layered: bool
    """One of its numbers is a layer index of the language model."""


@lru_cache(_MOST_PATTERNS)
def _role(pattern: str) -> _Role:
    """Return the role of a name with `#` for each number: checkpoints have thousands of tensors but few patterns."""
    vision = bool(_VISION.match(pattern))
    part = _EXL2_PART.search(pattern)
    return _Role(
        buffer=bool(_BUFFER.search(pattern)),
        mask=bool(_MASK.search(pattern)),
        companion=bool(_COMPANION.search(pattern)),
        packed=bool(_PACKED.search(pattern)),
        exl2=part[0] if part else "",
        vision=vision,
        head=not vision and bool(_HEAD.search(pattern)),
        table=bool(_TABLE.search(pattern)),
        expert=bool(_EXPERT.search(pattern)),
        layered=not vision and bool(_LAYER.search(pattern)),
    )


class _Sums:
    """Adds up tensors without keeping them, because a hostile checkpoint can have any number."""

    def __init__(self, *, bits: int) -> None:
        self._bits = bits
        self._exl2 = _Exl2()
        self.dtypes: Counter[str] = Counter()
        self.all = self.vision = self.expert = self.quantized = self.quantized_bytes = 0
        self.head = self.head_quantized = 0
        self.head_stored = False

    def add(self, tensor: Tensor, role: _Role) -> None:
        self.dtypes[tensor.dtype] += tensor.size_bytes
        self.head_stored |= role.head
        quantized = role.packed or tensor.dtype in _EIGHT_BIT
        if role.companion or quantized:
            self.quantized_bytes += tensor.size_bytes
        if role.exl2:
            self._exl2.add(tensor, role)
        elif not role.companion:
            self._count(self._values(tensor, role), role, quantized=quantized)

    def finish(self, *, head_is_table: bool) -> None:
        """Return the totals; a head tied to the embedding counts once."""
        for values, role in self._exl2.matrices():
            self._count(values, role, quantized=True)
        if not head_is_table:
            self.all += self.head
            self.quantized += self.head_quantized

    def _count(self, values: int, role: _Role, *, quantized: bool) -> None:
        if role.head:
            self.head += values
            self.head_quantized += values * quantized
            return
        self.all += values
        self.quantized += values * quantized
        self.vision += values * role.vision
        self.expert += values * role.expert

    def _values(self, tensor: Tensor, role: _Role) -> int:
        """Return the number of weights in a tensor; packed ones share words."""
        if role.packed or tensor.dtype == "U8":
            width = _HALF_BYTE if tensor.dtype == "U8" else self._bits
            return tensor.elements * _WORD_BITS.get(tensor.dtype, width) // width
        return tensor.elements


class _Exl2:
    """Matrices in exl2's format, whose parts can be in any order and in several files.

    Bits vary by row: a matrix has a row per permuted input and eight columns per word of scales.
    """

    def __init__(self) -> None:
        self._weights: list[tuple[int, int, _Role]] = []
        self._rows: dict[int, int] = {}
        self._columns: dict[int, int] = {}

    def add(self, tensor: Tensor, role: _Role) -> None:
        module = hash(tensor.name.removesuffix(role.exl2))
        if role.exl2 == "q_weight":
            self._weights.append((module, tensor.elements, role))
        elif role.exl2 == "q_scale":
            # For an 8-bit KV cache it is a scalar.
            self._columns[module] = tensor.shape[-1] * _EXL2_PER_WORD if tensor.shape else 0
        else:
            self._rows[module] = tensor.elements

    def matrices(self) -> Iterator[tuple[int, _Role]]:
        for module, words, role in self._weights:
            weights = self._rows.get(module, 0) * self._columns.get(module, 0)
            yield weights or words * _EXL2_PER_WORD, role


def contents(
    tensors: Iterable[Tensor], *, layers: int, tied: bool, quantization: CheckpointQuantization | None
) -> Contents:
    """Add up the tensors of a checkpoint with `layers` layers; further layers (multi-token prediction) don't load."""
    sums = _Sums(bits=quantization.bits if quantization is not None else _HALF_BYTE)
    seen: set[int] = set()  # hashes, because there can be many long names
    has_table = False
    for tensor in tensors:
        role = _role(_NUMBER.sub("#", tensor.name))
        has_table |= role.table
        is_new = hash(tensor.name) not in seen
        seen.add(hash(tensor.name))
        if is_new and not _is_buffer(tensor, role) and not _beyond(tensor.name, role, layers):
            sums.add(tensor, role)
    sums.finish(head_is_table=tied and has_table)
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
    layer = _LAYER_NUMBER.search(name) if role.layered else None
    return layer is not None and int(layer[1]) >= layers
