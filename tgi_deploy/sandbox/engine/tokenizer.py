"""A fake tokenizer: splits text into pieces that join back to exactly that text."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE: Final = re.compile(r" ?\w{1,6}|\s|[^\w\s]")
_RESERVED_IDS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    id: int
    text: str
    start: int
    stop: int


_BEGIN: Final = Piece(id=1, text="<s>", start=0, stop=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokenizer:
    """The tokenizer. `vocab_size` limits the ids. `begins`: prompts start with a special token."""

    vocab_size: int
    begins: bool = False

    def encode(self, text: str) -> tuple[Piece, ...]:
        pieces = (
            Piece(id=self.id_of(match.group()), text=match.group(), start=match.start(), stop=match.end())
            for match in _PIECE.finditer(text)
        )
        return (_BEGIN, *pieces) if self.begins else tuple(pieces)

    def cut(self, text: str) -> Iterator[str]:
        return (match.group() for match in _PIECE.finditer(text))

    def id_of(self, piece: str) -> int:
        return zlib.crc32(piece.encode()) % max(1, self.vocab_size - _RESERVED_IDS) + _RESERVED_IDS
