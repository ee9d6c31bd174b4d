"""Headers of safetensors files: eight bytes of length, then JSON: name → dtype, shape, place. Data is never read.

The format: https://huggingface.co/docs/safetensors, which also sets the longest header.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH_BYTES: Final = 8
_LONGEST_HEADER_BYTES: Final = 100_000_000
# What one request brings: nearly every header is shorter.
FIRST_BYTES: Final = 128 * 1024
_LFS_POINTER: Final = b"version https://git-lfs"
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read_header(file: str, file_bytes: int, read_range: Callable[[int, int], bytes]) -> tuple[Tensor, ...]:
    """The tensors of a file of `file_bytes`; `read_range(start, length)` brings a piece of it.

    Raises:
        InputError: `bad_checkpoint`, naming the file.
    """
    first = read_range(0, min(FIRST_BYTES, file_bytes))
    if first.startswith(_LFS_POINTER):
        raise bad_checkpoint(file, "it is a Git LFS pointer, not the weights", hint="Run: git lfs pull")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    if len(first) < LENGTH_BYTES or not 0 < length <= _LONGEST_HEADER_BYTES or end > file_bytes:
        raise bad_checkpoint(file, "it does not start with a safetensors header")
    header = first[LENGTH_BYTES:end]
    if len(header) < length:
        header += read_range(len(first), end - len(first))
    return _tensors(file, _table(file, header), file_bytes - end)


def _table(file: str, header: bytes) -> dict[str, Any]:
    try:
        table = json.loads(header)
    except (ValueError, RecursionError):
        raise bad_checkpoint(file, "its header is no JSON") from None
    if not isinstance(table, dict):
        raise bad_checkpoint(file, "its header is no table")
    table.pop("__metadata__", None)
    return table


def _tensors(file: str, table: dict[str, Any], data_bytes: int) -> tuple[Tensor, ...]:
    found = tuple(_tensor(file, name, entry) for name, entry in table.items())
    last = max((entry["data_offsets"][1] for entry in table.values()), default=0)
    if last > data_bytes:
        raise bad_checkpoint(
            file,
            f"it is cut short: its header promises {last:,} bytes of data and {data_bytes:,} are there",
            hint="Download the file again.",
        )
    return found


def _tensor(file: str, name: str, entry: object) -> Tensor:
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]  # type: ignore[index]
        bits = _BITS[dtype]
        tensor = Tensor(name=name, dtype=dtype, shape=tuple(shape), size_bytes=end - start)
        sound = all(type(size) is int and size >= 0 for size in (*shape, start))
    except (KeyError, TypeError, ValueError):
        raise bad_checkpoint(file, f"its header does not describe {_shown(name)} in a known way") from None
    if not sound or tensor.elements * bits != tensor.size_bytes * 8:
        raise bad_checkpoint(file, f"shape and size of {_shown(name)} do not agree in its header")
    return tensor


def bad_checkpoint(file: str, problem: str, *, hint: str | None = None) -> InputError:
    return InputError(
        "bad_checkpoint",
        f"Reading {_shown(file)}: {problem}.",
        hint=hint or "Download it again, or give a checkpoint in the layout of the hub.",
    )


def _shown(name: str) -> str:
    printable = name if name.isprintable() else ascii(name)[1:-1]
    return printable if len(printable) <= 200 else f"{printable[:200]}…"  # noqa: PLR2004 -- a line
