"""Headers of safetensors files: eight bytes of length, then JSON: name → dtype, shape, offsets. Data is never read.

The format: https://huggingface.co/docs/safetensors. It allows headers of 100 MB, which take a gigabyte to parse; the
hub's client reads at most a quarter of that. Its `get_safetensors_metadata` is not used (read at 0.36.2): it does not
read folders, accepts unlimited data and JSON of any depth, has no deadline, and does not compare shapes with sizes or
the last tensor with the file's length, which detects truncated files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Final

from tgi_deploy import bounded_json
from tgi_deploy.errors import InputError
from tgi_deploy.text import printable
from tgi_deploy.values.base import Value

ReadRange = Callable[[int, int], bytes]

LENGTH_BYTES: Final = 8
# SAFETENSORS_MAX_HEADER_LENGTH of huggingface_hub 0.36 and 2.4. A tensor takes about 130 bytes: shards of the largest
# models have headers below one MB; the 74,000 tensors of Qwen3-30B-A3B in GPTQ would take ten.
_LONGEST_HEADER_BYTES: Final = 25_000_000
_LONGEST_NAME: Final = 500
_MOST_DIMENSIONS: Final = 32
# Size of the first read: nearly all headers are shorter.
FIRST_BYTES: Final = 128 * 1024
_LFS_POINTER: Final = b"version https://git-lfs"
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


class Tensor(Value, frozen=True, kw_only=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Head(Value, frozen=True, kw_only=True):
    """The first part of a file: its header's length, and as much of the header as was read."""

    file: str
    file_bytes: int
    first: bytes
    header_bytes: int
    read_range: ReadRange


def read_head(file: str, file_bytes: int, read_range: ReadRange) -> Head:
    """Read the first part of a file of `file_bytes` through `read_range(start, length)`.

    Raises:
        InputError: `bad_checkpoint`, naming the file.
    """
    first = read_range(0, min(FIRST_BYTES, file_bytes)) if file_bytes else b""
    if first.startswith(_LFS_POINTER):
        raise bad_checkpoint(file, "it is a Git LFS pointer, not the weights", hint="run: git lfs pull")
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if len(first) < LENGTH_BYTES or not 0 < length <= file_bytes - LENGTH_BYTES:
        raise bad_checkpoint(file, "it does not start with a safetensors header")
    if length > _LONGEST_HEADER_BYTES:
        raise bad_checkpoint(
            file, f"its header has {length:,} bytes, but the hub's own tools read at most {_LONGEST_HEADER_BYTES:,}"
        )
    return Head(file=file, file_bytes=file_bytes, first=first, header_bytes=length, read_range=read_range)


def whole_header(head: Head) -> bytes:
    """Return the header's text, with a second read if the first was too short."""
    there = head.first[LENGTH_BYTES : LENGTH_BYTES + head.header_bytes]
    missing = head.header_bytes - len(there)
    return there + head.read_range(len(head.first), missing) if missing else there


def tensors(head: Head, header: bytes) -> Iterator[Tensor]:
    """Yield the tensors in a file's `header`. Raises InputError `bad_checkpoint`, naming the file."""
    table = _table(head.file, header)
    last = 0
    for name, entry in table.items():
        yield _tensor(head.file, name, entry)
        last = max(last, entry["data_offsets"][1])
    there = head.file_bytes - LENGTH_BYTES - head.header_bytes
    if last > there:
        raise bad_checkpoint(
            head.file,
            f"it is truncated: its header promises {last:,} bytes of data, but there are {there:,}",
            hint="download the file again",
        )


def _table(file: str, header: bytes) -> dict[str, Any]:
    try:
        table = bounded_json.parse_object(header)
    except ValueError as problem:
        raise bad_checkpoint(file, f"its header can't be read: {problem}") from None
    table.pop("__metadata__", None)
    return table


def _tensor(file: str, name: str, entry: object) -> Tensor:
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]  # type: ignore[index]
        bits = _BITS[dtype]
        tensor = Tensor(name=name, dtype=dtype, shape=tuple(shape), size_bytes=end - start)
        sound = all(type(size) is int and size >= 0 for size in (*shape, start, end))
    except (KeyError, TypeError, ValueError):
        raise bad_checkpoint(file, f"its header has an invalid entry for {printable(name)}") from None
    if len(name) > _LONGEST_NAME or len(shape) > _MOST_DIMENSIONS:
        raise bad_checkpoint(file, f"its header has an entry with too long a name or shape, {printable(name)}")
    if not sound or tensor.elements * bits != tensor.size_bytes * 8:
        raise bad_checkpoint(file, f"shape and size of {printable(name)} do not agree in its header")
    return tensor


def bad_checkpoint(file: str, problem: str, *, hint: str | None = None) -> InputError:
    return InputError(
        "bad_checkpoint",
        f"reading {printable(file)}: {problem}",
        hint=hint or "download it again, or use a checkpoint in the hub's layout",
    )
