"""One container's life: parse, start, serve, drain, exit code."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.failures import HelpAskedError, LauncherError, PanicError, StoppedError, UsageError
from tgi_deploy.sandbox.engine.faults import Fault
from tgi_deploy.sandbox.engine.flags import parse
from tgi_deploy.sandbox.engine.inference import OUT_OF_MEMORY, Inference
from tgi_deploy.sandbox.engine.logs import Log
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.service import Service
from tgi_deploy.sandbox.engine.shards import SPAN, stop_shards
from tgi_deploy.sandbox.engine.situation import Stage
from tgi_deploy.sandbox.engine.startup import Container, start
from tgi_deploy.sandbox.engine.tracebacks import traceback
from tgi_deploy.sandbox.engine.warmup import end_of_router

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from tgi_deploy.sandbox.engine.arguments import Arguments
    from tgi_deploy.sandbox.engine.pace import Pace
    from tgi_deploy.sandbox.engine.situation import Situation
    from tgi_deploy.sandbox.engine.warmup import TokenLimits

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
    chat_template: bool
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
    service = _service(situation, limits, stage, options)
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


def _service(situation: Situation, limits: TokenLimits, stage: Stage, options: Run) -> Service:
    supplied = situation.arguments.text("tokenizer-config-path") is not None
    own = situation.checkpoint.profile.chat and options.chat_template
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
