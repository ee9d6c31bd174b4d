"""The service behind the routes: admission, validation, generation at the pace of the card, counting."""

from __future__ import annotations

import json
import secrets
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine import cpu
from tgi_deploy.sandbox.engine.examples import example
from tgi_deploy.sandbox.engine.faults import Fault
from tgi_deploy.sandbox.engine.generator import Step, generate
from tgi_deploy.sandbox.engine.metrics import Metrics
from tgi_deploy.sandbox.engine.parameters import Bounds, Parameters, check_parameters
from tgi_deploy.sandbox.engine.replies import ApiError
from tgi_deploy.sandbox.engine.tokenizer import Piece, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tgi_deploy.sandbox.engine.situation import Situation
    from tgi_deploy.sandbox.engine.warmup import TokenLimits

_OLD_DEFAULT_NEW_TOKENS: Final = 100
_BANDWIDTH_SHARE: Final = 0.6
_COMPUTE_SHARE: Final = 0.4
_LEAST_STEP_S: Final = 0.004
# A prompt that a fault takes for long: more than a question, less than any plan's longest.
_LONG_PROMPT_TOKENS: Final = 256
OUT_OF_MEMORY: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. "
    "GPU 0 has a total capacity of 22.28 GiB of which 118.12 MiB is free."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A valid request: what is prefilled and how many tokens may follow."""

    inputs: str
    prompt: str
    pieces: tuple[Piece, ...]
    parameters: Parameters
    max_new_tokens: int


@dataclass(kw_only=True, slots=True)
class Timing:
    """Measured on the stand-in's clock, in seconds."""

    started: float = field(default_factory=time.perf_counter)
    validated: float = 0.0
    inferred: float = 0.0

    @property
    def total_s(self) -> float:
        return time.perf_counter() - self.started


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A finished generation."""

    prepared: Prepared
    steps: tuple[Step, ...]
    timing: Timing

    @property
    def text(self) -> str:
        return "".join(step.token.text for step in self.steps if not step.token.special)

    @property
    def finish_reason(self) -> str:
        return self.steps[-1].finish_reason or "length"


class Inference:
    """One served model. Safe to call from many threads. `out_of_memory`: a prefill took the shard down."""

    def __init__(self, situation: Situation, limits: TokenLimits, speed: float) -> None:
        arguments = situation.arguments
        self.situation = situation
        self.limits = limits
        self.metrics = Metrics()
        self.tokenizer = Tokenizer(vocab_size=situation.checkpoint.model.vocab_size)
        self.bounds = Bounds(
            max_best_of=arguments.required_number("max-best-of", 2),
            max_stop_sequences=arguments.required_number("max-stop-sequences", 4),
            max_top_n_tokens=arguments.required_number("max-top-n-tokens", 5),
            max_input_tokens=limits.max_input_tokens,
            grammar_enabled=not arguments.on("disable-grammar-support"),
        )
        self.out_of_memory = threading.Event()
        self._speed = speed
        self._slots = threading.BoundedSemaphore(arguments.required_number("max-concurrent-requests", 128))

    @contextmanager
    def admitted(self) -> Iterator[Timing]:
        """A place among the concurrent requests.

        Raises:
            ApiError: kind `overloaded`, when there is none.
        """
        self.metrics.count("tgi_request_count")
        full = Fault.OVERLOADED in self.situation.faults or not self._slots.acquire(blocking=False)
        if full:
            self.metrics.count("tgi_request_failure", err="overloaded")
            raise ApiError("overloaded", "Model is overloaded")
        self.metrics.add("tgi_queue_size", 0)  # a request is batched at once
        self.metrics.add("tgi_batch_current_size", 1)
        try:
            yield Timing()
        except ApiError as error:
            self.metrics.count("tgi_request_failure", err=error.kind)
            raise
        finally:
            self.metrics.add("tgi_batch_current_size", -1)
            self._slots.release()

    def prepare(self, inputs: str, parameters: Parameters, timing: Timing, *, streaming: bool) -> Prepared:
        """Validate a request.

        Raises:
            ApiError: kind `validation`.
        """
        check_parameters(parameters, self.bounds, streaming=streaming)
        if not inputs:
            raise ApiError("validation", "`inputs` cannot be empty")
        pieces = self.tokenizer.encode(inputs)
        if parameters.truncate is not None:
            pieces = pieces[-parameters.truncate :]
        prepared = Prepared(
            inputs=inputs,
            prompt="".join(piece.text for piece in pieces),
            pieces=pieces,
            parameters=_settled(parameters),
            max_new_tokens=self._room(len(pieces), parameters.max_new_tokens),
        )
        timing.validated = timing.total_s
        self.metrics.observe("tgi_request_validation_duration", timing.validated)
        self.metrics.observe("tgi_request_input_length", len(pieces))
        self.metrics.observe("tgi_request_max_new_tokens", prepared.max_new_tokens)
        return prepared

    def _room(self, used: int, wanted: int | None) -> int:
        limits = self.limits
        if used > limits.max_input_tokens:
            raise ApiError(
                "validation", f"`inputs` must have less than {limits.max_input_tokens} tokens. Given: {used}"
            )
        left = limits.max_total_tokens - used
        if wanted is None:
            return left if self.situation.release.chunked_prefill else min(left, _OLD_DEFAULT_NEW_TOKENS)
        if wanted > left:
            raise ApiError(
                "validation",
                f"`inputs` tokens + `max_new_tokens` must be <= {limits.max_total_tokens}. "
                f"Given: {used} `inputs` tokens and {wanted} `max_new_tokens`",
            )
        return wanted

    def steps(self, prepared: Prepared, timing: Timing) -> Generator[Step]:
        """Tokens as they come, at the card's pace. Counts the request when it is finished."""
        self.metrics.count("tgi_batch_inference_count", method="prefill")
        self._take(self._prefill_s(len(prepared.pieces)))
        self._check_memory(len(prepared.pieces))
        self.metrics.count("tgi_batch_inference_success", method="prefill")
        produced = 0
        for step in generate(prepared.prompt, prepared.parameters, self.tokenizer, prepared.max_new_tokens):
            self._take(self._step_s())
            produced += 1
            self.metrics.count("tgi_batch_inference_success", method="decode")
            yield step
        timing.inferred = timing.total_s - timing.validated
        self._count_success(produced, timing)

    def _check_memory(self, tokens: int) -> None:
        if Fault.OOM_SERVING in self.situation.faults and tokens >= _LONG_PROMPT_TOKENS:
            self.out_of_memory.set()
            raise ApiError("generation", "Request failed during generation: Server error: CUDA out of memory")

    def answer(self, inputs: str, parameters: Parameters) -> Answer:
        """The whole generation at once."""
        with self.admitted() as timing:
            prepared = self.prepare(inputs, parameters, timing, streaming=False)
            return Answer(prepared=prepared, steps=tuple(self.steps(prepared, timing)), timing=timing)

    def _count_success(self, produced: int, timing: Timing) -> None:
        self.metrics.count("tgi_request_success")
        self.metrics.observe("tgi_request_generated_tokens", produced)
        self.metrics.observe("tgi_request_duration", timing.total_s)
        self.metrics.observe("tgi_request_inference_duration", timing.inferred)
        self.metrics.observe("tgi_request_queue_duration", 0.0)
        self.metrics.observe("tgi_request_mean_time_per_token_duration", timing.inferred / max(1, produced))

    def _take(self, real_s: float) -> None:
        time.sleep(real_s / self._speed)

    def _step_s(self) -> float:
        situation = self.situation
        card = situation.host.accelerator.bandwidth_gb_s * _BANDWIDTH_SHARE
        bandwidth = 1e9 * (cpu.BANDWIDTH_GB_S if situation.host.on_cpu else card)
        return max(_LEAST_STEP_S, situation.checkpoint.stored_bytes / situation.num_shard / bandwidth)

    def _prefill_s(self, tokens: int) -> float:
        situation = self.situation
        tflops = cpu.TFLOPS if situation.host.on_cpu else situation.host.accelerator.fp16_tflops or 100.0
        per_second = tflops * 1e12 * situation.num_shard * _COMPUTE_SHARE
        return tokens * 2 * situation.checkpoint.model.parameters / per_second


def _settled(parameters: Parameters) -> Parameters:
    """With a seed where one is drawn, and the text where a JSON grammar leaves no choice."""
    seed = parameters.seed
    if parameters.samples and seed is None:
        seed = secrets.randbits(64)
    forced = parameters.forced_text
    if forced is None and parameters.grammar is not None:
        forced = _grammar_text(parameters.grammar.get("type"), parameters.grammar.get("value"))
    return replace(parameters, seed=seed if parameters.samples else None, forced_text=forced)


def _grammar_text(kind: object, value: object) -> str | None:
    if kind not in {"json", "json_object", "json_schema"}:
        return None
    if kind == "json_schema" and isinstance(value, dict):
        value = value.get("schema", value)
    try:
        return json.dumps(example(json.loads(value) if isinstance(value, str) else value))
    except ValueError as error:
        raise ApiError("validation", f"grammar is not valid: {error}") from error
