"""Pseudo-generation without a model: the same request gives the same tokens, and lengths and stops are honored."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tgi_deploy.sandbox.engine.bodies import ApiError, Body
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE: Final = re.compile(r" ?\w{1,6}|\s|[^\w\s]")
_RESERVED_IDS: Final = 3
_WORDS: Final = tuple(
    (  # noqa: SIM905 -- a list of one word a line would be longer than the module
        "a the this that model answer token cloud shard layer graph batch cache prompt weight memory engine "
        "fast small large quiet steady plain clear deep wide new old is was gives takes holds keeps finds reads "
        "writes serves loads plans checks and but or so while because over under near with from into for by each"
    ).split()
)


class Token(Frozen, frozen=True, kw_only=True):
    """A token, with the members of the engine's replies."""

    id: int
    text: str
    logprob: float = 0.0
    special: bool = False


class Tokenizer(Frozen, frozen=True, kw_only=True):
    """The tokenizer. `vocab_size` limits the ids. `begins`: prompts start with a special token."""

    vocab_size: int
    begins: bool = False

    def encode(self, text: str) -> tuple[Token, ...]:
        begin = [Token(id=1, text="<s>", special=True)] if self.begins else []
        return (*begin, *map(self.token, _PIECE.findall(text)))

    def token(self, piece: str, logprob: float = 0.0) -> Token:
        identity = zlib.crc32(piece.encode()) % max(1, self.vocab_size - _RESERVED_IDS) + _RESERVED_IDS
        return Token(id=identity, text=piece, logprob=logprob)


class Step(Frozen, frozen=True, kw_only=True):
    """One generated token; `finish_reason` is set on the last, `top` if alternatives were requested."""

    token: Token
    top: tuple[Token, ...] = ()
    finish_reason: str | None = None

    @property
    def shown(self) -> str:
        """Return its part of the answer."""
        return "" if self.token.special else self.token.text


class Query(Frozen, frozen=True, kw_only=True):
    """A generation request. `route` is its name in the log, `within` the route that called it, if any."""

    route: str
    inputs: str
    parameters: Body
    within: str = ""

    @property
    def samples(self) -> bool:
        given = self.parameters
        chosen = (given.temperature, given.top_k, given.top_p, given.typical_p)
        return given.do_sample or any(value is not None for value in chosen)


class Generation(msgspec.Struct, kw_only=True):
    """A valid request and its answer so far. `forced`: the text that its grammar dictates. Times are in seconds."""

    query: Query
    pieces: tuple[Token, ...]
    max_new_tokens: int
    seed: int | None = None
    forced: str | None = None
    started: float = 0.0
    validated: float = 0.0
    inferred: float = 0.0
    steps: list[Step] = []

    @property
    def text(self) -> str:
        return "".join(step.shown for step in self.steps)

    @property
    def shown_text(self) -> str:
        """Return the text with the prompt, if that was requested."""
        return (self.query.inputs if self.query.parameters.return_full_text else "") + self.text

    @property
    def finish_reason(self) -> str:
        return self.steps[-1].finish_reason or "length"

    def parts_s(self) -> tuple[float, ...]:
        """Return total, validation, queue and inference time, and the time of a token."""
        total = time.perf_counter() - self.started
        return total, self.validated, 0.0, self.inferred, self.inferred / max(1, len(self.steps))


def generate(generation: Generation, tokenizer: Tokenizer) -> Iterator[Step]:
    """Yield tokens up to the limit, the end-of-sequence token or a stop sequence.

    Greedy decoding depends only on the prompt, sampling also on the request's seed.
    """
    parameters, text = generation.query.parameters, ""
    salt = f"{generation.seed}|{parameters.temperature}" if generation.query.samples else "greedy"
    prompt = "".join(piece.text for piece in generation.pieces)
    digest = hashlib.sha256(f"{salt}|{prompt}".encode()).digest()
    rng = random.Random(int.from_bytes(digest[:8], "big"))  # noqa: S311 -- it must be reproducible
    for index, piece in enumerate(_pieces(rng, generation.forced), start=1):
        logprob, reason = -round(rng.uniform(0.01, 2.5), 4), "length" if index >= generation.max_new_tokens else None
        if piece is None:
            token, reason = Token(id=2, text="</s>", logprob=logprob, special=True), "eos_token"
        else:
            token, text = tokenizer.token(piece, logprob), text + piece
            reason = "stop_sequence" if any(map(text.endswith, parameters.stop)) else reason
        top = _top(token, parameters.top_n_tokens or 0, tokenizer)
        yield Step(token=token, top=top, finish_reason=reason)
        if reason is not None:
            return


def _pieces(rng: random.Random, forced_text: str | None) -> Iterator[str | None]:
    """Yield token texts, then None for the end."""
    words = (f" {rng.choice(_WORDS)}" for _ in range(rng.randint(24, 96)))
    for text in words if forced_text is None else (forced_text,):
        yield from _PIECE.findall(text)
    yield None


def _top(token: Token, wanted: int, tokenizer: Tokenizer) -> tuple[Token, ...]:
    if wanted == 0:
        return ()
    others_rng = random.Random(token.id)  # noqa: S311 -- alternatives must not change what is generated next
    others = [f" {word}" for word in others_rng.sample(_WORDS, wanted) if f" {word}" != token.text]
    alternatives = (tokenizer.token(text, token.logprob - place) for place, text in enumerate(others, start=1))
    return (token, *alternatives)[:wanted]


_SIMPLE: Final = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_DEPTH: Final = 12


def forced_text(grammar: Body) -> str | None:
    """Return the only text that a grammar allows; None if it allows several. Raises ApiError."""
    if grammar.type == "regex":
        try:
            re.compile(str(grammar.value))
        except re.error as error:
            raise ApiError("generation", "Request failed during generation: Server error: ") from error
        return None
    try:
        schema = json.loads(grammar.value) if isinstance(grammar.value, str) else grammar.value
    except ValueError as error:
        raise ApiError("validation", f"grammar is not valid: {error}") from error
    if grammar.type == "json_schema" and isinstance(schema, dict):
        schema = schema.get("schema", schema)
    if not isinstance(schema, dict) or "properties" not in schema:
        raise ApiError("validation", "grammar is not valid: Grammar must have a 'properties' field")
    return json.dumps(example(schema))


def example(schema: object, depth: int = _DEPTH) -> Any:  # noqa: ANN401 -- any JSON value
    """Return the smallest value that a schema allows; only a few keywords are supported. Raises ApiError."""
    if not isinstance(schema, dict) or depth == 0:
        return {}
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type", "object")
    kind = str(kind[0]) if isinstance(kind, list) and kind else str(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "array":
        return [example(schema["items"], depth - 1)] if "items" in schema else []
    if kind != "object":
        why = f"{json.dumps(kind)} is not valid under any of the schemas listed in the 'anyOf' keyword"
        raise ApiError("validation", f"grammar is not valid: {why}")
    properties = schema.get("properties")
    return {name: example(part, depth - 1) for name, part in properties.items()} if isinstance(properties, dict) else {}
