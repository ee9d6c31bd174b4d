"""The sandbox's server: `python -m tgi_deploy.sandbox.cloud --home DIR [--port 0] [--speed 60]`.

Listens on 127.0.0.1 only. All its files are in the home folder, which it removes at shutdown.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import logging
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tgi_deploy.sandbox.addresses import AddressPool
from tgi_deploy.sandbox.kubernetes import plane

if TYPE_CHECKING:
    from flask import Flask

DEFAULT_SPEED: Final = 60.0
RECORD: Final = "sandbox.json"
LOG: Final = "server.log"
# The folder of its Kubernetes cluster, which starts when a command needs it.
CLUSTER: Final = "cluster"
# Marks a folder as a sandbox's, to be removed with its contents.
MARKER: Final = ".tgi-deploy-sandbox"
_GUARD: Final = 'cat; for group in machines/*/groups/*; do kill -KILL "-${group##*/}"; done'
# moto reads these at import.
STRICT: Final = {
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "1",
    "MOTO_ENABLE_AMI_VALIDATION": "1",
    "MOTO_ENABLE_KEYPAIR_VALIDATION": "1",
    "MOTO_DISABLE_GLOBAL_CORS": "1",
}


def serve(options: argparse.Namespace) -> None:
    """Serve until stopped, with a record in the home folder; then end all machines and remove the folder."""
    os.environ.update(STRICT)
    gc.disable()  # nothing of what is loaded now is garbage, and looking for it takes a third of the start
    # Imported here, after the variables for moto are set.
    import botocore.loaders  # noqa: PLC0415
    import moto.utilities.utils  # noqa: PLC0415

    # A third of the start is reading the data of moto and botocore, which this decodes faster.
    for module in (botocore.loaders, moto.utilities.utils):
        module.json = SimpleNamespace(  # type: ignore[attr-defined]
            loads=lambda text, **_options: msgspec.json.decode(text)
        )
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server  # noqa: PLC0415

    from tgi_deploy.sandbox import rules, world  # noqa: PLC0415
    from tgi_deploy.sandbox.guest.layout import FastClock, publish  # noqa: PLC0415
    from tgi_deploy.sandbox.layer import Layer  # noqa: PLC0415
    from tgi_deploy.sandbox.machines import Machines, Settings  # noqa: PLC0415

    def backend_app(service: Any) -> Flask:  # noqa: ANN401 -- moto lists its names of services
        made = create_backend_app(service)
        made.config["PROPAGATE_EXCEPTIONS"] = False  # logged, and answered: the connection would just end
        return made

    def stop(*_signal: object) -> None:
        threading.Thread(target=server.shutdown, name="shutdown").start()

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    home: Path = options.home
    (home / "machines").mkdir(exist_ok=True)
    os.chdir(home)  # in which the machines' commands have a short path
    guard = _guard()
    simulated = DomainDispatcherApplication(backend_app)
    server = make_server("127.0.0.1", options.port, simulated, threaded=True, request_handler=MotoRequestHandler)
    world.install(home, AddressPool(server.port))
    rules.install()
    url, access_key = f"http://127.0.0.1:{server.port}", secrets.token_hex(16)
    clock = FastClock(epoch=time.time(), speed=options.timer_speed)
    settings = Settings(home=home, access_key=access_key, speed=options.speed, clock=clock, shut_down=stop)
    machines = Machines(settings)
    server.app = layer = Layer(simulated, machines, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"endpoint_url": url, "pid": os.getpid(), "started": started, "speed": options.speed}
    publish(home / RECORD, json.dumps({**record, "access_key": access_key}))
    gc.freeze()
    gc.enable()
    threading.Thread(target=machines.run, name="machines", daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.05)
    finally:
        layer.close()
        machines.close()
        server.server_close()
        guard.communicate()
        remove(home)


def _guard() -> subprocess.Popen[bytes]:
    """Start a process that outlives this one: if it is killed, the machines' programs are ended."""
    argv = ["/bin/sh", "-c", f"exec >/dev/null 2>&1; {_GUARD}"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 -- fixed words


def claim(home: Path) -> None:
    """Claim the folder for a sandbox, so that only its owner can enter or replace it.

    Raises:
        FileExistsError: it has other contents.
        PermissionError: another user could enter or replace it.
    """
    for folder in (*reversed(home.parents), home):
        folder.mkdir(exist_ok=True, mode=0o700)
    if _is_replaceable(home):
        raise PermissionError(errno.EPERM, "others can write to its parent folder", str(home))
    if home.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to somebody else", str(home))
    # In this order: the marker is the first file that another start makes.
    if any(home.iterdir()) and not (home / MARKER).exists():
        raise FileExistsError(errno.EEXIST, "it has files that are not a sandbox's", str(home))
    home.chmod(0o700)
    (home / MARKER).touch(mode=0o600)


def is_claimed(home: Path) -> bool:
    """Return whether the folder is a sandbox's and belongs to this user."""
    try:
        return home.stat().st_uid == os.geteuid() and (home / MARKER).exists()
    except OSError:
        return False


def remove(home: Path) -> None:
    """Remove a sandbox's folder, never another one, after ending its Kubernetes cluster."""
    if is_claimed(home):
        plane.stop(home / CLUSTER)
        shutil.rmtree(home, ignore_errors=True)


def _is_replaceable(home: Path) -> bool:
    """Return whether another user could rename it, and so replace what runs from there. A private group is safe.

    Parent folders further up are not checked, because in containers they are often world-writable.
    """
    above = home.parent.stat()
    others = above.st_mode & stat.S_IWOTH or (above.st_mode & stat.S_IWGRP and above.st_gid != os.getegid())
    return above.st_uid not in {0, os.geteuid()} or bool(others and not above.st_mode & stat.S_ISVTX)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tgi_deploy.sandbox.cloud", description=__doc__)
    parser.add_argument("--home", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, default=DEFAULT_SPEED, help="how many times as fast as in reality")
    parser.add_argument("--timer-speed", type=float, default=1.0, help="the same for the machines' timers")
    options = parser.parse_args(argv)
    os.umask(0o077)  # also for child processes
    try:
        claim(options.home)
    except OSError as problem:
        sys.stderr.write(f"{options.home} can't be a sandbox's home: {problem.strerror}\n")
        return 2
    serve(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
