"""One container's life: parse, start, serve, drain, exit code."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.failures import HelpAskedError, LauncherError, StoppedError, UsageError
from tgi_deploy.sandbox.engine.faults import Fault
from tgi_deploy.sandbox.engine.flags import parse
from tgi_deploy.sandbox.engine.inference import OUT_OF_MEMORY, Inference
from tgi_deploy.sandbox.engine.logs import Log
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.service import Service
from tgi_deploy.sandbox.engine.shards import SPAN
from tgi_deploy.sandbox.engine.situation import Stage
from tgi_deploy.sandbox.engine.startup import Container, start

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
_CRASH_AFTER_S: Final = 30.0
# A flag that no release has, one letter short of one that all have.
_MISSPELT: Final = ("--max-batch-prefill-token", "4096")
_DEFAULT_GRACE_S: Final = 90
_SHARD_STOP_S: Final = 2.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """How this run differs from any other of the same container."""

    listen: tuple[str, int]
    pace: Pace
    chat_template: bool
    out: TextIO
    err: TextIO
    port_held: bool = False


def run(container: Container, argv: Sequence[str], options: Run) -> int:
    """The launcher's exit code: 0 stopped when asked, 1 any error of its own, 2 a bad command line."""
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
        stage.log.launcher("Shutting down shards")
        return _STOPPED
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
        # The router's own check is inverted: setting the variable turns colours off.
        router_colour=coloured and environ.get("LOG_COLORIZE") != "1",
    )


def _serve(situation: Situation, limits: TokenLimits, stage: Stage, options: Run) -> None:
    service = _service(situation, limits, options)
    try:
        server = EngineServer(options.listen, service, port_held=options.port_held)
    except OSError as error:
        stage.log.router(f"Failed to bind to {options.listen[0]}:{options.listen[1]}: {error}", level="ERROR")
        stage.log.launcher("Webserver Crashed", level="ERROR")
        raise LauncherError("WebserverFailed") from error
    stage.log.router("Connected", line=2429)
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, daemon=True)
    loop.start()
    try:
        _until_asked_to_stop(service.inference, stage)
    except StoppedError:
        _shut_down(server, situation, stage)
    finally:
        server.server_close()


def _service(situation: Situation, limits: TokenLimits, options: Run) -> Service:
    supplied = situation.arguments.text("tokenizer-config-path") is not None
    own = situation.checkpoint.profile.chat and options.chat_template
    return Service(
        inference=Inference(situation, limits, options.pace.speed),
        template=(own or supplied) and Fault.NO_CHAT_TEMPLATE not in situation.faults,
        api_key=situation.arguments.text("api-key"),
    )


def _until_asked_to_stop(inference: Inference, stage: Stage) -> None:
    """Raises LauncherError `ShardFailed` when a shard dies before that."""
    if Fault.CRASH_AFTER_READY in inference.situation.faults:
        stage.pace.pause(_CRASH_AFTER_S)
        _crash(stage, "RuntimeError: CUDA error: an illegal memory access was encountered")
    if Fault.OOM_SERVING not in inference.situation.faults:
        stage.pace.pause(float("inf"))
    while not inference.out_of_memory.is_set():
        stage.pace.pause(_POLL_S * stage.pace.speed)
    _crash(stage, OUT_OF_MEMORY)


def _crash(stage: Stage, reason: str) -> NoReturn:
    stage.log.launcher(
        f"Shard complete standard error output:\n\n{reason}", level="ERROR", span="shard-manager", rank=0
    )
    stage.log.launcher("Shard 0 crashed", level="ERROR")
    stage.log.launcher("Terminating webserver")
    stage.log.launcher("Shutting down shards")
    raise LauncherError("ShardFailed")


def _shut_down(server: EngineServer, situation: Situation, stage: Stage) -> None:
    """Accept nothing more, let open requests finish, and end the shards; what it takes was measured on TGI 3.3.7."""
    stage.log.launcher("Terminating webserver")
    stage.log.launcher("Waiting for webserver to gracefully shutdown")
    stage.log.router("signal received, starting graceful shutdown")
    server.leave()
    grace_s = situation.arguments.required_number("graceful-termination-timeout", _DEFAULT_GRACE_S)
    drained = server.drain(grace_s / stage.pace.speed)
    stage.log.launcher("webserver terminated" if drained else "Killing webserver")
    stage.log.launcher("Shutting down shards")
    for said in ("Terminating shard", "Waiting for shard to gracefully shutdown"):
        _of_every_shard(said, situation, stage)
    time.sleep(_SHARD_STOP_S / stage.pace.speed)
    _of_every_shard("shard terminated", situation, stage)


def _of_every_shard(said: str, situation: Situation, stage: Stage) -> None:
    for rank in range(situation.num_shard):
        stage.log.launcher(said, span=SPAN, rank=rank)
