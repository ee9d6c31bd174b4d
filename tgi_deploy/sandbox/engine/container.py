"""One container's life: parse, start, serve, drain, exit code. The router binds its socket after every other phase."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, NoReturn

from tgi_deploy.sandbox.engine.checkpoint import find_checkpoint
from tgi_deploy.sandbox.engine.flags import ExitError, given_up, parse, resolve_shards, validate, validate_adapters
from tgi_deploy.sandbox.engine.inference import Inference
from tgi_deploy.sandbox.engine.logs import GPU, Log
from tgi_deploy.sandbox.engine.phases import (
    DEFAULT_GRAPHS,
    download,
    end_of_router,
    load_shards,
    report_output,
    start_router,
    stop_shards,
    warm_up,
)
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.situation import Fault, Situation
from tgi_deploy.sandbox.engine.tracebacks import reason, traceback
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.situation import Container, Host

_DEVICE_VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
# A flag that no release has: one letter short of one that all have.
_MISSPELLED: Final = ("--max-batch-prefill-token", "4096")
# Real time: how long a launcher takes to notice that a shard has exited.
_NOTICED_S: Final = 0.1
_NOTE: Final = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"
_POLL_S: Final = 0.05


def image_environment(release: TgiRelease) -> dict[str, str]:
    """Return the image's variables and those that `--gpus` adds."""
    return {"PORT": "80", "NVIDIA_VISIBLE_DEVICES": "all", **release.cache_env}


def devices_found(environ: Mapping[str, str], host: Host, release: TgiRelease) -> int | None:
    """Return how many devices the environment names, None if it names none (`launcher/src/main.rs`, TGI PR 3346)."""
    for variable in _DEVICE_VARIABLES:
        named = environ.get(variable)
        if variable == "NVIDIA_VISIBLE_DEVICES" and named in {"all", "void"}:
            return host.gpus if release.counts_all_devices else 1
        if named is not None:
            return len(named.split(","))
    return None


def run(container: Container, argv: Sequence[str]) -> int:
    """Return the launcher's exit code: 0 after a requested stop, 1 for an error, 2 for a bad command line."""
    if Fault.BAD_FLAG in container.faults:
        argv = (*argv, *_MISSPELLED)
    try:
        situation = prepare(container, argv)
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
    return 0


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
        _announce_attention(situation)
    if arguments.get("sharded") and arguments.get("num-shard") is None:
        log.launcher(f"Parsing num_shard from {'/'.join(_DEVICE_VARIABLES)}")
    devices = devices_found(situation.environ, situation.host, situation.release)
    situation.num_shard = resolve_shards(arguments, devices)
    if situation.num_shard > 1:
        log.launcher(f"Sharding model on {situation.num_shard} processes")
    if arguments.get("max-batch-prefill-tokens") is None:
        log.launcher(f"Default `max_batch_prefill_tokens` to {situation.prefill_tokens}")
    if arguments.get("cuda-graphs") is None:
        log.launcher(f"Using default cuda graphs {list(DEFAULT_GRAPHS)}")
    validate(arguments)
    download(situation)
    validate_adapters(arguments)
    load_shards(situation)
    warm_up(situation)
    start_router(situation)


def _announce_attention(situation: Situation) -> None:
    """Choose the kernels like the launcher, before the number of shards is known."""
    log, paged = situation.log, situation.attention == "paged"
    if situation.host.on_cpu:
        problem = f"Cannot determine GPU compute capability: {reason('no_driver')}"
        log.launcher(problem, level="WARN", target=GPU)
    if paged and "ATTENTION" not in situation.environ:
        why = "head dim is not supported by flashinfer"
        log.launcher(f"Forcing attention to 'paged' because {why}, also disabling prefix caching")
    log.launcher(f"Using attention {situation.attention} - Prefix caching {'0' if paged else 'true'}")


def _serve(situation: Situation) -> None:
    """Serve until asked to stop, or until a shard dies. Raises ExitError."""
    inference, log = Inference(situation), situation.log
    if "prometheus-port" in situation.arguments.given:
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
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, daemon=True)
    loop.start()
    try:
        _until_asked_to_stop(inference)
    except ExitError as end:
        _stop_router(server, situation)
        if end.code:
            log.launcher("Shutting down shards")
        raise
    finally:
        server.server_close()


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


def _until_asked_to_stop(inference: Inference) -> None:
    """Wait for the stop request. Raises ExitError, also if a shard dies before that."""
    pace, faults = inference.situation.pace, inference.situation.faults
    if Fault.CRASH_AFTER_READY in faults:
        pace.pause(30.0)
        _crash(inference, "Decode", "illegal_access")
    if Fault.OOM_SERVING not in faults:
        pace.pause(float("inf"))
    while not inference.out_of_memory.is_set():
        pace.pause(_POLL_S * pace.speed)
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


def _stop_router(server: EngineServer, situation: Situation) -> None:
    """Stop accepting requests and let open ones finish."""
    log = situation.log
    log.launcher("Terminating webserver")
    log.launcher("Waiting for webserver to gracefully shutdown")
    log.router("signal received, starting graceful shutdown", line=2399)
    server.leave()
    grace_s = situation.arguments.get("graceful-termination-timeout", 90)
    drained = server.drain(grace_s / situation.pace.speed)
    log.launcher("webserver terminated" if drained else "Killing webserver")
