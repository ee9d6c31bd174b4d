"""One container's life: each phase of the start with its log lines and ways to fail, then serving, until an exit code.

The phases and log lines on a CPU were recorded from 3.3.7 on a machine without a GPU on 2026-11-22, see
tests/cases/diagnosis/real-cpu-start.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine import flags
from tgi_deploy.sandbox.engine.inference import Inference
from tgi_deploy.sandbox.engine.logs import BACKEND, CLIENT, GPU, MAIN, Kind, Log, reason, traceback
from tgi_deploy.sandbox.engine.memory import capacity, load_error, loaded_weights, warmup_error
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.situation import (
    Checkpoint,
    Container,
    Fault,
    Host,
    Situation,
    TokenLimits,
    find_checkpoint,
)
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.engines.tgi.release import TgiRelease

# A flag that no release has: one letter is missing from one that all have.
_MISSPELLED: Final = ("--max-batch-prefill-token", "4096")
_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN")
_DOWNLOADED_BYTES_PER_S: Final = 400_000_000
_LOADED_BYTES_PER_S: Final = 700_000_000
_IMPORTS_S: Final = 15.0
_ATTENTION_S: Final = 4.0
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
_GRAPHS: Final = (1, 2, 4, 8, 16, 32)
_CPU_BATCH_TOKENS: Final = 16_000
# Real time: how long a launcher takes to notice that a shard has exited.
_NOTICED_S: Final = 0.1
_POLL_S: Final = 0.05
_NOTE: Final = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"


def image_environment(release: TgiRelease) -> dict[str, str]:
    """Return the image's variables and those that `--gpus` adds."""
    return {"PORT": "80", "NVIDIA_VISIBLE_DEVICES": "all", **release.cache_env}


def devices_found(environ: Mapping[str, str], host: Host, release: TgiRelease) -> int | None:
    """Return how many devices the environment names, None if it names none (`launcher/src/main.rs`, TGI PR 3346)."""
    for variable in flags.DEVICE_VARIABLES:
        named = environ.get(variable)
        if variable == "NVIDIA_VISIBLE_DEVICES" and named in {"all", "void"}:
            return host.gpus if release.counts_all_devices else 1
        if named is not None:
            return len(named.split(","))
    return None


def cache_folder(checkpoint: Checkpoint, environ: Mapping[str, str]) -> str:
    """Return the path inside the container. `HF_HOME` adds a level that `HUGGINGFACE_HUB_CACHE` does not."""
    own = environ.get("HUGGINGFACE_HUB_CACHE") or environ.get("HF_HUB_CACHE")
    root = environ.get("HF_HOME", "/data") + "/hub" if own is None else own
    return f"{root}/models--{checkpoint.model_id.replace('/', '--')}/snapshots/{checkpoint.commit}"


def run(container: Container, argv: Sequence[str]) -> int:
    """Return the launcher's exit code: 0 after a requested stop, 1 for an error, 2 for a bad command line."""
    launcher = None
    try:
        launcher = Launcher(prepare(container, (*argv, *(_MISSPELLED if Fault.BAD_FLAG in container.faults else ()))))
        launcher.start()
        launcher.serve()
    except flags.ExitError as end:
        if end.code or launcher is None:  # the output of `--help`, which exits with 0, is not an error
            (container.err if end.code else container.out).write(f"{end}\n")
        else:
            launcher.stop_shards()
        return end.code


def prepare(container: Container, argv: Sequence[str]) -> Situation:
    """Parse the launcher's arguments, and find the model. Raises ExitError."""
    arguments, release = flags.parse(container.release.flags, argv, container.environ), container.release
    colored = not container.environ.get("NO_COLOR")
    log = Log(out=container.out, json_output=arguments.get("json-output"), launcher_color=colored)
    # The router's check is inverted: setting the variable turns colors off.
    log.router_color = colored and container.environ.get("LOG_COLORIZE") != "1"
    checkpoint = find_checkpoint(container.models, release, arguments.get("model-id", ""))
    return Situation(
        **as_dict(container), arguments=arguments, checkpoint=checkpoint, log=log,
        model_class=release.model_class(checkpoint.model.model_type),
        weights=loaded_weights(checkpoint.weights, arguments.get("quantize"), release),
    )  # fmt: skip


class Launcher:
    """The launcher with its shards and its router. Methods raise ExitError when it exits."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.log = situation.log
        self.pause = situation.pace.pause
        self.given = situation.arguments.get
        self.model = situation.checkpoint.model_id
        self.ranks: list[int] = []

    def start(self) -> None:
        """Run every phase before the socket is bound."""
        situation, log, arguments = self.situation, self.log.launcher, self.situation.arguments
        log(arguments.debug())
        try:  # Docker sets HOSTNAME, the variable of `--hostname`, to the container's name
            ipaddress.ip_address(self.given("hostname", "0.0.0.0"))  # noqa: S104 -- the launcher's default
        except ValueError:
            self.log.router("Invalid hostname, defaulting to 0.0.0.0", level="WARN")
        self.pause(1.0)
        if situation.release.default_attention:
            self._choose_kernels()
        if self.given("sharded") and self.given("num-shard") is None:
            log(f"Parsing num_shard from {'/'.join(flags.DEVICE_VARIABLES)}")
        devices = devices_found(situation.environ, situation.host, situation.release)
        situation.num_shard = flags.resolve_shards(arguments, devices)
        if situation.num_shard > 1:
            log(f"Sharding model on {situation.num_shard} processes")
        if self.given("max-batch-prefill-tokens") is None:
            log(f"Default `max_batch_prefill_tokens` to {situation.prefill_tokens}")
        if self.given("cuda-graphs") is None:
            log(f"Using default cuda graphs {list(_GRAPHS)}")
        flags.validate(arguments)
        self._download()
        flags.validate_adapters(arguments)
        self._load_shards()
        self._warm_up()
        self._start_router()

    def _choose_kernels(self) -> None:
        """Choose the attention kernels, before the number of shards is known."""
        attention, paged = self.situation.attention, self.situation.attention == "paged"
        if self.situation.host.on_cpu:
            problem = f"Cannot determine GPU compute capability: {reason('no_driver')}"
            self.log.launcher(problem, level="WARN", target=GPU)
        if paged and "ATTENTION" not in self.situation.environ:
            why = "head dim is not supported by flashinfer"
            self.log.launcher(f"Forcing attention to 'paged' because {why}, also disabling prefix caching")
        self.log.launcher(f"Using attention {attention} - Prefix caching {'0' if paged else 'true'}")

    def _download(self) -> None:
        """Query the hub, and download the weights or find those of an earlier run."""
        checkpoint, data = self.situation.checkpoint, self.situation.host.data
        self.log.launcher(f"Starting check and download process for {self.model}", span="download")
        self.pause(8.0)
        self._check_access()
        inside = Path(cache_folder(checkpoint, self.situation.environ))
        marker = data / inside.relative_to("/data") / ".complete" if data and inside.is_relative_to("/data") else None
        if checkpoint.is_local or (marker is not None and marker.exists()):
            self.log.launcher("Files are already present on the host. Skipping download.")
        else:
            self._fetch(inside)
            if marker is not None:
                marker.parent.mkdir(parents=True, exist_ok=True)
                marker.touch()
        self.log.launcher(f"Successfully downloaded weights for {self.model}", span="download")

    def _check_access(self) -> None:
        checkpoint, faults = self.situation.checkpoint, self.situation.faults
        token = any(self.situation.environ.get(name) for name in _TOKENS)
        if checkpoint.is_local:
            if not any(any(Path(self.model).glob(f"*.{kind}")) for kind in ("safetensors", "bin", "pt")):
                self._fail_download("", kind="no_weights")
            return
        if not checkpoint.exists:
            self._fail_download("bad_name" if self.model.startswith("/") else "no_repository")
        if Fault.NETWORK in faults:
            for _ in range(5):
                self.log.launcher("Retrying in 5 seconds", level="WARN", span="download")
                self.pause(5.0)
            self._fail_download("network")
        if Fault.GATED in faults or (checkpoint.model.gated and not token):
            self._fail_download("gated_with_token" if token else "gated_without_token")

    def _fail_download(self, why: str, kind: Kind = "download") -> NoReturn:
        evidence = traceback(kind, self.model, reason(why, model=self.model) if why else "")
        self.log.launcher(f"Download encountered an error: \n{evidence}", level="ERROR", span="download")
        raise flags.launcher_error("DownloadError")

    def _fetch(self, folder: Path) -> None:
        files, faults = self.situation.checkpoint.files(), self.situation.faults
        slow = 40 if Fault.SLOW_DOWNLOAD in faults else 1
        each_s = self.situation.checkpoint.stored_bytes * slow / len(files) / _DOWNLOADED_BYTES_PER_S
        for done, name in enumerate(files, start=1):
            self.log.launcher(f"Download file: {name}")
            self.pause(each_s)
            if Fault.DISK_FULL in faults and done > len(files) // 2:
                self._fail_download("disk_full")
            took, left = (timedelta(seconds=int(each_s * count)) for count in (1, len(files) - done))
            self.log.launcher(f"Downloaded {folder}/{name} in {took}.")
            self.log.launcher(f"Download: [{done}/{len(files)}] -- ETA: {left}")

    def _load_shards(self) -> None:
        """Start every rank and wait until all are ready."""
        situation, host, checkpoint = self.situation, self.situation.host, self.situation.checkpoint
        self.ranks.extend(range(situation.num_shard))
        self._log_ranks("Starting shard")
        self.pause(_ATTENTION_S)
        self._announce_kernels()
        problem = load_error(situation)
        if problem is not None:
            self._wait(_IMPORTS_S - _ATTENTION_S)
            self._die(problem, early=problem != checkpoint.broken)
        if situation.num_shard > 1:  # the first operation between shards
            for fault, after_s in ((Fault.SHM_TOO_SMALL, _IMPORTS_S), (Fault.NCCL_HANG, _WATCHDOG_S)):
                if fault in situation.faults:
                    self._wait(after_s)
                    self._die(reason(fault.replace("-", "_")))
        seconds = _IMPORTS_S + checkpoint.stored_bytes / _LOADED_BYTES_PER_S
        self._wait(float("inf") if Fault.HANG_SHARD in situation.faults else seconds - _ATTENTION_S)
        if Fault.OOM_LOAD in situation.faults or (not host.on_cpu and capacity(situation).verdict == "oom-load"):
            self._die(reason("out_of_memory_loading", gib=f"{host.memory_bytes / 1024**3:.2f}"))
        if situation.release.chunked_prefill:
            self.log.launcher(f"Using prefill chunking = {situation.chunks_prefill}")
        for rank in self.ranks:
            self.log.launcher(f"Server started at unix://{self.given('shard-uds-path')}-{rank}")
        for rank in self.ranks:
            self.log.launcher(f"Shard ready in {seconds + rank / 10:.9f}s", span="shard-manager", rank=rank)

    def _announce_kernels(self) -> None:
        if self.situation.release.default_attention:
            self.log.launcher(f"Using prefix caching = {self.situation.attention != 'paged'}")
        self.log.launcher(f"Using Attention = {self.situation.attention}")
        for what, why in _NOT_ON_CPU.items() if self.situation.host.on_cpu else ():
            self.log.launcher(f"Could not import {what}: {why}", level="WARN")

    def _log_ranks(self, message: str) -> None:
        for rank in self.ranks:
            self.log.launcher(message, span="shard-manager", rank=rank)

    def _wait(self, real_s: float) -> None:
        while real_s > _WAITING_S:
            self.pause(_WAITING_S)
            real_s -= _WAITING_S
            self._log_ranks("Waiting for shard to be ready...")
        self.pause(real_s)

    def _die(self, why: str, *, early: bool = False) -> NoReturn:
        """Fail on all ranks: report the first, then the others as they are shut down."""
        host = self.situation.host
        # With more shards than GPUs, the highest rank finds no device.
        last_fails = host.on_cpu or self.situation.num_shard > host.gpus
        first, *others = reversed(self.ranks) if last_fails else self.ranks
        plain = traceback("plain_early" if early else "plain_loading", self.model, why)
        for _ in self.ranks:
            self.log.launcher(f"Error when initializing model\n{plain}", level="ERROR")
        boxed: Kind = "boxed_early" if early else "boxed_loading"
        self._report_output(boxed, why, first)
        self.log.launcher(f"Shard {first} failed to start", level="ERROR")
        self.log.launcher("Shutting down shards")
        for rank in others:
            self._report_output(boxed, why, rank)
        raise flags.launcher_error("ShardCannotStart")

    def _report_output(self, kind: Kind, why: str, rank: int) -> None:
        left = traceback(kind, self.model, why, on_cpu=self.situation.host.on_cpu)
        message = f"Shard complete standard error output:\n\n{left}"
        self.log.launcher(message, level="ERROR", span="shard-manager", rank=rank)

    def stop_shards(self) -> None:
        """Stop every started shard, with the duration measured on TGI 3.3.7."""
        self.log.launcher("Shutting down shards")
        self._log_ranks("Terminating shard")
        self._log_ranks("Waiting for shard to gracefully shutdown")
        if self.ranks:
            time.sleep(_STOP_S / self.situation.pace.speed)
        self._log_ranks("shard terminated")

    def _warm_up(self) -> None:
        """Prefill the largest batch, size the KV cache, then let the router check its limits."""
        situation = self.situation
        self.log.launcher("Starting Webserver")
        self.pause(3.0)
        if self.given("max-batch-size") == 0:
            self._refuse("`max_batch_size` must be > 0")
        self.log.router("Warming up model", source=BACKEND, line=125)
        self.pause(18.0)
        problem = warmup_error(situation)
        if problem is not None:
            self._fail_in_prefill(problem)
        tokens = self._assumed_tokens() if situation.host.on_cpu else self._measured_tokens()
        total = situation.total_tokens(tokens)
        if total > tokens:
            outer = "Backend" if situation.release.chunked_prefill else "Warmup"
            self._end_router(f"Error: {outer}(NotEnoughMemory({total}))")
        limit, prefill = situation.input_tokens(total), situation.prefill_tokens
        situation.limits = TokenLimits(max_input_tokens=limit, max_total_tokens=total, max_batch_total_tokens=tokens)
        if self.given("max-batch-total-tokens") is not None and not situation.host.on_cpu:
            message = "`max_batch_total_tokens` is deprecated for flash models: the value of the warm-up is used"
            self.log.router(message, level="WARN", source=BACKEND)
        self.log.router(f"Setting max batch total tokens to {tokens}", source=BACKEND, line=137)
        self.log.router("Using backend V3", source=BACKEND, line=166)
        if self.given("max-total-tokens") is None:
            self.log.router(f"Maximum input tokens defaulted to {limit}", source=MAIN, line=168)
            self.log.router(f"Maximum total tokens defaulted to {total}", source=MAIN, line=168)
        if limit >= total:
            self._refuse("`max_input_tokens` must be < `max_total_tokens`")
        if prefill < limit and not situation.chunks_prefill:
            self._refuse(f"`max_batch_prefill_tokens` must be >= `max_input_tokens`. Given: {prefill} and {limit}")
        if prefill > tokens:
            rule = "`max_batch_prefill_tokens` must be <= `max_batch_total_tokens`"
            self._refuse(f"{rule}. Given: {prefill} and {tokens}")

    def _assumed_tokens(self) -> int:
        """Return the flag's value or a default, as nothing is measured on a CPU (router, backends/v3/src/lib.rs)."""
        message = "Model does not support automatic max batch total tokens"
        self.log.router(message, level="WARN", source=BACKEND, line=79)
        default = max(_CPU_BATCH_TOKENS, self.situation.total_tokens(0), self.situation.prefill_tokens)
        return int(self.given("max-batch-total-tokens", default))

    def _measured_tokens(self) -> int:
        cache = capacity(self.situation)
        if Fault.OOM_WARMUP in self.situation.faults or cache.verdict != "ok":
            sentence = reason("prefill_too_large", tokens=self.situation.prefill_tokens)
            self._fail_in_prefill(sentence, before="torch.OutOfMemoryError: CUDA out of memory.\n")
        self.log.launcher(f"KV-cache blocks: {cache.tokens // cache.block_tokens}, size: {cache.block_tokens}")
        graphs, rule = self.given("cuda-graphs", _GRAPHS), self.situation.weights.rule
        if graphs != (0,) and (rule is None or rule.cuda_graphs):
            self.log.launcher(f"Cuda Graphs are enabled for sizes {sorted(graphs, reverse=True)}")
            self.pause(12.0)
        return cache.tokens

    def _fail_in_prefill(self, sentence: str, before: str = "") -> NoReturn:
        shown = traceback("plain_early", self.model, before + sentence)
        self.log.launcher(f"Method Warmup encountered an error.\n{shown}", level="ERROR")
        self.log.router(f"Server error: {sentence}", level="ERROR", source=CLIENT, line=45, spans=[("warmup", {})] * 2)
        inner = f'Warmup(Generation("{sentence}"))'
        self._end_router(f"Error: {f'Backend({inner})' if self.situation.release.chunked_prefill else inner}")

    def _refuse(self, problem: str) -> NoReturn:
        self._end_router(f'Error: ArgumentValidation("{problem}")')

    def _end_router(self, last_words: str) -> NoReturn:
        """Print the router's last output and exit."""
        self.log.write(last_words)
        self.log.launcher("Webserver Crashed", level="ERROR")
        self.stop_shards()
        raise flags.launcher_error("WebserverFailed")

    def _start_router(self) -> None:
        """Load tokenizer and configuration; the socket is bound right after."""
        checkpoint, router = self.situation.checkpoint, self.log.router
        kind = checkpoint.model.model_type.replace("_", " ").title().replace(" ", "")
        if checkpoint.is_local:
            own = Path(self.model) / "tokenizer_config.json"
            router(f'Tokenizer_config None - Some("{own}")', level="WARN", line=1674)
            self.pause(6.0)
            router(f"Using config Some({kind})", line=1742)
            router(f"no pipeline tag found for model {self.model}", level="WARN", line=1802)
        else:
            router("Using the Hugging Face API", line=219)
            self.pause(6.0)
            router(f"Serving revision {self.given('revision', checkpoint.commit)} of model {self.model}", line=348)
            router(f"Using config Some({kind})", line=1742)

    def serve(self) -> NoReturn:
        """Serve until asked to stop, or until a shard dies."""
        situation, log, inference = self.situation, self.log, Inference(self.situation)
        if "prometheus-port" in situation.arguments.given:
            self._try_metrics_port()
        # The router logs this before it binds its socket.
        log.router("Connected", line=2302)
        try:
            server = EngineServer(situation.listen, inference, port_held=situation.port_held)
        except OSError as error:
            where = ":".join(map(str, situation.listen))
            log.router(f"Failed to bind to {where}: {_shown(error)}", level="ERROR", line=2318)
            fields = f'code: {error.errno}, kind: AddrInUse, message: "{error.strerror}"'
            self._end_router(f"Error: WebServer(Axum(Os {{ {fields} }}))")
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, daemon=True).start()
        with server:
            try:
                self._until_asked_to_stop(inference)
            except flags.ExitError as end:
                log.launcher("Terminating webserver")
                log.launcher("Waiting for webserver to gracefully shutdown")
                log.router("signal received, starting graceful shutdown", line=2399)
                server.leave()
                drained = server.drain(self.given("graceful-termination-timeout", 90) / situation.pace.speed)
                log.launcher("webserver terminated" if drained else "Killing webserver")
                if end.code:
                    log.launcher("Shutting down shards")
                raise

    def _try_metrics_port(self) -> None:
        """Bind a given port for a moment, without answering there.

        The default port is skipped: in a container nothing else uses it, but on this computer something may.
        """
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # two engines on one computer may collide here
            try:
                probe.bind((self.situation.listen[0], self.given("prometheus-port")))
            except OSError as error:
                why = f'FailedToCreateHTTPListener("{_shown(error)}")'
                panic = "thread 'main' panicked at router/src/server.rs:1991:10:"
                self._end_router(f"\n{panic}\nfailed to build prometheus recorder: {why}\n{_NOTE}")

    def _until_asked_to_stop(self, inference: Inference) -> NoReturn:
        """Wait for the stop request, or for a shard to die."""
        faults = self.situation.faults
        if Fault.CRASH_AFTER_READY in faults:
            self.pause(30.0)
            self._crash(inference, "Decode", "illegal_access")
        while not inference.out_of_memory.is_set():
            self.pause(_POLL_S * self.situation.pace.speed if Fault.OOM_SERVING in faults else float("inf"))
        self._crash(inference, "Prefill", "out_of_memory_serving")

    def _crash(self, inference: Inference, method: str, why: str) -> NoReturn:
        """Report as unhealthy until the launcher has noticed the dead shard."""
        inference.dead.set()
        shown = traceback("plain_early", self.model, reason(why))
        self.log.launcher(f"Method {method} encountered an error.\n{shown}", level="ERROR")
        self._report_output("boxed_early", reason(why), 0)
        time.sleep(_NOTICED_S)
        self.log.launcher("Shard 0 crashed", level="ERROR")
        raise flags.launcher_error("ShardFailed")


def _shown(error: OSError) -> str:
    return f"{error.strerror} (os error {error.errno})"
