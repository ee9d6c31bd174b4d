"""One container's life: parse, start, serve, drain, exit code. The router binds its socket after every other phase."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.flags import ExitError, given_up, parse
from tgi_deploy.sandbox.engine.inference import Inference
from tgi_deploy.sandbox.engine.logs import Log, reason, traceback
from tgi_deploy.sandbox.engine.phases import end_of_router, report_output, start, stop_shards
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.situation import Fault, Situation, find_checkpoint
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.situation import Container

# A flag that no release has: one letter short of one that all have.
_MISSPELLED: Final = ("--max-batch-prefill-token", "4096")
# Real time: how long a launcher takes to notice that a shard has exited.
_NOTICED_S: Final = 0.1
_NOTE: Final = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"
_POLL_S: Final = 0.05


def image_environment(release: TgiRelease) -> dict[str, str]:
    """Return the image's variables and those that `--gpus` adds."""
    return {"PORT": "80", "NVIDIA_VISIBLE_DEVICES": "all", **release.cache_env}


def run(container: Container, argv: Sequence[str]) -> int:
    """Return the launcher's exit code: 0 after a requested stop, 1 for an error, 2 for a bad command line."""
    try:
        situation = prepare(container, (*argv, *(_MISSPELLED if Fault.BAD_FLAG in container.faults else ())))
    except ExitError as end:
        (container.err if end.code else container.out).write(f"{end}\n")
        return end.code
    try:
        start(situation)
        _serve(situation)
    except ExitError as end:
        if end.code:
            situation.log.write(str(end), container.err)
        else:
            stop_shards(situation)
        return end.code


def prepare(container: Container, argv: Sequence[str]) -> Situation:
    """Parse the launcher's arguments, and find the model. Raises ExitError."""
    arguments = parse(container.release.flags, argv, container.environ)
    colored = not container.environ.get("NO_COLOR")
    log = Log(
        out=container.out,
        json_output=arguments.get("json-output"),
        launcher_color=colored,
        # The router's check is inverted: setting the variable turns colors off.
        router_color=colored and container.environ.get("LOG_COLORIZE") != "1",
    )
    checkpoint = find_checkpoint(container.models, container.release, arguments.get("model-id", ""))
    return Situation(**as_dict(container), arguments=arguments, checkpoint=checkpoint, log=log)


def _serve(situation: Situation) -> NoReturn:
    """Serve until asked to stop, or until a shard dies. Raises ExitError."""
    inference, log, arguments = Inference(situation), situation.log, situation.arguments
    if "prometheus-port" in arguments.given:
        _try_metrics_port(situation, situation.listen[0])
    # The router logs this before it binds its socket.
    log.router("Connected", line=2302)
    try:
        server = EngineServer(situation.listen, inference, port_held=situation.port_held)
    except OSError as error:
        where = ":".join(map(str, situation.listen))
        log.router(f"Failed to bind to {where}: {_os_error(error)}", level="ERROR", line=2318)
        fields = f'code: {error.errno}, kind: AddrInUse, message: "{error.strerror}"'
        end_of_router(situation, f"Error: WebServer(Axum(Os {{ {fields} }}))")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, daemon=True).start()
    with server:
        try:
            _until_asked_to_stop(inference)
        except ExitError as end:
            log.launcher("Terminating webserver")
            log.launcher("Waiting for webserver to gracefully shutdown")
            log.router("signal received, starting graceful shutdown", line=2399)
            server.leave()
            drained = server.drain(arguments.get("graceful-termination-timeout", 90) / situation.pace.speed)
            log.launcher("webserver terminated" if drained else "Killing webserver")
            if end.code:
                log.launcher("Shutting down shards")
            raise


def _try_metrics_port(situation: Situation, host: str) -> None:
    """Bind a given port for a moment, without answering there.

    The default port is skipped: in a container nothing else uses it, but on this computer something may.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # two engines on one computer may collide here
        try:
            probe.bind((host, situation.arguments.get("prometheus-port")))
        except OSError as error:
            why = f'FailedToCreateHTTPListener("{_os_error(error)}")'
            panic = "thread 'main' panicked at router/src/server.rs:1991:10:"
            end_of_router(situation, f"\n{panic}\nfailed to build prometheus recorder: {why}\n{_NOTE}")


def _os_error(error: OSError) -> str:
    return f"{error.strerror} (os error {error.errno})"


def _until_asked_to_stop(inference: Inference) -> NoReturn:
    """Wait for the stop request. Raises ExitError, also if a shard dies before that."""
    pace, faults = inference.situation.pace, inference.situation.faults
    if Fault.CRASH_AFTER_READY in faults:
        pace.pause(30.0)
        _crash(inference, "Decode", "illegal_access")
    while not inference.out_of_memory.is_set():
        pace.pause(_POLL_S * pace.speed if Fault.OOM_SERVING in faults else float("inf"))
    _crash(inference, "Prefill", "out_of_memory_serving")


def _crash(inference: Inference, method: str, why: str) -> NoReturn:
    """Report as unhealthy until the launcher has noticed the dead shard."""
    inference.dead.set()
    situation = inference.situation
    log, model = situation.log, situation.checkpoint.model_id
    plain = traceback("plain_early", model, reason(why))
    log.launcher(f"Method {method} encountered an error.\n{plain}", level="ERROR")
    report_output(situation, traceback("boxed_early", model, reason(why), on_cpu=situation.host.on_cpu), 0)
    time.sleep(_NOTICED_S)
    log.launcher("Shard 0 crashed", level="ERROR")
    raise given_up("ShardFailed")
