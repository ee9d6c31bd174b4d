"""The files of a model, and which of them the engine downloads and loads.

The engine downloads all safetensors files in the root whose names don't contain "arguments", "args" or "training"; if
there are none, the `.bin` files by the same rule, which it converts (`utils/hub.py`, read at 3.3.7).
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy import bounded_files, bounded_json
from tgi_deploy.catalog.safetensors import Head, Tensor, bad_checkpoint, read_head, tensors, whole_header
from tgi_deploy.catalog.store import read_bytes, unreadable
from tgi_deploy.text import printable
from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"
_TOKENIZER: Final = "tokenizer_config.json"
_TEMPLATES: Final = frozenset({"chat_template.json", "chat_template.jinja"})
_NOT_WEIGHTS: Final = ("arguments", "args", "training")
_DUPLICATE: Final = "consolidated"
_READERS: Final = 8
# Limit for all headers waiting to be parsed; larger ones are read one by one.
_AT_ONCE_BYTES: Final = 8 * bounded_files.MIB
# Limits for a whole checkpoint. Kimi K2 has 207,000 tensors in its 4-bit format (60 layers of 384 experts, 3 matrices
# of 3 parts each); the byte limit is the format's for a single header.
_MOST_TENSORS: Final = 400_000
_MOST_HEADER_BYTES: Final = 100_000_000


class ModelSource(Protocol):
    """The files of one model at one revision. Reading raises InputError."""

    @property
    def name(self) -> str:
        """The name for messages."""
        ...

    @property
    def revision(self) -> str | None:
        """The exact commit, if there are commits."""
        ...

    @property
    def gated(self) -> bool: ...

    @property
    def license(self) -> str | None: ...

    def files(self) -> Mapping[str, int]:
        """Return the sizes of all files in bytes, by path with `/`."""
        ...

    def read(self, file: str) -> bytes:
        """Return the content of a small file."""
        ...

    def read_range(self, file: str, start: int, length: int) -> bytes: ...


class DirectorySource(Value, frozen=True, kw_only=True):
    """A model in a local folder."""

    folder: Path
    revision: None = None
    gated: bool = False
    license: None = None

    @property
    def name(self) -> str:
        return str(self.folder)

    def files(self) -> Mapping[str, int]:
        """Return the files directly in the folder, where the engine looks. Links are followed."""
        return {name: state.st_size for name, state in self._states()}

    def fingerprint(self) -> str:
        """Return a hash of names, sizes and times, which changes if a file is written."""
        listing = "\n".join(f"{name}\t{state.st_size}\t{state.st_mtime_ns}" for name, state in self._states())
        return hashlib.sha256(f"{self.folder}\n{self.folder.resolve()}\n{listing}".encode(errors="replace")).hexdigest()

    def _states(self) -> list[tuple[str, os.stat_result]]:
        """Return names and stats of its regular files, sorted."""
        try:
            with os.scandir(self.folder) as entries:
                return sorted((entry.name, entry.stat()) for entry in entries if entry.is_file())
        except OSError as problem:
            raise unreadable(self.folder, problem.strerror or str(problem)) from None

    def read(self, file: str) -> bytes:
        return read_bytes(self.folder / file, most=bounded_json.MOST_BYTES)

    def read_range(self, file: str, start: int, length: int) -> bytes:
        try:
            return bounded_files.read_piece(self.folder / file, start, length)
        except OSError as problem:
            raise bad_checkpoint(str(self.folder / file), problem.strerror or str(problem)) from None


class WeightFiles(Value, frozen=True, kw_only=True):
    """`loaded` and `duplicates` are downloaded; `converted` are `.bin` files, without readable headers."""

    loaded: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    converted: tuple[str, ...] = ()

    @property
    def downloaded(self) -> tuple[str, ...]:
        return (*self.loaded, *self.duplicates, *self.converted)


def weight_files(source: ModelSource) -> WeightFiles:
    """Classify the files of the root.

    Raises:
        InputError: `bad_checkpoint` for an index that is broken or names a missing file.
    """
    names = source.files()
    safetensors = _weights(names, ".safetensors")
    if not safetensors:
        return WeightFiles(converted=_weights(names, ".bin"))
    wanted = _indexed(source, safetensors) if _INDEX in names else _not_duplicate(safetensors)
    return WeightFiles(loaded=wanted, duplicates=tuple(sorted(set(safetensors).difference(wanted))))


def _weights(names: Iterable[str], suffix: str) -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted(names)
        if name.endswith(suffix) and not posixpath.dirname(name) and not any(word in name for word in _NOT_WEIGHTS)
    )


def _not_duplicate(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if not name.startswith(_DUPLICATE)) or names


def _indexed(source: ModelSource, there: tuple[str, ...]) -> tuple[str, ...]:
    place = posixpath.join(source.name, _INDEX)
    weight_map = parse_object(place, source.read(_INDEX)).get("weight_map")
    files = set(weight_map.values()) if isinstance(weight_map, dict) and _all_texts(weight_map) else set()
    if not files:
        raise bad_checkpoint(place, "it has no weight_map from tensors to files")
    missing = sorted(files.difference(there))
    if missing:
        raise bad_checkpoint(place, f"it names {printable(missing[0])}, which does not exist")
    return tuple(sorted(files))


def _all_texts(table: Mapping[str, Any]) -> bool:
    return all(isinstance(value, str) for value in table.values())


def headers(source: ModelSource, files: tuple[str, ...]) -> Iterator[Tensor]:
    """Yield all tensors, file by file, parsing one header at a time.

    Raises:
        InputError: `bad_checkpoint`, naming the file, or for implausibly large checkpoints.
    """
    found = header_bytes = 0
    for head, header in _headers(source, files):
        header_bytes += head.header_bytes
        if header_bytes > _MOST_HEADER_BYTES:
            raise bad_checkpoint(source.name, f"its headers have more than {_MOST_HEADER_BYTES:,} bytes in total")
        for tensor in tensors(head, header):
            found += 1
            yield tensor
        if found > _MOST_TENSORS:
            raise bad_checkpoint(source.name, f"its headers describe more than {_MOST_TENSORS:,} tensors")


def _headers(source: ModelSource, files: tuple[str, ...]) -> Iterator[tuple[Head, bytes]]:
    """Yield the headers. Several are read in parallel, because each takes one or two requests to the hub."""
    sizes = source.files()

    def start(file: str) -> Head:
        return read_head(posixpath.join(source.name, file), sizes[file], partial(source.read_range, file))

    if len(files) == 1:
        head = start(files[0])
        yield head, whole_header(head)
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 -- one file needs no threads

    with ThreadPoolExecutor(_READERS) as pool:
        for first in range(0, len(files), _READERS):
            heads = list(pool.map(start, files[first : first + _READERS]))
            are_small = sum(head.header_bytes for head in heads) <= _AT_ONCE_BYTES
            yield from zip(heads, (pool.map if are_small else map)(whole_header, heads), strict=True)


def has_chat_template(source: ModelSource) -> bool:
    """Return whether there is a chat template, as a file or in the tokenizer's settings."""
    files = source.files()
    if not _TEMPLATES.isdisjoint(files):
        return True
    if _TOKENIZER not in files:
        return False
    return bool(parse_object(posixpath.join(source.name, _TOKENIZER), source.read(_TOKENIZER)).get("chat_template"))


def parse_object(place: str, content: bytes, *, infinite: bool = False) -> dict[str, Any]:
    """Parse a JSON object. Raises InputError `bad_checkpoint` for anything else."""
    try:
        return bounded_json.parse_object(content, infinite=infinite)
    except ValueError as problem:
        raise bad_checkpoint(place, str(problem)) from None
