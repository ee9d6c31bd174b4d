"""Web server start, warm-up, and the router's own, late validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.capacity import Capacity, fits
from tgi_deploy.sandbox.engine.failures import LauncherError
from tgi_deploy.sandbox.engine.faults import Fault
from tgi_deploy.sandbox.engine.logs import BACKEND
from tgi_deploy.sandbox.engine.refusals import warmup_refusal

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.situation import Situation, Stage

_START_S: Final = 3.0
_PREFILL_S: Final = 18.0
_GRAPHS_S: Final = 12.0
_TOKENIZER_S: Final = 6.0
DEFAULT_GRAPHS: Final = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLimits:
    """What the router ends up with and `/info` shows."""

    max_input_tokens: int
    max_total_tokens: int
    max_batch_total_tokens: int


def warm_up(situation: Situation, stage: Stage) -> TokenLimits:
    """Prefill the largest batch, size the KV cache, then let the router check its limits.

    Raises:
        LauncherError: `WebserverFailed`.
    """
    stage.log.launcher("Starting Webserver")
    stage.pace.pause(_START_S)
    stage.log.router("Warming up model", source=BACKEND, line=125)
    stage.pace.pause(_PREFILL_S)
    refusal = warmup_refusal(situation)
    if refusal is not None:
        _fail_in_prefill(situation, stage, evidence=refusal, sentence=refusal)
    capacity = fits(situation.load, situation.release, situation.host)
    if Fault.OOM_WARMUP in situation.faults or capacity.verdict != "ok":
        sentence = (
            f"Not enough memory to handle {situation.prefill_tokens} prefill tokens. "
            "You need to decrease `--max-batch-prefill-tokens`"
        )
        _fail_in_prefill(
            situation, stage, evidence=f"torch.OutOfMemoryError: CUDA out of memory.\n{sentence}", sentence=sentence
        )
    _announce_cache(situation, stage, capacity)
    limits = _limits(situation, stage, capacity)
    _announce_limits(situation, stage, limits)
    return limits


def _announce_cache(situation: Situation, stage: Stage, capacity: Capacity) -> None:
    stage.log.launcher(f"KV-cache blocks: {capacity.blocks}, size: {capacity.block_tokens}")
    graphs = situation.arguments.values.get("cuda-graphs") or DEFAULT_GRAPHS
    rule = situation.weights.rule
    if graphs != (0,) and (rule is None or rule.cuda_graphs):
        stage.log.launcher(f"Cuda Graphs are enabled for sizes {_sizes(graphs)}")
        stage.pace.pause(_GRAPHS_S)


def _sizes(graphs: object) -> str:
    return str(sorted(graphs, reverse=True)) if isinstance(graphs, tuple) else str(graphs)


def _fail_in_prefill(situation: Situation, stage: Stage, *, evidence: str, sentence: str) -> NoReturn:
    stage.log.launcher(
        f"Method Warmup encountered an error.\nTraceback (most recent call last):\n\n{evidence}", level="ERROR"
    )
    stage.log.router(
        f"Server error: {sentence}", level="ERROR", source=("text_generation_client", "backends/client/src/lib.rs")
    )
    inner = f'Warmup(Generation("{sentence}"))'
    _crash(stage, f"Backend({inner})" if situation.release.chunked_prefill else inner)


def _crash(stage: Stage, router_error: str) -> NoReturn:
    stage.log.final(f"Error: {router_error}")
    stage.log.launcher("Webserver Crashed", level="ERROR")
    stage.log.launcher("Shutting down shards")
    raise LauncherError("WebserverFailed")


def _limits(situation: Situation, stage: Stage, capacity: Capacity) -> TokenLimits:
    total = situation.total_tokens(capacity.tokens)
    limit = situation.input_tokens(total)
    _check_router_rules(situation, stage, capacity, (limit, total))
    return TokenLimits(max_input_tokens=limit, max_total_tokens=total, max_batch_total_tokens=capacity.tokens)


def _check_router_rules(situation: Situation, stage: Stage, capacity: Capacity, limits: tuple[int, int]) -> None:
    limit, total = limits
    prefill = situation.prefill_tokens
    if total > capacity.tokens:
        sentence = f"Not enough memory to handle `max_total_tokens={total}`"
        stage.log.router(sentence, level="ERROR", source=BACKEND)
        not_enough = f"NotEnoughMemory({total})"
        _crash(stage, f"Backend({not_enough})" if situation.release.chunked_prefill else f"Warmup({not_enough})")
    problem = None
    if limit >= total:
        problem = "`max_input_tokens` must be < `max_total_tokens`"
    elif prefill < limit and not situation.chunks_prefill:
        problem = f"`max_batch_prefill_tokens` must be >= `max_input_tokens`. Given: {prefill} and {limit}"
    elif prefill > capacity.tokens:
        problem = (
            f"`max_batch_prefill_tokens` must be <= `max_batch_total_tokens`. Given: {prefill} and {capacity.tokens}"
        )
    elif situation.arguments.number("max-batch-size") == 0:
        problem = "`max_batch_size` must be > 0"
    if problem is not None:
        _crash(stage, f'ArgumentValidation("{problem}")')


def _announce_limits(situation: Situation, stage: Stage, limits: TokenLimits) -> None:
    arguments, log = situation.arguments, stage.log
    if arguments.number("max-batch-total-tokens") is not None:
        log.router(
            "`max_batch_total_tokens` is deprecated for flash models: the value of the warm-up is used",
            level="WARN", source=BACKEND,
        )  # fmt: skip
    log.router(f"Setting max batch total tokens to {limits.max_batch_total_tokens}", source=BACKEND, line=132)
    if arguments.number("max-total-tokens") is None:
        log.router(f"Maximum total tokens defaulted to {limits.max_total_tokens}", source=BACKEND)
        log.router(f"Maximum input tokens defaulted to {limits.max_input_tokens}", source=BACKEND)
    log.router("Using backend V3", source=BACKEND, line=165)


def start_router(situation: Situation, stage: Stage) -> None:
    """Tokenizer and configuration; the socket is bound right after."""
    checkpoint, log = situation.checkpoint, stage.log
    if checkpoint.is_local:
        log.router("Using the local tokenizer and configuration", line=219)
    else:
        log.router("Using the Hugging Face API", line=219)
    stage.pace.pause(_TOKENIZER_S)
    if not checkpoint.is_local:
        revision = situation.arguments.text("revision") or checkpoint.commit
        log.router(f"Serving revision {revision} of model {checkpoint.model_id}", line=348)
    kind = checkpoint.model.model_type.replace("_", " ").title().replace(" ", "")
    log.router(f"Using config Some({kind})", line=391)
