"""The server side of the shims: takes commands at a socket and returns output and exit status.

Access to the socket means running commands as the sandbox's owner. It is in the machine's folder, which only the owner
can enter.
"""

from __future__ import annotations

import json
import shlex
import socketserver
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.guest.layout import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.sandbox.guest.layout import FastClock, Layout

_SHIM: Final = Path(__file__).with_name("shim.py")
_SOCKET: Final = "commands.sock"
_NOT_FOUND: Final = 127
_SLEEP: Final = """exec /bin/sleep "$(awk -v text="${{1:-0}}" 'BEGIN {{
  unit["m"] = 60; unit["h"] = 3600; unit["d"] = 86400
  last = substr(text, length(text)); printf "%.3f", text * (last in unit ? unit[last] : 1) / {speed:g}
}}')" """
_DATE: Final = """case " $*" in *" -d"* | *" --date"*) exec /bin/date "$@" ;; esac
exec /bin/date -d "@$(/bin/date +%s.%N | awk '{{ printf "%.3f", {epoch!r} + ($1 - {epoch!r}) * {speed:g} }}')" "$@" """


class Client:
    """One running command. `on_signal` is called with the signals that its process receives."""

    def __init__(self, request: Mapping[str, Any], send: Callable[[Mapping[str, object]], None]) -> None:
        self.command: str = request["command"]
        self.argv: list[str] = list(request["argv"])
        self.env: dict[str, str] = dict(request["env"])
        self.on_signal: Callable[[int], None] = lambda _number: None
        self._send = send

    def out(self, text: str) -> None:
        self._send({"out": text})

    def err(self, text: str) -> None:
        self._send({"err": text})

    def value_of(self, option: str) -> str:
        return value_of(option, self.argv)


def value_of(option: str, words: Sequence[str]) -> str:
    """Return an option's value, as the next argument or after `=`; empty if not given."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class CommandServer:
    """Must be created in the machine's folder as working directory: socket paths are limited to about 100 bytes."""

    def __init__(self, handlers: Mapping[str, Callable[[Client], int]]) -> None:
        self._handlers = handlers
        outer = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer.serve_one(self)

        Path(_SOCKET).unlink(missing_ok=True)  # from the previous boot
        self._server = _Server(_SOCKET, Connection)

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="commands", daemon=True).start()

    def write_shims(self, layout: Layout, *, speed: float) -> None:
        """Write the image's commands as small scripts that call back here; `sleep` is accelerated."""
        for command in COMMANDS:
            words = [sys.executable, "-I", "-S", str(_SHIM), str(layout.folder / _SOCKET), command]
            _write_script(layout.bin / command, f'exec {shlex.join(words)} "$@"')
        _write_script(layout.bin / "sleep", _SLEEP.format(speed=speed))

    def serve_one(self, connection: socketserver.StreamRequestHandler) -> None:
        request = json.loads(connection.rfile.readline() or b"{}")
        lock = threading.Lock()

        def send(message: Mapping[str, object]) -> None:
            data = json.dumps(message).encode() + b"\n"
            with lock:
                try:
                    connection.wfile.write(data)
                except (OSError, ValueError):
                    # The client was killed; its command continues, as with the real daemon.
                    return

        client = Client(request, send)
        threading.Thread(target=_signals, args=(connection, client), daemon=True).start()
        handler = self._handlers.get(client.command)
        send({"rc": handler(client) if handler else _NOT_FOUND})


def _signals(connection: socketserver.StreamRequestHandler, client: Client) -> None:
    try:
        for line in connection.rfile:
            client.on_signal(int(json.loads(line)["signal"]))
    except (OSError, ValueError):
        return


def write_date(folder: Path, clock: FastClock) -> None:
    """Write a `date` that uses the machine's clock if it differs from the host's. Explicit times pass through."""
    if clock.speed != 1:
        _write_script(folder / "date", _DATE.format(epoch=clock.epoch, speed=clock.speed))


def _write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
