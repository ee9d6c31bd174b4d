"""The files of a model, wherever they lie, and which of them the engine downloads and loads.

What TGI takes from the hub: every safetensors file of the root whose name holds none of "arguments", "args" and
"training"; without one, the `.bin` files by the same rule, which it then converts (`utils/hub.py`, read at 3.3.7).
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy.catalog.safetensors import Tensor, bad_checkpoint, read_header
from tgi_deploy.catalog.store import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"
_TOKENIZER: Final = "tokenizer_config.json"
_TEMPLATES: Final = frozenset({"chat_template.json", "chat_template.jinja"})
_NOT_WEIGHTS: Final = ("arguments", "args", "training")
_DUPLICATE: Final = "consolidated"
_READERS: Final = 8


class ModelSource(Protocol):
    """The files of one model at one revision. Reading raises InputError."""

    @property
    def name(self) -> str:
        """How messages call it."""
        ...

    @property
    def revision(self) -> str | None:
        """The exact commit, where there are commits."""
        ...

    @property
    def gated(self) -> bool: ...

    @property
    def license(self) -> str | None: ...

    def files(self) -> Mapping[str, int]:
        """Size in bytes of every file, by its path with `/`."""
        ...

    def read(self, file: str) -> bytes:
        """All of a small file."""
        ...

    def read_range(self, file: str, start: int, length: int) -> bytes: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectorySource:
    """A model in a folder of this machine."""

    folder: Path
    revision: None = None
    gated: bool = False
    license: None = None

    @property
    def name(self) -> str:
        return str(self.folder)

    def files(self) -> Mapping[str, int]:
        """Only of the folder itself: that is where the engine looks. Links count as what they lead to."""
        return {path.name: path.stat().st_size for path in sorted(self.folder.glob("*")) if path.is_file()}

    def fingerprint(self) -> str:
        """Of names, sizes and times: another one when any file was written."""
        states = ((path.name, path.stat()) for path in sorted(self.folder.glob("*")) if path.is_file())
        listing = "\n".join(f"{name}\t{state.st_size}\t{state.st_mtime_ns}" for name, state in states)
        return hashlib.sha256(f"{self.folder}\n{self.folder.resolve()}\n{listing}".encode(errors="replace")).hexdigest()

    def read(self, file: str) -> bytes:
        return read_bytes(self.folder / file)

    def read_range(self, file: str, start: int, length: int) -> bytes:
        try:
            with (self.folder / file).open("rb") as opened:
                opened.seek(start)
                return opened.read(length)
        except OSError as problem:
            raise bad_checkpoint(str(self.folder / file), problem.strerror or str(problem)) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightFiles:
    """`loaded` and `duplicates` are downloaded; `converted` ones are `.bin` files, without readable headers."""

    loaded: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    converted: tuple[str, ...] = ()

    @property
    def downloaded(self) -> tuple[str, ...]:
        return (*self.loaded, *self.duplicates, *self.converted)


def weight_files(source: ModelSource) -> WeightFiles:
    """Sorts the files of the root.

    Raises:
        InputError: `bad_checkpoint` for an index that is broken or names a file that is not there.
    """
    names = source.files()
    safetensors = _weights(names, ".safetensors")
    if not safetensors:
        return WeightFiles(converted=_weights(names, ".bin"))
    wanted = _indexed(source, safetensors) if _INDEX in names else _not_duplicate(safetensors)
    return WeightFiles(loaded=wanted, duplicates=tuple(name for name in safetensors if name not in wanted))


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
        raise bad_checkpoint(place, f"it names {ascii(missing[0])[1:-1]:.100}, which is not there")
    return tuple(sorted(files))


def _all_texts(table: Mapping[str, Any]) -> bool:
    return all(isinstance(value, str) for value in table.values())


def headers(source: ModelSource, files: tuple[str, ...]) -> tuple[Tensor, ...]:
    """All tensors, each name once. Several files are read at a time: on the hub each is a request."""
    sizes = source.files()

    def tensors_of(file: str) -> tuple[Tensor, ...]:
        return read_header(
            posixpath.join(source.name, file),
            sizes[file],
            lambda start, length: source.read_range(file, start, length),
        )

    if len(files) == 1:
        return tensors_of(files[0])
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 -- one file needs no threads

    with ThreadPoolExecutor(_READERS) as pool:
        found = {tensor.name: tensor for tensors in pool.map(tensors_of, files) for tensor in tensors}
    return tuple(found.values())


def has_chat_template(source: ModelSource) -> bool:
    """Whether chat requests can be answered: a template of its own file, or one in the tokenizer's settings."""
    files = source.files()
    if not _TEMPLATES.isdisjoint(files):
        return True
    if _TOKENIZER not in files:
        return False
    return bool(parse_object(posixpath.join(source.name, _TOKENIZER), source.read(_TOKENIZER)).get("chat_template"))


def parse_object(place: str, content: bytes) -> dict[str, Any]:
    """Raises InputError `bad_checkpoint` for what is no JSON object."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        raise bad_checkpoint(place, "it is no JSON") from None
    if not isinstance(parsed, dict):
        raise bad_checkpoint(place, "it should hold one table")
    return parsed
