"""Web server start, warm-up, and the router's late validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.capacity import Capacity, fits
from tgi_deploy.sandbox.engine.cpu import assumed_batch_tokens
from tgi_deploy.sandbox.engine.failures import LauncherError
from tgi_deploy.sandbox.engine.host import Fault
from tgi_deploy.sandbox.engine.logs import BACKEND, CLIENT, MAIN
from tgi_deploy.sandbox.engine.refusals import warmup_refusal
from tgi_deploy.sandbox.engine.shards import stop_shards
from tgi_deploy.sandbox.engine.tracebacks import traceback

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.situation import Situation, Stage

_START_S: Final = 3.0
_PREFILL_S: Final = 18.0
_GRAPHS_S: Final = 12.0
_TOKENIZER_S: Final = 6.0
DEFAULT_GRAPHS: Final = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLimits:
    """The router's final limits, as shown by `/info`."""

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
    if situation.arguments.number("max-batch-size") == 0:
        _crash(stage, 'ArgumentValidation("`max_batch_size` must be > 0")')
    stage.log.router("Warming up model", source=BACKEND, line=125)
    stage.pace.pause(_PREFILL_S)
    refusal = warmup_refusal(situation)
    if refusal is not None:
        _fail_in_prefill(situation, stage, evidence=refusal, sentence=refusal)
    if situation.host.on_cpu:
        tokens = assumed_batch_tokens(situation, stage)
        return _settled(situation, stage, Capacity(verdict="ok", tokens=tokens, block_tokens=1))
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
    return _settled(situation, stage, capacity)


def _settled(situation: Situation, stage: Stage, capacity: Capacity) -> TokenLimits:
    limits = _limits(situation, stage, capacity)
    _announce_limits(situation, stage, limits)
    _check_router_rules(situation, stage, limits)
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
    shown = traceback("plain_early", situation.checkpoint.model_id, evidence)
    stage.log.launcher(f"Method Warmup encountered an error.\n{shown}", level="ERROR")
    stage.log.router(f"Server error: {sentence}", level="ERROR", source=CLIENT, line=45, spans=[("warmup", {})] * 2)
    inner = f'Warmup(Generation("{sentence}"))'
    _crash(stage, f"Backend({inner})" if situation.release.chunked_prefill else inner)


def _crash(stage: Stage, router_error: str) -> NoReturn:
    end_of_router(stage, f"Error: {router_error}")


def end_of_router(stage: Stage, last_words: str) -> NoReturn:
    """Print the router's last output and exit, like the launcher.

    Raises:
        LauncherError: `WebserverFailed`.
    """
    stage.log.write(last_words)
    stage.log.launcher("Webserver Crashed", level="ERROR")
    stop_shards(stage)
    raise LauncherError("WebserverFailed")


def _limits(situation: Situation, stage: Stage, capacity: Capacity) -> TokenLimits:
    total = situation.total_tokens(capacity.tokens)
    if total > capacity.tokens:
        not_enough = f"NotEnoughMemory({total})"
        _crash(stage, f"Backend({not_enough})" if situation.release.chunked_prefill else f"Warmup({not_enough})")
    limit = situation.input_tokens(total)
    return TokenLimits(max_input_tokens=limit, max_total_tokens=total, max_batch_total_tokens=capacity.tokens)


def _check_router_rules(situation: Situation, stage: Stage, limits: TokenLimits) -> None:
    limit, prefill, batch = limits.max_input_tokens, situation.prefill_tokens, limits.max_batch_total_tokens
    problem = None
    if limit >= limits.max_total_tokens:
        problem = "`max_input_tokens` must be < `max_total_tokens`"
    elif prefill < limit and not situation.chunks_prefill:
        problem = f"`max_batch_prefill_tokens` must be >= `max_input_tokens`. Given: {prefill} and {limit}"
    elif prefill > batch:
        problem = f"`max_batch_prefill_tokens` must be <= `max_batch_total_tokens`. Given: {prefill} and {batch}"
    if problem is not None:
        _crash(stage, f'ArgumentValidation("{problem}")')


def _announce_limits(situation: Situation, stage: Stage, limits: TokenLimits) -> None:
    arguments, log = situation.arguments, stage.log
    if arguments.number("max-batch-total-tokens") is not None and not situation.host.on_cpu:
        log.router(
            "`max_batch_total_tokens` is deprecated for flash models: the value of the warm-up is used",
            level="WARN", source=BACKEND,
        )  # fmt: skip
    log.router(f"Setting max batch total tokens to {limits.max_batch_total_tokens}", source=BACKEND, line=137)
    log.router("Using backend V3", source=BACKEND, line=166)
    if arguments.number("max-total-tokens") is None:
        log.router(f"Maximum input tokens defaulted to {limits.max_input_tokens}", source=MAIN, line=168)
        log.router(f"Maximum total tokens defaulted to {limits.max_total_tokens}", source=MAIN, line=168)


def start_router(situation: Situation, stage: Stage) -> None:
    """Load tokenizer and configuration; the socket is bound right after."""
    checkpoint, log = situation.checkpoint, stage.log
    if checkpoint.is_local:
        own = Path(checkpoint.model_id) / "tokenizer_config.json"
        log.router(f'Tokenizer_config None - Some("{own}")', level="WARN", line=1674)
    else:
        log.router("Using the Hugging Face API", line=219)
    stage.pace.pause(_TOKENIZER_S)
    if not checkpoint.is_local:
        revision = situation.arguments.text("revision") or checkpoint.commit
        log.router(f"Serving revision {revision} of model {checkpoint.model_id}", line=348)
    kind = checkpoint.model.model_type.replace("_", " ").title().replace(" ", "")
    log.router(f"Using config Some({kind})", line=1742)
    if checkpoint.is_local:
        log.router(f"no pipeline tag found for model {checkpoint.model_id}", level="WARN", line=1802)
