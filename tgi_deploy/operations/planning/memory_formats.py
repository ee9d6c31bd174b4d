"""Parses the texts of a measured row: number formats, units, metrics, engines and their versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.values.sizes import GIB, SIXTEEN_BITS, UNQUANTIZED, Format, uniform

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS: Final = {"bytes": 1, "gib": GIB, "mib": 1024**2, "gb": 10**9, "mb": 10**6, "tokens": 1, "values": 1}
_GROUP: Final = re.compile(r"\bg(?:roup)?[ _-]?(\d+)")
_BITS_PER_WEIGHT: Final = re.compile(r"(\d+(?:\.\d+)?) ?bpw")
_DEFAULT_GROUP: Final = 128
_SCALE_AND_ZERO_BITS: Final = 20  # one 16-bit scale and one 4-bit zero per group
_MXFP4_BITS: Final = 4.25  # 4 bits, and one 8-bit exponent per 32 values
_NF4_BITS: Final = 4.127  # blocks of 64, with quantized scales
_BLOCK_SCALED_BITS: Final = 8 + 32 / (128 * 128)
_COUNTS: Final = ("_tokens", "_blocks", "concurrency", "fits", "oom", "out_of_memory")
_METRIC: Final = re.compile(r"(?:_(bytes|gib|mib|gb|mb))?(?:_per_gpu)?$")
_UNQUANTIZED_WORDS: Final = ("none", "16", "32", "half", "float")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A metric's name without its unit, and the bytes (or tokens) per unit: the row's, else that of the suffix."""

    name: str
    scale: float


def metric_of(row: Mapping[str, str]) -> Metric:
    text = row.get("metric", "").strip().lower()
    name = _METRIC.sub("", text) or text
    if name.endswith(_COUNTS):
        return Metric(name=name, scale=1)
    unit, named = row.get("unit", "").lower().split(), _METRIC.search(text)
    words = [*unit[:1], named.group(1) or "" if named else ""]
    return Metric(name=name, scale=next((UNITS[word] for word in words if word in UNITS), 1))


def version_key(text: str) -> tuple[int, ...]:
    """Return the first version in a text: `0.6-0.7` and `v0.6` are (0, 6)."""
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def format_of(row: Mapping[str, str]) -> Format:
    """Return how the weights are stored, from the columns `quant` and `weight_dtype`.

    Raises:
        InputError: `bad_cases` for an unknown format: assuming 16 bits would be a guess.
    """
    text = f"{row.get('quant', '')} {row.get('weight_dtype', '')}".lower().strip()
    for marks, made in _FORMATS:
        if any(mark in text for mark in marks):
            return made(text) if callable(made) else made
    if text and not any(word in text for word in _UNQUANTIZED_WORDS):
        raise InputError("bad_cases", f"{text[:80]!r} is not a known number format", hint="write awq int4, for example")
    return UNQUANTIZED


def _grouped(text: str) -> Format:
    bits = 8 if "int8" in text or "8-bit" in text else 4
    if "no group" in text or "group -1" in text:
        return uniform(bits)
    found = _GROUP.search(text)
    group = int(found.group(1)) if found else _DEFAULT_GROUP
    zeros = _SCALE_AND_ZERO_BITS if "awq" in text or "gptq" in text else _SCALE_AND_ZERO_BITS - 4
    return uniform(bits + zeros / group)


def _exl2(text: str) -> Format:
    found = _BITS_PER_WEIGHT.search(text)
    return uniform(float(found.group(1)) if found else 4.0)


_FORMATS: Final = (
    (("mxfp4",), Format(expert_bits=_MXFP4_BITS)),
    (("fbgemm",), Format(linear_bits=8, expert_bits=8, edge_layers_bits=SIXTEEN_BITS)),
    (("fp8 block", "fp8-block", "block 128"), uniform(_BLOCK_SCALED_BITS)),
    (("exl2", "bpw"), _exl2),
    (("nf4", "fp4", "bnb 4", "bnb int4", "bitsandbytes 4"), uniform(_NF4_BITS)),
    (("awq", "gptq", "int4", "w4a16", "marlin", "4-bit"), _grouped),
    (("fp8", "int8", "w8a8", "8-bit", "eetq", "bnb", "bitsandbytes"), uniform(8)),
)
