"""Pseudo-generation without a model: the same request gives the same tokens, and lengths and stops are honored."""

from __future__ import annotations

import hashlib
import random
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.sandbox.engine.bodies import Parameters
    from tgi_deploy.sandbox.engine.inference import Prepared

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


EOS_TEXT: Final = "</s>"
EOS_ID: Final = 2
_SHORTEST: Final = 24
_LONGEST: Final = 96
_WORDS: Final = tuple(
    (  # noqa: SIM905 -- a list of one word a line would be longer than the module
        "a the this that model answer token cloud shard layer graph batch cache prompt weight memory engine "
        "fast small large quiet steady plain clear deep wide new old is was gives takes holds keeps finds reads "
        "writes serves loads plans checks and but or so while because over under near with from into for by each"
    ).split()
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    id: int
    text: str
    logprob: float
    special: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One generated token; `finish_reason` is set on the last, `top` if alternatives were requested."""

    token: Token
    top: tuple[Token, ...] = ()
    finish_reason: str | None = None

    @property
    def shown(self) -> str:
        """Return its part of the answer."""
        return "" if self.token.special else self.token.text


def _seed_of(prepared: Prepared) -> int:
    """Return the random seed: greedy decoding depends only on the prompt, sampling also on the request's seed."""
    parameters = prepared.asked.parameters
    salt = f"{prepared.seed}|{parameters.temperature}" if parameters.samples else "greedy"
    digest = hashlib.sha256(f"{salt}|{prepared.prompt}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def generate(prepared: Prepared, tokenizer: Tokenizer) -> Iterator[Step]:
    """Yield tokens up to the limit, the end-of-sequence token or a stop sequence."""
    dice = random.Random(_seed_of(prepared))  # noqa: S311 -- it shall be predictable
    parameters, text = prepared.asked.parameters, ""
    for index, piece in enumerate(_pieces(dice, tokenizer, prepared.forced), start=1):
        if piece is None:
            token = Token(id=EOS_ID, text=EOS_TEXT, logprob=_logprob(dice), special=True)
            yield Step(token=token, top=_top(token, parameters, tokenizer), finish_reason="eos_token")
            return
        text += piece
        token = Token(id=tokenizer.id_of(piece), text=piece, logprob=_logprob(dice))
        reason = "length" if index >= prepared.max_new_tokens else None
        if any(text.endswith(stop) for stop in parameters.stop):
            reason = "stop_sequence"
        yield Step(token=token, top=_top(token, parameters, tokenizer), finish_reason=reason)
        if reason is not None:
            return


def _pieces(dice: random.Random, tokenizer: Tokenizer, forced_text: str | None) -> Iterator[str | None]:
    """Yield token texts, then None for the end."""
    words = (f" {dice.choice(_WORDS)}" for _ in range(dice.randint(_SHORTEST, _LONGEST)))
    for text in words if forced_text is None else (forced_text,):
        yield from tokenizer.cut(text)
    yield None


def _logprob(dice: random.Random) -> float:
    return -round(dice.uniform(0.01, 2.5), 4)


def _top(token: Token, parameters: Parameters, tokenizer: Tokenizer) -> tuple[Token, ...]:
    wanted = parameters.top_n_tokens or 0
    if wanted == 0:
        return ()
    own = random.Random(token.id)  # noqa: S311 -- alternatives must not change what is generated next
    others = [f" {word}" for word in own.sample(_WORDS, wanted) if f" {word}" != token.text]
    alternatives = [
        Token(id=tokenizer.id_of(text), text=text, logprob=token.logprob - place)
        for place, text in enumerate(others, start=1)
    ]
    return (token, *alternatives)[:wanted]
