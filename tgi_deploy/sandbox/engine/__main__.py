"""`python -m tgi_deploy.sandbox.engine --version 3.3.7 --listen HOST:PORT … -- <launcher arguments>`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.catalog.kept_models import KEPT_MODELS, CachedModels
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.engines.tgi.release import TgiRelease
from tgi_deploy.errors import DeployError
from tgi_deploy.sandbox.engine.launcher import image_environment, run
from tgi_deploy.sandbox.engine.situation import NO_ACCELERATOR, Container, Fault, Host, Pace

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Run one container in the foreground and return the launcher's exit code."""
    try:
        container, launcher = _container(_parser())
    except DeployError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return 2

    def wait_for_signal() -> None:
        """Wait in a thread, because a handler would interrupt the main thread's waits."""
        signal.sigwait(_SIGNALS)
        container.pace.stopping.set()

    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    threading.Thread(target=wait_for_signal, daemon=True).start()
    try:
        return run(container, launcher)
    except BrokenPipeError:
        # The reader of the log is gone, and so is this container's machine.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    about = "A stub server that imitates the TGI container."
    parser = argparse.ArgumentParser("python -m tgi_deploy.sandbox.engine", allow_abbrev=False, description=about)
    parser.add_argument("--version", required=True, help="TGI release, e.g. 3.3.7")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--port-held", action="store_true", help="other sockets of this account may be bound to it")
    parser.add_argument("--accelerator", required=True, help="as the catalog names it, e.g. L40S, or none")
    parser.add_argument("--gpus", type=int, default=1, help="accelerators the container may use")
    parser.add_argument("--memory-bytes", type=int, help="usable memory of one accelerator")
    parser.add_argument("--speed", type=float, default=60.0, help="divides real durations; 1 is real time")
    parser.add_argument("--data", type=Path, help="folder mounted at /data; keeps what was downloaded")
    parser.add_argument("--environment-from-stdin", action="store_true", help="the container's, as a JSON object")
    parser.add_argument("--fault", action="append", default=[], choices=list(map(str, Fault)), help="inject a failure")
    parser.add_argument("launcher", nargs="*", help="the launcher's arguments, after --")
    return parser


def models_of(environ: Mapping[str, str]) -> Catalog:
    """Return the catalog with the hub models that were planned before, because the stub also replaces the hub."""
    kept = environ.get(KEPT_MODELS)
    return Catalog.open(more=CachedModels(Path(kept)) if kept else None, engines=(Tgi(),))


def _container(parser: argparse.ArgumentParser) -> tuple[Container, list[str]]:
    """Return the container, and the launcher's arguments. Raises DeployError for an unknown release or GPU."""
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"argument --listen: {options.listen!r} is not HOST:PORT")
    if not 0 < options.speed < float("inf"):
        parser.error(f"argument --speed: {options.speed} is not above 0")
    catalog = models_of(os.environ)
    release = catalog.release(options.version)
    if not isinstance(release, TgiRelease):
        raise TypeError("the catalog was opened for another engine")
    bare = options.accelerator == NO_ACCELERATOR.name
    accelerator = NO_ACCELERATOR if bare else catalog.accelerator(options.accelerator)
    memory = accelerator.memory_bytes if options.memory_bytes is None else options.memory_bytes
    environ = json.load(sys.stdin.buffer) if options.environment_from_stdin else os.environ
    container = Container(
        release=release, environ={**image_environment(release), **environ}, models=catalog,
        host=Host(accelerator=accelerator, gpus=0 if bare else options.gpus, memory_bytes=memory, data=options.data),
        faults=frozenset(map(Fault, options.fault)), pace=Pace(speed=options.speed),
        listen=(host, int(port)), port_held=options.port_held, out=sys.stdout, err=sys.stderr,
    )  # fmt: skip
    return container, options.launcher


if __name__ == "__main__":
    sys.exit(main())
