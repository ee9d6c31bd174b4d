"""The phases of a start, each with its log lines and ways to fail: checks, download, shards, warm-up, router.

The CPU's were recorded from 3.3.7 on a machine without a GPU on 2026-11-22: tests/cases/diagnosis/real-cpu-start.
"""

from __future__ import annotations

import ipaddress
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.flags import DEVICE_VARIABLES, given_up, resolve_shards, validate, validate_adapters
from tgi_deploy.sandbox.engine.logs import BACKEND, CLIENT, GPU, MAIN, reason, traceback
from tgi_deploy.sandbox.engine.memory import capacity, load_refusal, warmup_refusal
from tgi_deploy.sandbox.engine.situation import Fault, TokenLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.logs import Kind
    from tgi_deploy.sandbox.engine.situation import Checkpoint, Host, Situation

_GRAPHS: Final = (1, 2, 4, 8, 16, 32)
_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN")


def start(situation: Situation) -> None:
    """Run every phase before the socket. Raises ExitError if one fails, or on a stop signal."""
    arguments, log = situation.arguments, situation.log
    log.launcher(arguments.debug())
    try:  # Docker sets HOSTNAME, the variable of `--hostname`, to the container's name
        ipaddress.ip_address(arguments.get("hostname", "0.0.0.0"))  # noqa: S104 -- the launcher's default
    except ValueError:
        log.router("Invalid hostname, defaulting to 0.0.0.0", level="WARN")
    situation.pace.pause(1.0)
    if situation.release.default_attention:
        _choose_kernels(situation)
    if arguments.get("sharded") and arguments.get("num-shard") is None:
        log.launcher(f"Parsing num_shard from {'/'.join(DEVICE_VARIABLES)}")
    devices = devices_found(situation.environ, situation.host, situation.release)
    situation.num_shard = resolve_shards(arguments, devices)
    if situation.num_shard > 1:
        log.launcher(f"Sharding model on {situation.num_shard} processes")
    if arguments.get("max-batch-prefill-tokens") is None:
        log.launcher(f"Default `max_batch_prefill_tokens` to {situation.prefill_tokens}")
    if arguments.get("cuda-graphs") is None:
        log.launcher(f"Using default cuda graphs {list(_GRAPHS)}")
    validate(arguments)
    _download(situation)
    validate_adapters(arguments)
    _load_shards(situation)
    _warm_up(situation)
    _start_router(situation)


def devices_found(environ: Mapping[str, str], host: Host, release: TgiRelease) -> int | None:
    """Return how many devices the environment names, None if it names none (`launcher/src/main.rs`, TGI PR 3346)."""
    for variable in DEVICE_VARIABLES:
        named = environ.get(variable)
        if variable == "NVIDIA_VISIBLE_DEVICES" and named in {"all", "void"}:
            return host.gpus if release.counts_all_devices else 1
        if named is not None:
            return len(named.split(","))
    return None


def _choose_kernels(situation: Situation) -> None:
    """Choose them like the launcher, before the number of shards is known."""
    log, paged = situation.log, situation.attention == "paged"
    if situation.host.on_cpu:
        problem = f"Cannot determine GPU compute capability: {reason('no_driver')}"
        log.launcher(problem, level="WARN", target=GPU)
    if paged and "ATTENTION" not in situation.environ:
        why = "head dim is not supported by flashinfer"
        log.launcher(f"Forcing attention to 'paged' because {why}, also disabling prefix caching")
    log.launcher(f"Using attention {situation.attention} - Prefix caching {'0' if paged else 'true'}")


_DOWNLOAD: Final = "download"
_BYTES_PER_S: Final = 400_000_000


def _download(situation: Situation) -> None:
    """Query the hub, and download the weights or find those of an earlier run. Raises ExitError `DownloadError`."""
    checkpoint, log, data = situation.checkpoint, situation.log, situation.host.data
    log.launcher(f"Starting check and download process for {checkpoint.model_id}", span=_DOWNLOAD)
    situation.pace.pause(8.0)
    _check_access(situation)
    inside = Path(cache_folder(checkpoint, situation.environ))
    marker = data / inside.relative_to("/data") / ".complete" if data and inside.is_relative_to("/data") else None
    if checkpoint.is_local or (marker is not None and marker.exists()):
        log.launcher("Files are already present on the host. Skipping download.")
    else:
        _fetch(situation, inside)
        if marker is not None:
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    log.launcher(f"Successfully downloaded weights for {checkpoint.model_id}", span=_DOWNLOAD)


def _check_access(situation: Situation) -> None:
    checkpoint, faults = situation.checkpoint, situation.faults
    token = any(situation.environ.get(name) for name in _TOKENS)
    if checkpoint.is_local:
        if not any(any(Path(checkpoint.model_id).glob(f"*.{kind}")) for kind in ("safetensors", "bin", "pt")):
            _fail_download(situation, "", kind="no_weights")
        return
    if not checkpoint.exists:
        _fail_download(situation, "bad_name" if checkpoint.model_id.startswith("/") else "no_repository")
    if Fault.NETWORK in faults:
        for _ in range(5):
            situation.log.launcher("Retrying in 5 seconds", level="WARN", span=_DOWNLOAD)
            situation.pace.pause(5.0)
        _fail_download(situation, "network")
    if Fault.GATED in faults or (checkpoint.model.gated and not token):
        _fail_download(situation, "gated_with_token" if token else "gated_without_token")


def _fail_download(situation: Situation, why: str, kind: Kind = "download") -> NoReturn:
    model = situation.checkpoint.model_id
    evidence = traceback(kind, model, reason(why, model=model) if why else "")
    situation.log.launcher(f"Download encountered an error: \n{evidence}", level="ERROR", span=_DOWNLOAD)
    raise given_up("DownloadError")


def cache_folder(checkpoint: Checkpoint, environ: Mapping[str, str]) -> str:
    """Return the path inside the container. `HF_HOME` adds a level that `HUGGINGFACE_HUB_CACHE` does not."""
    own = environ.get("HUGGINGFACE_HUB_CACHE") or environ.get("HF_HUB_CACHE")
    root = environ.get("HF_HOME", "/data") + "/hub" if own is None else own
    return f"{root}/models--{checkpoint.model_id.replace('/', '--')}/snapshots/{checkpoint.commit}"


def _fetch(situation: Situation, folder: Path) -> None:
    files, log = situation.checkpoint.files(), situation.log
    slow = 40 if Fault.SLOW_DOWNLOAD in situation.faults else 1
    each_s = situation.checkpoint.stored_bytes * slow / len(files) / _BYTES_PER_S
    for done, name in enumerate(files, start=1):
        log.launcher(f"Download file: {name}")
        situation.pace.pause(each_s)
        if Fault.DISK_FULL in situation.faults and done > len(files) // 2:
            _fail_download(situation, "disk_full")
        took, left = (timedelta(seconds=int(each_s * count)) for count in (1, len(files) - done))
        log.launcher(f"Downloaded {folder}/{name} in {took}.")
        log.launcher(f"Download: [{done}/{len(files)}] -- ETA: {left}")


_SHARDS: Final = "shard-manager"
_IMPORTS_S: Final = 15.0
_ATTENTION_S: Final = 4.0
_LOADED_BYTES_PER_S: Final = 700_000_000
_WAITING_S: Final = 10.0
_STOP_S: Final = 2.0
# The engine's timeout for an operation between its shards.
_WATCHDOG_S: Final = 120.0
_UNSUPPORTED: Final = "System cpu doesn't support flash/paged attention"
_NOT_ON_CPU: Final = {
    "Flash Attention enabled models": _UNSUPPORTED,
    "Mamba": "No module named 'mamba_ssm'",
    "Flash Transformers Backend": _UNSUPPORTED,
}


def _load_shards(situation: Situation) -> None:
    """Start every rank and wait until all are ready. Raises ExitError `ShardCannotStart`."""
    log, faults, host, checkpoint = situation.log, situation.faults, situation.host, situation.checkpoint
    situation.ranks.extend(range(situation.num_shard))
    _each(situation, "Starting shard")
    situation.pace.pause(_ATTENTION_S)
    _announce_kernels(situation)
    refusal = load_refusal(situation)
    if refusal is not None:
        _wait(situation, _IMPORTS_S - _ATTENTION_S)
        _die(situation, refusal, early=refusal != checkpoint.broken)
    if situation.num_shard > 1:  # the first operation between shards
        for fault, after_s in ((Fault.SHM_TOO_SMALL, _IMPORTS_S), (Fault.NCCL_HANG, _WATCHDOG_S)):
            if fault in faults:
                _wait(situation, after_s)
                _die(situation, reason(fault.replace("-", "_")))
    seconds = _IMPORTS_S + checkpoint.stored_bytes / _LOADED_BYTES_PER_S
    _wait(situation, float("inf") if Fault.HANG_SHARD in faults else seconds - _ATTENTION_S)
    if Fault.OOM_LOAD in faults or (not host.on_cpu and capacity(situation).verdict == "oom-load"):
        _die(situation, reason("out_of_memory_loading", gib=f"{host.memory_bytes / 1024**3:.2f}"))
    if situation.release.chunked_prefill:
        log.launcher(f"Using prefill chunking = {situation.chunks_prefill}")
    for rank in situation.ranks:
        log.launcher(f"Server started at unix://{situation.arguments.get('shard-uds-path')}-{rank}")
    for rank in situation.ranks:
        log.launcher(f"Shard ready in {seconds + rank / 10:.9f}s", span=_SHARDS, rank=rank)


def _announce_kernels(situation: Situation) -> None:
    """Log what the shards import."""
    log = situation.log
    if situation.release.default_attention:
        log.launcher(f"Using prefix caching = {situation.attention != 'paged'}")
    log.launcher(f"Using Attention = {situation.attention}")
    for what, why in _NOT_ON_CPU.items() if situation.host.on_cpu else ():
        log.launcher(f"Could not import {what}: {why}", level="WARN")


def _each(situation: Situation, message: str) -> None:
    """Log for every started rank."""
    for rank in situation.ranks:
        situation.log.launcher(message, span=_SHARDS, rank=rank)


def _wait(situation: Situation, real_s: float) -> None:
    while real_s > _WAITING_S:
        situation.pace.pause(_WAITING_S)
        real_s -= _WAITING_S
        _each(situation, "Waiting for shard to be ready...")
    situation.pace.pause(real_s)


def _die(situation: Situation, why: str, *, early: bool = False) -> NoReturn:
    """Fail on all ranks: report the first, then the others as they are shut down."""
    log, on_cpu, model = situation.log, situation.host.on_cpu, situation.checkpoint.model_id
    # With more shards than GPUs, the highest rank finds no device.
    last_fails = on_cpu or situation.num_shard > situation.host.gpus
    first, *others = reversed(situation.ranks) if last_fails else situation.ranks
    plain = traceback("plain_early" if early else "plain_loading", model, why)
    for _ in situation.ranks:
        log.launcher(f"Error when initializing model\n{plain}", level="ERROR")
    boxed = traceback("boxed_early" if early else "boxed_loading", model, why, on_cpu=on_cpu)
    report_output(situation, boxed, first)
    log.launcher(f"Shard {first} failed to start", level="ERROR")
    log.launcher("Shutting down shards")
    for rank in others:
        report_output(situation, boxed, rank)
    raise given_up("ShardCannotStart")


def report_output(situation: Situation, left: str, rank: int) -> None:
    message = f"Shard complete standard error output:\n\n{left}"
    situation.log.launcher(message, level="ERROR", span=_SHARDS, rank=rank)


def stop_shards(situation: Situation) -> None:
    """Stop every started shard, with the duration measured on TGI 3.3.7."""
    situation.log.launcher("Shutting down shards")
    _each(situation, "Terminating shard")
    _each(situation, "Waiting for shard to gracefully shutdown")
    if situation.ranks:
        time.sleep(_STOP_S / situation.pace.speed)
    _each(situation, "shard terminated")


_CPU_BATCH_TOKENS: Final = 16_000


def _warm_up(situation: Situation) -> None:
    """Prefill the largest batch, size the KV cache, then let the router check its limits. Raises ExitError."""
    situation.log.launcher("Starting Webserver")
    situation.pace.pause(3.0)
    if situation.arguments.get("max-batch-size") == 0:
        _refuse(situation, "`max_batch_size` must be > 0")
    situation.log.router("Warming up model", source=BACKEND, line=125)
    situation.pace.pause(18.0)
    refusal = warmup_refusal(situation)
    if refusal is not None:
        _fail_in_prefill(situation, refusal)
    tokens = _assumed_tokens(situation) if situation.host.on_cpu else _measured_tokens(situation)
    total = situation.total_tokens(tokens)
    if total > tokens:
        outer = "Backend" if situation.release.chunked_prefill else "Warmup"
        end_of_router(situation, f"Error: {outer}(NotEnoughMemory({total}))")
    situation.limits = TokenLimits(
        max_input_tokens=situation.input_tokens(total), max_total_tokens=total, max_batch_total_tokens=tokens
    )
    _announce_limits(situation)
    _check_router_rules(situation)


def _assumed_tokens(situation: Situation) -> int:
    """Return the flag's value or a default, as nothing is measured on a CPU (router, backends/v3/src/lib.rs)."""
    message = "Model does not support automatic max batch total tokens"
    situation.log.router(message, level="WARN", source=BACKEND, line=79)
    default = max(_CPU_BATCH_TOKENS, situation.total_tokens(0), situation.prefill_tokens)
    return int(situation.arguments.get("max-batch-total-tokens", default))


def _measured_tokens(situation: Situation) -> int:
    cache, log = capacity(situation), situation.log
    if Fault.OOM_WARMUP in situation.faults or cache.verdict != "ok":
        sentence = reason("prefill_too_large", tokens=situation.prefill_tokens)
        _fail_in_prefill(situation, sentence, before="torch.OutOfMemoryError: CUDA out of memory.\n")
    log.launcher(f"KV-cache blocks: {cache.tokens // cache.block_tokens}, size: {cache.block_tokens}")
    graphs, rule = situation.arguments.get("cuda-graphs", _GRAPHS), situation.weights.rule
    if graphs != (0,) and (rule is None or rule.cuda_graphs):
        log.launcher(f"Cuda Graphs are enabled for sizes {sorted(graphs, reverse=True)}")
        situation.pace.pause(12.0)
    return cache.tokens


def _fail_in_prefill(situation: Situation, sentence: str, before: str = "") -> NoReturn:
    shown = traceback("plain_early", situation.checkpoint.model_id, before + sentence)
    log = situation.log
    log.launcher(f"Method Warmup encountered an error.\n{shown}", level="ERROR")
    log.router(f"Server error: {sentence}", level="ERROR", source=CLIENT, line=45, spans=[("warmup", {})] * 2)
    inner = f'Warmup(Generation("{sentence}"))'
    end_of_router(situation, f"Error: {f'Backend({inner})' if situation.release.chunked_prefill else inner}")


def _refuse(situation: Situation, problem: str) -> NoReturn:
    end_of_router(situation, f'Error: ArgumentValidation("{problem}")')


def end_of_router(situation: Situation, last_words: str) -> NoReturn:
    """Print the router's last output and exit, like the launcher. Raises ExitError `WebserverFailed`."""
    situation.log.write(last_words)
    situation.log.launcher("Webserver Crashed", level="ERROR")
    stop_shards(situation)
    raise given_up("WebserverFailed")


def _check_router_rules(situation: Situation) -> None:
    limits, prefill = situation.limits, situation.prefill_tokens
    limit, batch = limits.max_input_tokens, limits.max_batch_total_tokens
    if limit >= limits.max_total_tokens:
        _refuse(situation, "`max_input_tokens` must be < `max_total_tokens`")
    if prefill < limit and not situation.chunks_prefill:
        _refuse(situation, f"`max_batch_prefill_tokens` must be >= `max_input_tokens`. Given: {prefill} and {limit}")
    if prefill > batch:
        rule = "`max_batch_prefill_tokens` must be <= `max_batch_total_tokens`"
        _refuse(situation, f"{rule}. Given: {prefill} and {batch}")


def _announce_limits(situation: Situation) -> None:
    arguments, limits, log = situation.arguments, situation.limits, situation.log
    if arguments.get("max-batch-total-tokens") is not None and not situation.host.on_cpu:
        message = "`max_batch_total_tokens` is deprecated for flash models: the value of the warm-up is used"
        log.router(message, level="WARN", source=BACKEND)
    log.router(f"Setting max batch total tokens to {limits.max_batch_total_tokens}", source=BACKEND, line=137)
    log.router("Using backend V3", source=BACKEND, line=166)
    if arguments.get("max-total-tokens") is None:
        log.router(f"Maximum input tokens defaulted to {limits.max_input_tokens}", source=MAIN, line=168)
        log.router(f"Maximum total tokens defaulted to {limits.max_total_tokens}", source=MAIN, line=168)


def _start_router(situation: Situation) -> None:
    """Load tokenizer and configuration; the socket is bound right after."""
    checkpoint, log = situation.checkpoint, situation.log
    model, local = checkpoint.model_id, checkpoint.is_local
    if local:
        log.router(f'Tokenizer_config None - Some("{Path(model)}/tokenizer_config.json")', level="WARN", line=1674)
    else:
        log.router("Using the Hugging Face API", line=219)
    situation.pace.pause(6.0)
    if not local:
        revision = situation.arguments.get("revision", checkpoint.commit)
        log.router(f"Serving revision {revision} of model {model}", line=348)
    log.router(
        f"Using config Some({checkpoint.model.model_type.replace('_', ' ').title().replace(' ', '')})", line=1742
    )
    if local:
        log.router(f"no pipeline tag found for model {model}", level="WARN", line=1802)
