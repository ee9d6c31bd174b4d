"""One container's life: parse, start, serve, drain, exit code. The router binds its socket after every other phase."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.checkpoint import find_checkpoint
from tgi_deploy.sandbox.engine.cpu import warn_of_driver
from tgi_deploy.sandbox.engine.download import check_access, deny_unknown, download
from tgi_deploy.sandbox.engine.failures import HelpAskedError, LauncherError, PanicError, StoppedError, UsageError
from tgi_deploy.sandbox.engine.flags import parse
from tgi_deploy.sandbox.engine.host import Fault, devices_found
from tgi_deploy.sandbox.engine.inference import OUT_OF_MEMORY, Inference
from tgi_deploy.sandbox.engine.logs import Log
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.service import Service
from tgi_deploy.sandbox.engine.shards import SPAN, load_shards, stop_shards
from tgi_deploy.sandbox.engine.situation import FALLBACK, Situation, Stage
from tgi_deploy.sandbox.engine.tracebacks import traceback
from tgi_deploy.sandbox.engine.validation import resolve_shards, validate, validate_adapters
from tgi_deploy.sandbox.engine.warmup import DEFAULT_GRAPHS, end_of_router, start_router, warm_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.checkpoint import Checkpoint, Models
    from tgi_deploy.sandbox.engine.flags import Arguments
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.situation import Pace
    from tgi_deploy.sandbox.engine.warmup import TokenLimits

_ARGUMENTS_S: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A container to start: image (release), machine, environment, faults."""

    release: TgiRelease
    host: Host
    environ: Mapping[str, str]
    faults: frozenset[Fault]
    models: Models


def start(container: Container, arguments: Arguments, stage: Stage) -> tuple[Situation, TokenLimits]:
    """Run every phase before the socket.

    Raises:
        LauncherError: if the launcher, a shard or the router fails.
        StoppedError: on a stop signal.
    """
    stage.log.launcher(arguments.debug())
    _mention_hostname(arguments, stage)
    stage.pace.pause(_ARGUMENTS_S)
    warn_of_driver(container.host, container.release, stage)
    model_id = arguments.text("model-id") or ""
    checkpoint = find_checkpoint(container.models, container.release, model_id)
    if checkpoint is not None:
        _announce_attention(container, arguments, checkpoint, stage)
    shards = resolve_shards(arguments, devices_found(container.environ, container.host, container.release))
    if checkpoint is None:
        _deny(container, arguments, model_id, stage)
    situation = _situation(container, arguments, checkpoint, shards)
    _announce_plan(situation, stage)
    validate(arguments)
    check_access(situation, stage)
    download(situation, stage)
    validate_adapters(arguments)
    load_shards(situation, stage)
    limits = warm_up(situation, stage)
    start_router(situation, stage)
    return situation, limits


def _situation(container: Container, arguments: Arguments, checkpoint: Checkpoint, shards: int) -> Situation:
    return Situation(
        arguments=arguments,
        environ=container.environ,
        release=container.release,
        host=container.host,
        num_shard=shards,
        checkpoint=checkpoint,
        faults=container.faults,
    )


def _announce_attention(container: Container, arguments: Arguments, checkpoint: Checkpoint, stage: Stage) -> None:
    """Choose the kernels like the launcher, before the number of shards is known."""
    situation = _situation(container, arguments, checkpoint, 1)
    if not situation.release.default_attention:
        return
    paged = situation.attention == "paged"
    if paged and "ATTENTION" not in situation.environ:
        reason = "head dim is not supported by flashinfer"
        stage.log.launcher(f"Forcing attention to 'paged' because {reason}, also disabling prefix caching")
    caching = "0" if paged else "true"
    stage.log.launcher(f"Using attention {situation.attention} - Prefix caching {caching}")


def _mention_hostname(arguments: Arguments, stage: Stage) -> None:
    """Log the launcher's warning: Docker sets HOSTNAME, the variable of `--hostname`, to the container's name."""
    try:
        ipaddress.ip_address(arguments.text("hostname") or "0.0.0.0")  # noqa: S104 -- the launcher's default
    except ValueError:
        stage.log.router("Invalid hostname, defaulting to 0.0.0.0", level="WARN")


def _deny(container: Container, arguments: Arguments, model_id: str, stage: Stage) -> NoReturn:
    """Return the launcher's assumptions for a model of unknown shape."""
    if container.release.default_attention:
        stage.log.launcher(f"Using attention {container.release.default_attention} - Prefix caching true")
    if arguments.number("max-batch-prefill-tokens") is None:
        stage.log.launcher(f"Default `max_batch_prefill_tokens` to {FALLBACK}")
    if arguments.values.get("cuda-graphs") is None:
        stage.log.launcher(f"Using default cuda graphs {list(DEFAULT_GRAPHS)}")
    validate(arguments)
    deny_unknown(model_id, stage)


def _announce_plan(situation: Situation, stage: Stage) -> None:
    arguments, log = situation.arguments, stage.log
    if situation.num_shard > 1:
        log.launcher(f"Sharding model on {situation.num_shard} processes")
    if arguments.number("max-batch-prefill-tokens") is None:
        log.launcher(f"Default `max_batch_prefill_tokens` to {situation.prefill_tokens}")
    if arguments.values.get("cuda-graphs") is None:
        log.launcher(f"Using default cuda graphs {list(DEFAULT_GRAPHS)}")


_STOPPED: Final = 0
_FAILED: Final = 1
_USAGE: Final = 2
_PANICKED: Final = 101
_CRASH_AFTER_S: Final = 30.0
# A flag that no release has: one letter short of one that all have.
_MISSPELT: Final = ("--max-batch-prefill-token", "4096")
_DEFAULT_GRACE_S: Final = 90
# Real time: how long a launcher takes to notice that a shard has exited.
_NOTICED_S: Final = 0.1
_NOTE: Final = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"
_POLL_S: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Settings of this run of the container."""

    listen: tuple[str, int]
    pace: Pace
    out: TextIO
    err: TextIO
    port_held: bool = False


def run(container: Container, argv: Sequence[str], options: Run) -> int:
    """Return the launcher's exit code: 0 after a requested stop, 1 for an error, 2 for a bad command line."""
    if Fault.BAD_FLAG in container.faults:
        argv = (*argv, *_MISSPELT)
    try:
        arguments = parse(container.release.flags, argv, container.environ)
    except UsageError as error:
        options.err.write(f"{error}\n")
        return _USAGE
    except HelpAskedError as asked:
        options.out.write(f"{asked}\n")
        return _STOPPED
    stage = Stage(log=_log(container, arguments, options), pace=options.pace)
    try:
        situation, limits = start(container, arguments, stage)
        _serve(situation, limits, stage, options)
    except StoppedError:
        stop_shards(stage)
        return _STOPPED
    except PanicError as panic:
        stage.log.final(str(panic))
        return _PANICKED
    except LauncherError as error:
        stage.log.final(f"Error: {error.variant}")
        return _FAILED
    return _STOPPED


def _log(container: Container, arguments: Arguments, options: Run) -> Log:
    environ = container.environ
    coloured = not environ.get("NO_COLOR")
    return Log(
        out=options.out,
        err=options.err,
        json_output=arguments.on("json-output"),
        launcher_colour=coloured,
        # The router's check is inverted: setting the variable turns colors off.
        router_colour=coloured and environ.get("LOG_COLORIZE") != "1",
    )


def _serve(situation: Situation, limits: TokenLimits, stage: Stage, options: Run) -> None:
    service = _service(situation, limits, stage)
    _try_metrics_port(situation, stage, options)
    # The router logs this before it binds its socket.
    stage.log.router("Connected", line=2302)
    try:
        server = EngineServer(options.listen, service, port_held=options.port_held)
    except OSError as error:
        where = ":".join(map(str, options.listen))
        stage.log.router(f"Failed to bind to {where}: {_os_error(error)}", level="ERROR", line=2318)
        fields = f'code: {error.errno}, kind: AddrInUse, message: "{error.strerror}"'
        end_of_router(stage, f"Error: WebServer(Axum(Os {{ {fields} }}))")
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, daemon=True)
    loop.start()
    try:
        _until_asked_to_stop(service.inference, stage)
    except StoppedError:
        _stop_router(server, situation, stage)
        stop_shards(stage)
    except LauncherError:
        _stop_router(server, situation, stage)
        stage.log.launcher("Shutting down shards")
        raise
    finally:
        server.server_close()


def _try_metrics_port(situation: Situation, stage: Stage, options: Run) -> None:
    """Bind the port for a moment, without answering there.

    The default port is skipped: in a container nothing else uses it, but on this computer something may.
    """
    port = situation.arguments.number("prometheus-port")
    if port is None or "prometheus-port" not in situation.arguments.given:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # two engines on one computer may collide here
        try:
            probe.bind((options.listen[0], port))
        except OSError as error:
            reason = f'FailedToCreateHTTPListener("{_os_error(error)}")'
            panic = "thread 'main' panicked at router/src/server.rs:1991:10:"
            end_of_router(stage, f"\n{panic}\nfailed to build prometheus recorder: {reason}\n{_NOTE}")


def _os_error(error: OSError) -> str:
    return f"{error.strerror} (os error {error.errno})"


def _service(situation: Situation, limits: TokenLimits, stage: Stage) -> Service:
    supplied = situation.arguments.text("tokenizer-config-path") is not None
    own = situation.checkpoint.profile.chat
    return Service(
        inference=Inference(situation, limits, stage),
        template=(own or supplied) and Fault.NO_CHAT_TEMPLATE not in situation.faults,
        api_key=situation.arguments.text("api-key"),
    )


def _until_asked_to_stop(inference: Inference, stage: Stage) -> None:
    """Wait for the stop request. Raises LauncherError `ShardFailed` if a shard dies before that."""
    if Fault.CRASH_AFTER_READY in inference.situation.faults:
        stage.pace.pause(_CRASH_AFTER_S)
        _crash(inference, stage, "Decode", "RuntimeError: CUDA error: an illegal memory access was encountered")
    if Fault.OOM_SERVING not in inference.situation.faults:
        stage.pace.pause(float("inf"))
    while not inference.out_of_memory.is_set():
        stage.pace.pause(_POLL_S * stage.pace.speed)
    _crash(inference, stage, "Prefill", OUT_OF_MEMORY)


def _crash(inference: Inference, stage: Stage, method: str, reason: str) -> NoReturn:
    """Report as unhealthy until the launcher has noticed the dead shard."""
    inference.dead.set()
    model = inference.situation.checkpoint.model_id
    failed = f"Method {method} encountered an error.\n{traceback('plain_early', model, reason)}"
    stage.log.launcher(failed, level="ERROR")
    left = traceback("boxed_early", model, reason, on_cpu=inference.situation.host.on_cpu)
    stage.log.launcher(f"Shard complete standard error output:\n\n{left}", level="ERROR", span=SPAN, rank=0)
    time.sleep(_NOTICED_S)
    stage.log.launcher("Shard 0 crashed", level="ERROR")
    raise LauncherError("ShardFailed")


def _stop_router(server: EngineServer, situation: Situation, stage: Stage) -> None:
    """Stop accepting requests and let open ones finish."""
    stage.log.launcher("Terminating webserver")
    stage.log.launcher("Waiting for webserver to gracefully shutdown")
    stage.log.router("signal received, starting graceful shutdown", line=2399)
    server.leave()
    grace_s = situation.arguments.required_number("graceful-termination-timeout", _DEFAULT_GRACE_S)
    drained = server.drain(grace_s / stage.pace.speed)
    stage.log.launcher("webserver terminated" if drained else "Killing webserver")
