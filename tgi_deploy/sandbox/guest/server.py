"""The server side of the shims: takes commands at a socket and returns output and exit status.

Access to the socket means running commands as the sandbox's owner. It is in the home folder, which only the owner
can enter.
"""

from __future__ import annotations

import os
import shlex
import socketserver
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.guest.machine import System

_SHIM: Final = Path(__file__).with_name("shim.py")
_SOCKET: Final = "commands.sock"
_SLEEP: Final = """exec /bin/sleep "$(awk -v text="${{1:-0}}" 'BEGIN {{
  unit["m"] = 60; unit["h"] = 3600; unit["d"] = 86400
  last = substr(text, length(text)); printf "%.3f", text * (last in unit ? unit[last] : 1) / {speed:g}
}}')" """
_DATE: Final = """case " $*" in *" -d"* | *" --date"*) exec /bin/date "$@" ;; esac
exec /bin/date -d "@$(/bin/date +%s.%N | awk '{{ printf "%.3f", {epoch!r} + ($1 - {epoch!r}) * {speed:g} }}')" "$@" """


class Client(socketserver.StreamRequestHandler):
    """One running command. `on_signal` is called with the signals that its process receives."""

    server: CommandServer

    def handle(self) -> None:
        request = self.rfile.read(int(self.rfile.readline() or b"0"))
        machine, command, count, *words = os.fsdecode(request).split("\0")
        self.argv, variables = words[: int(count)], words[int(count) :]
        self.env = dict(variable.split("=", 1) for variable in variables)
        self.on_signal: Callable[[int], None] = lambda _number: None
        self._sending = threading.Lock()
        threading.Thread(target=self._receive_signals, daemon=True).start()
        handler = self.server.machines.get(machine, {}).get(command)
        self._send(b"r%d\n" % (handler(self) if handler else 127))

    def out(self, text: str, kind: bytes = b"o") -> None:
        data = os.fsencode(text)
        self._send(b"%s%d\n%s" % (kind, len(data), data))

    def err(self, text: str) -> None:
        self.out(text, b"e")

    def _send(self, message: bytes) -> None:
        # A client that was killed does not end its command, as with the real daemon.
        with self._sending, suppress(OSError, ValueError):
            self.wfile.write(message)

    def _receive_signals(self) -> None:
        with suppress(OSError, ValueError):
            for line in self.rfile:
                self.on_signal(int(line))


class CommandServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves the commands of all `machines`, by their ids, at a socket in the working directory.

    Its name is relative because socket paths are limited to about 100 bytes.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.machines: dict[str, Mapping[str, Callable[[Client], int]]] = {}
        super().__init__(_SOCKET, Client)
        self._path = Path(_SOCKET).absolute()
        threading.Thread(target=self.serve_forever, name="commands", daemon=True).start()

    def add(self, host: System, handlers: Mapping[str, Callable[[Client], int]], scripts: Mapping[str, str]) -> None:
        """Write a machine's commands: scripts, and small ones that call back here; `sleep` is accelerated.

        So is `date` if the machine's clock differs from the host's; explicit times pass through. `sudo` changes
        nothing: the guest's programs are root's, and the host's would leave the guest.
        """
        self.machines[host.instance_id] = handlers
        for command in {**handlers, **scripts}:
            words = [sys.executable, "-I", "-S", str(_SHIM), str(self._path), host.instance_id, command]
            call = f'exec {shlex.join(words)} "$@"' if command in handlers else ""
            _write_script(host.layout.bin / command, f"{scripts.get(command, '')}\n{call}")
        _write_script(host.layout.bin / "sleep", _SLEEP.format(speed=host.speed))
        _write_script(host.layout.bin / "sudo", 'if [ "$1" = -i ]; then exec bash; fi\nexec "$@"')
        if host.clock.speed != 1:
            _write_script(host.layout.bin / "date", _DATE.format(epoch=host.clock.epoch, speed=host.clock.speed))


def _write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
