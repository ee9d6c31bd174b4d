"""A stub of AWS's Session Manager plugin, for a sandbox on a computer without it. It has its arguments and output.

Usage: python -m tgi_deploy.sandbox.sessions.plugin VARIABLE REGION StartSession PROFILE PARAMETERS ENDPOINT
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from websockets.sync.client import connect

from tgi_deploy.sandbox.sessions.channel import (
    FLAG,
    HANDSHAKE_COMPLETE,
    HANDSHAKE_REQUEST,
    HANDSHAKE_RESPONSE,
    MOST_BYTES,
    OF_CLIENT,
    OUTPUT,
    TERMINATE,
    Channel,
)
from tgi_deploy.sandbox.sessions.mux import Mux

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERSION: Final = "1.2.792.0"


def _session(words: list[str]) -> dict[str, str]:
    """Return the reply of StartSession, whose name begins the arguments, and forget it."""
    found: dict[str, str] = json.loads(os.environ.pop(words[0]))
    return found


def _hands(channel: Channel, received: Iterator[tuple[int, bytes]]) -> str:
    """Shake hands; return the type of the session."""
    kind = ""
    for payload_type, payload in received:
        if payload_type == HANDSHAKE_REQUEST:
            action = json.loads(payload)["RequestedClientActions"][0]
            kind = action["ActionParameters"]["SessionType"]
            done = {"ActionType": action["ActionType"], "ActionStatus": 1, "ActionResult": None, "Error": ""}
            answer = {"ClientVersion": _VERSION, "ProcessedClientActions": [done], "Errors": None}
            channel.send_json(HANDSHAKE_RESPONSE, answer)
        if payload_type == HANDSHAKE_COMPLETE:
            break
    return kind


def _forward(session_id: str, channel: Channel, received: Iterator[tuple[int, bytes]]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    mux = Mux(lambda data: channel.send(OUTPUT, data), socket.socket)
    threading.Thread(target=_accept, args=(listener, mux), name="listener", daemon=True).start()
    print(f"Port {listener.getsockname()[1]} opened for sessionId {session_id}.")  # noqa: T201 -- its output
    print("Waiting for connections...", flush=True)  # noqa: T201
    for payload_type, payload in received:
        if payload_type == OUTPUT:
            mux.feed(payload)


def _accept(listener: socket.socket, mux: Mux) -> None:
    with suppress(OSError):
        while True:
            mux.open(listener.accept()[0])


def _show(channel: Channel, received: Iterator[tuple[int, bytes]]) -> None:
    threading.Thread(target=_type, args=(channel,), name="keyboard", daemon=True).start()
    for payload_type, payload in received:
        if payload_type == OUTPUT:
            sys.stdout.buffer.write(payload)
            sys.stdout.buffer.flush()


def _type(channel: Channel) -> None:
    while data := os.read(sys.stdin.fileno(), MOST_BYTES):
        channel.send(OUTPUT, data)


def main(words: list[str]) -> int:
    if words == ["--version"]:
        print(_VERSION)  # noqa: T201 -- its output
        return 0
    session = _session(words)
    print(f"\nStarting session with SessionId: {session['SessionId']}", flush=True)  # noqa: T201
    with connect(session["StreamUrl"], proxy=None) as link:
        opening = {
            "MessageSchemaVersion": "1.0",
            "RequestId": str(uuid.uuid4()),
            "TokenValue": session["TokenValue"],
            "ClientId": str(uuid.uuid4()),
            "ClientVersion": _VERSION,
        }
        link.send(json.dumps(opening))
        channel = Channel(link, sends=OF_CLIENT)
        received = channel.received()
        kind = _hands(channel, received)

        def end(_number: int, _frame: object) -> None:
            channel.send(FLAG, TERMINATE.to_bytes(4))
            os._exit(0)

        if kind == "Port":
            signal.signal(signal.SIGINT, end)
            _forward(session["SessionId"], channel, received)
        else:
            _show(channel, received)
    print(f"\n\nExiting session with sessionId: {session['SessionId']}.\n")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
