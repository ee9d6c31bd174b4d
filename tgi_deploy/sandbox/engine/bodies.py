"""Request bodies, with the types of the router's structs (TGI 3.3.7 `router/src/lib.rs`)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct

Unsigned = Annotated[int, Meta(ge=0)]
Unsigned32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Signed32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]

# What the router's parser reports as expected: by member, else by kind.
EXPECTED: Final = {
    "": "struct GenerateRequest",
    "parameters": "struct GenerateParameters",
    "stream_options": "struct StreamOptions",
    "grammar": "adjacently tagged enum GrammarType",
    "response_format": "adjacently tagged enum GrammarType",
    **dict.fromkeys(("best_of", "truncate"), "usize"),
    **dict.fromkeys(("max_new_tokens", "top_n_tokens", "max_tokens", "n", "top_logprobs"), "u32"),
    "seed": "u64",
    "top_k": "i32",
    "str": "a string",
    "bool": "a boolean",
    "float": "f32",
    "array": "a sequence",
    "object": "a map",
}


class Grammar(Struct, frozen=True, kw_only=True):
    """The required form of the answer."""

    type: Literal["json", "json_object", "regex", "json_schema"]
    value: Any


class Parameters(Struct, frozen=True, kw_only=True):
    """`parameters` of a generate request, in the order of the engine's log."""

    best_of: Unsigned | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: Signed32 | None = None
    top_p: float | None = None
    typical_p: float | None = None
    do_sample: bool = False
    max_new_tokens: Unsigned32 | None = None
    return_full_text: bool | None = None
    stop: tuple[str, ...] = ()
    truncate: Unsigned | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: Unsigned | None = None
    top_n_tokens: Unsigned32 | None = None
    grammar: Grammar | None = None
    adapter_id: str | None = None

    @property
    def samples(self) -> bool:
        chosen = (self.temperature, self.top_k, self.top_p, self.typical_p)
        return self.do_sample or any(value is not None for value in chosen)


class Generate(Struct, frozen=True, kw_only=True):
    """`/generate`, `/generate_stream` and `/`, which uses `stream`."""

    inputs: str
    parameters: Parameters = Parameters()
    stream: bool = False


class Tokenize(Struct, frozen=True, kw_only=True):
    """`/tokenize`."""

    inputs: str


class Vertex(Struct, frozen=True, kw_only=True):
    """`/vertex`: each instance is a chat or a generate request."""

    instances: tuple[dict[str, Any], ...]


class Message(Struct, frozen=True, kw_only=True):
    """A chat message: text, parts, or tool calls."""

    role: str
    content: Any = UNSET
    tool_calls: Any = UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.content, str | list) and self.tool_calls is UNSET:
            raise ValueError("data did not match any variant of untagged enum MessageBody")


class StreamOptions(Struct, frozen=True, kw_only=True):
    """Whether a stream ends with its token usage."""

    include_usage: bool = True


class Sampling(Struct, frozen=True, kw_only=True):
    """Shared by chat and completions. Temperature 0 means greedy here, unlike in `/generate`."""

    frequency_penalty: float | None = None
    max_tokens: Unsigned32 | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Unsigned | None = None
    stop: tuple[str, ...] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def parameters(self, **own: Any) -> Parameters:  # noqa: ANN401 -- members of Parameters, each of its own type
        """Return the parameters that the router derives from an OpenAI-style body."""
        return Parameters(
            frequency_penalty=self.frequency_penalty,
            temperature=self.temperature or None,
            do_sample=bool(self.temperature),
            max_new_tokens=self.max_tokens,
            top_p=self.top_p,
            seed=self.seed,
            stop=self.stop or (),
            **own,
        )


class Chat(Sampling, frozen=True, kw_only=True):
    """`/v1/chat/completions` and `/chat_tokenize`."""

    messages: tuple[Message, ...]
    logprobs: bool | None = None
    top_logprobs: Unsigned32 | None = None
    n: Unsigned32 | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    tool_choice: Any = None
    response_format: Grammar | None = None


class Prompts(tuple[str, ...]):
    """One prompt or several."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Prompts:
        """Return the prompts. Raises ValueError with the router's message."""
        if value == []:
            raise ValueError("Empty array detected. Do not use an empty array for the prompt.")
        prompts: list[object] = value if isinstance(value, list) else [value]
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        if len(texts) < len(prompts):
            raise ValueError("data did not match any variant of untagged enum PromptDeserializer")
        return cls(texts)


class Completion(Sampling, frozen=True, kw_only=True):
    """`/v1/completions`."""

    prompt: Prompts
    repetition_penalty: float | None = None
    suffix: str | None = None
