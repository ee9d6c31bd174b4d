"""The load phase: one process per rank, waiting lines, and failures of a rank before it is ready."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.capacity import fits
from tgi_deploy.sandbox.engine.cpu import warn_of_attention
from tgi_deploy.sandbox.engine.failures import LauncherError
from tgi_deploy.sandbox.engine.host import Fault
from tgi_deploy.sandbox.engine.refusals import load_refusal
from tgi_deploy.sandbox.engine.tracebacks import Kind, traceback

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.situation import Situation, Stage

SPAN: Final = "shard-manager"
_IMPORTS_S: Final = 15.0
_ATTENTION_S: Final = 4.0
_BYTES_PER_S: Final = 700_000_000
_WAITING_S: Final = 10.0
_STOP_S: Final = 2.0
# The engine's timeout for an operation between its shards.
_WATCHDOG_S: Final = 120.0
_HANGS: Final = (
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=120000) ran for 120001 milliseconds before timing out."
)
_NO_SHARED_MEMORY: Final = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled system error "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
    "Last error:\n"
    "Error while creating shared memory segment /dev/shm/nccl-Jq3yTk (size 9637888), error: "
    "No space left on device (28)"
)


def load_shards(situation: Situation, stage: Stage) -> None:
    """Start every rank and wait until all are ready.

    Raises:
        LauncherError: `ShardCannotStart`.
    """
    for rank in _ranks(situation):
        stage.log.launcher("Starting shard", span=SPAN, rank=rank)
        stage.ranks.append(rank)
    stage.pace.pause(_ATTENTION_S)
    if situation.release.default_attention:
        stage.log.launcher(f"Using prefix caching = {situation.attention != 'paged'}")
    stage.log.launcher(f"Using Attention = {situation.attention}")
    warn_of_attention(situation, stage)
    refusal = load_refusal(situation)
    if refusal is not None:
        _wait(situation, stage, _IMPORTS_S - _ATTENTION_S)
        _die(situation, stage, refusal)
    if situation.num_shard > 1:
        _meet(situation, stage)
    if Fault.HANG_SHARD in situation.faults:
        _wait(situation, stage, float("inf"))
    seconds = _IMPORTS_S + situation.checkpoint.stored_bytes / _BYTES_PER_S
    _wait(situation, stage, seconds - _ATTENTION_S)
    if Fault.OOM_LOAD in situation.faults or _verdict(situation) == "oom-load":
        _die_of_memory(situation, stage)
    _announce(situation, stage, seconds)


def _meet(situation: Situation, stage: Stage) -> None:
    """Run the shards' first collective operation; a single shard has none."""
    if Fault.SHM_TOO_SMALL in situation.faults:
        _wait(situation, stage, _IMPORTS_S)
        _die(situation, stage, _NO_SHARED_MEMORY)
    if Fault.NCCL_HANG in situation.faults:
        _wait(situation, stage, _WATCHDOG_S)
        _die(situation, stage, _HANGS)


def _ranks(situation: Situation) -> range:
    return range(situation.num_shard)


def _verdict(situation: Situation) -> str:
    return "ok" if situation.host.on_cpu else fits(situation.load, situation.release, situation.host).verdict


def _wait(situation: Situation, stage: Stage, real_s: float) -> None:
    while real_s > _WAITING_S:
        stage.pace.pause(_WAITING_S)
        real_s -= _WAITING_S
        for rank in _ranks(situation):
            stage.log.launcher("Waiting for shard to be ready...", span=SPAN, rank=rank)
    stage.pace.pause(real_s)


def _announce(situation: Situation, stage: Stage, seconds: float) -> None:
    log, socket = stage.log, situation.arguments.text("shard-uds-path")
    if situation.release.chunked_prefill:
        log.launcher(f"Using prefill chunking = {situation.chunks_prefill}")
    for rank in _ranks(situation):
        log.launcher(f"Server started at unix://{socket}-{rank}")
    for rank in _ranks(situation):
        log.launcher(f"Shard ready in {seconds + rank / 10:.9f}s", span=SPAN, rank=rank)


def _die_of_memory(situation: Situation, stage: Stage) -> NoReturn:
    gib = situation.host.memory_bytes / 1024**3
    evidence = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 214.00 MiB. "
        f"GPU 0 has a total capacity of {gib:.2f} GiB of which 86.12 MiB is free."
    )
    _die(situation, stage, evidence)


def _die(situation: Situation, stage: Stage, reason: str) -> NoReturn:
    """Fail on all ranks: report the first, then the others as they are shut down."""
    # With more shards than GPUs, the highest rank finds no device.
    lacking = situation.num_shard > situation.host.gpus and not situation.host.on_cpu
    first, *others = reversed(_ranks(situation)) if situation.host.on_cpu or lacking else _ranks(situation)
    how = "early" if reason == load_refusal(situation) != situation.checkpoint.broken else "loading"
    model = situation.checkpoint.model_id
    for _ in _ranks(situation):
        plain = traceback("plain_early" if how == "early" else "plain_loading", model, reason)
        stage.log.launcher(f"Error when initializing model\n{plain}", level="ERROR")
    boxed: Kind = "boxed_early" if how == "early" else "boxed_loading"
    left = traceback(boxed, model, reason, on_cpu=situation.host.on_cpu)
    _report(stage, left, first)
    stage.log.launcher(f"Shard {first} failed to start", level="ERROR")
    stage.log.launcher("Shutting down shards")
    for rank in others:
        _report(stage, left, rank)
    raise LauncherError("ShardCannotStart")


def _report(stage: Stage, left: str, rank: int) -> None:
    stage.log.launcher(f"Shard complete standard error output:\n\n{left}", level="ERROR", span=SPAN, rank=rank)


def stop_shards(stage: Stage) -> None:
    """Stop every started shard, with the duration measured on TGI 3.3.7."""
    stage.log.launcher("Shutting down shards")
    for words in ("Terminating shard", "Waiting for shard to gracefully shutdown"):
        for rank in stage.ranks:
            stage.log.launcher(words, span=SPAN, rank=rank)
    if stage.ranks:
        time.sleep(_STOP_S / stage.pace.speed)
    for rank in stage.ranks:
        stage.log.launcher("shard terminated", span=SPAN, rank=rank)
