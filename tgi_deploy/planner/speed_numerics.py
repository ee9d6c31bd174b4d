"""Number formats: the matrix products of an engine's scheme, or of a name like `gptq-int4`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.speed_work import Numerics

if TYPE_CHECKING:
    from collections.abc import Collection

    from tgi_deploy.values.engine import Scheme
    from tgi_deploy.values.hardware import Accelerator

_BITSANDBYTES: Final = "bitsandbytes"
_BITSANDBYTES_INT8: Final = "bitsandbytes-int8"
_SIXTEEN: Final = 16.0
_WIDEST_INT4: Final = 6.0
_INT4_BITS: Final = 4.16  # 4 + (16 + 4) / 128: scales and zeros of groups of 128
_INT4_FP_SCALES_BITS: Final = 4.25
_NF4_BITS: Final = 4.127  # 4 + 8 / 64 for scales, with one more scale per 256 of them
_ACTIVATIONS_INT8: Final = frozenset({"int8-w8a8", "w8a8"})

WEIGHT_WORDS: Final = (
    "fp16", "bf16", "fp8", "fp8-block", "int8", "int8-w8a8", "w4a16-int4", "gptq-int4", "awq-int4", "w4a8", "mxfp4",
    "bitsandbytes", "bitsandbytes-nf4",
)  # fmt: skip
KV_BITS: Final = {"fp16": 16.0, "bf16": 16.0, "fp8": 8.0, "int8": 8.0, "int4": 4.0}
# Other names of the same formats in engines and tables of measurements.
_ALIASES: Final = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float8": "fp8", "fp8-e4m3": "fp8", "fp8-e5m2": "fp8",
    "w8a8": "int8-w8a8", "w8a16": "int8", "int8-w8a16": "int8", "eetq": "int8", "int4": "w4a16-int4",
    "w4a16": "w4a16-int4", "awq": "awq-int4", "gptq": "gptq-int4", "marlin": "gptq-int4",
    "bnb-int8": "bitsandbytes", "nf4": "bitsandbytes-nf4", "bnb-nf4": "bitsandbytes-nf4",
}  # fmt: skip


def of_scheme(scheme: Scheme, accelerator: Accelerator, kv_bits: float) -> Numerics:
    """Return how the engine multiplies with `scheme` on this GPU."""
    bits = scheme.bits
    if scheme.method is None or bits >= _SIXTEEN:
        return Numerics(kernel="16-bit", linear_bits=bits, expert_bits=bits, kv_bits=kv_bits)
    if scheme.method.startswith(_BITSANDBYTES):
        return _bitsandbytes(bits, kv_bits)
    if bits < _WIDEST_INT4:
        return Numerics(kernel="int4", linear_bits=bits, expert_bits=bits, kv_bits=kv_bits)
    native, capability = scheme.native_fp8, accelerator.compute_capability
    if native is not None and capability is not None and capability >= native and accelerator.fp8_tflops:
        return Numerics(kernel="fp8", linear_bits=bits, expert_bits=bits, kv_bits=kv_bits, products="fp8")
    return Numerics(kernel="w8a16", linear_bits=bits, expert_bits=bits, kv_bits=kv_bits)


def folded_word(text: str, known: Collection[str]) -> str | None:
    """Return the format in `known` for a name: `FP8_E4M3` is fp8, `W4A16` is w4a16-int4. None if there is none."""
    word = text.strip().lower().replace("_", "-").replace(" ", "-")
    return next((name for name in (word, _ALIASES.get(word)) if name in known), None)


def of_words(weights: str, kv: str, accelerator: Accelerator) -> Numerics:
    """Return the formats for names in `WEIGHT_WORDS` and `KV_BITS`. Raises KeyError for others."""
    kv_bits = KV_BITS[kv]
    if weights not in WEIGHT_WORDS:
        raise KeyError(weights)
    if weights in {"fp16", "bf16"}:
        return Numerics(kernel="16-bit", linear_bits=16, expert_bits=16, kv_bits=kv_bits)
    if weights.startswith(_BITSANDBYTES):
        bits = _NF4_BITS if weights.endswith("nf4") else 8
        return _bitsandbytes(bits, kv_bits)
    if weights == "mxfp4":
        return Numerics(kernel="mxfp4", linear_bits=16, expert_bits=_INT4_FP_SCALES_BITS, kv_bits=kv_bits)
    if weights == "w4a8":
        bits = _INT4_FP_SCALES_BITS
        return Numerics(kernel="w4a8", linear_bits=bits, expert_bits=bits, kv_bits=kv_bits, products="int8")
    if "int4" in weights:
        return Numerics(kernel="int4", linear_bits=_INT4_BITS, expert_bits=_INT4_BITS, kv_bits=kv_bits)
    return _eight_bits(weights, kv_bits, accelerator)


def _bitsandbytes(bits: float, kv_bits: float) -> Numerics:
    kernel = _BITSANDBYTES if bits < _WIDEST_INT4 else _BITSANDBYTES_INT8
    return Numerics(kernel=kernel, linear_bits=bits, expert_bits=bits, kv_bits=kv_bits)


def _eight_bits(weights: str, kv_bits: float, accelerator: Accelerator) -> Numerics:
    """Return the products of a GPU without 8-bit ones, which streams 8-bit weights and multiplies in 16 bits."""
    kernel, products = "w8a16", "16-bit"
    if weights in _ACTIVATIONS_INT8 and accelerator.int8_tops:
        kernel, products = "w8a8", "int8"
    elif weights.startswith("fp8") and accelerator.fp8_tflops:
        kernel, products = "fp8", "fp8"
    return Numerics(kernel=kernel, linear_bits=8, expert_bits=8, kv_bits=kv_bits, products=products)
