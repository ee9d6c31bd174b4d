"""The agent's end of a session: a forwarded port, or a command on a terminal of the machine."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.sessions.channel import (
    CONNECT_ERROR,
    FLAG,
    HANDSHAKE_COMPLETE,
    HANDSHAKE_REQUEST,
    HANDSHAKE_RESPONSE,
    MOST_BYTES,
    OF_AGENT,
    OUTPUT,
    TERMINATE,
    Channel,
)
from tgi_deploy.sandbox.sessions.mux import Mux

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from websockets.sync.server import ServerConnection

_AGENT_VERSION: Final = "3.3.2299.0"  # multiplexes, without smux's keep-alive
_CONNECT_S: Final = 5.0
_REFUSED: Final = 1008


@dataclass(frozen=True, kw_only=True, slots=True)
class Guest:
    """A machine: where it listens, and where and with which variables its commands run."""

    address: str
    folder: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    id: str
    guest: Guest
    port: int | None = None
    command: str = ""
    token: str = field(repr=False)

    @property
    def kind(self) -> dict[str, Any]:
        """What the client has to do, as the handshake names it."""
        if self.port is None:
            return {"SessionType": "InteractiveCommands", "Properties": {"linux": {"commands": self.command}}}
        port = {"portNumber": str(self.port), "localPortNumber": "0", "type": "LocalPortForwarding"}
        return {"SessionType": "Port", "Properties": port}


def serve(link: ServerConnection, session: Session | None) -> None:
    """Run a session to its end. Whoever lacks its token is turned away."""
    opened = json.loads(link.recv())
    if session is None or opened.get("TokenValue") != session.token:
        link.close(_REFUSED, "the token is another session's")
        return
    channel = Channel(link, sends=OF_AGENT)
    actions = [{"ActionType": "SessionType", "ActionParameters": session.kind}]
    channel.send_json(HANDSHAKE_REQUEST, {"AgentVersion": _AGENT_VERSION, "RequestedClientActions": actions})
    received = channel.received()
    for payload_type, _ in received:
        if payload_type == HANDSHAKE_RESPONSE:
            break
    channel.send_json(HANDSHAKE_COMPLETE, {"HandshakeTimeToComplete": 0, "CustomerMessage": ""})
    if session.port is None:
        _run(session, channel, received)
    else:
        _forward(session.guest.address, session.port, channel, received)


def _forward(address: str, port: int, channel: Channel, received: Iterator[tuple[int, bytes]]) -> None:
    def connect() -> socket.socket:
        try:
            return socket.create_connection((address, port), timeout=_CONNECT_S)
        except OSError:
            channel.send(FLAG, CONNECT_ERROR.to_bytes(4))
            raise

    mux = Mux(lambda data: channel.send(OUTPUT, data), connect)
    for payload_type, payload in received:
        if payload_type == OUTPUT:
            mux.feed(payload)
        elif payload_type == FLAG and int.from_bytes(payload) == TERMINATE:
            break
    mux.close()


def _run(session: Session, channel: Channel, received: Iterator[tuple[int, bytes]]) -> None:
    own, theirs = pty.openpty()
    child = subprocess.Popen(  # noqa: S603 -- the sandbox's owner asked for it
        ["/bin/bash", "-c", session.command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=session.guest.folder,
        env=dict(session.guest.environment), start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    threading.Thread(target=_type, args=(own, received), name="keyboard", daemon=True).start()
    with suppress(OSError):  # the end of a terminal whose program has ended
        while data := os.read(own, MOST_BYTES):
            channel.send(OUTPUT, data)
    child.wait()
    channel.close(session.id)
    os.close(own)


def _type(terminal: int, received: Iterator[tuple[int, bytes]]) -> None:
    with suppress(OSError):
        for payload_type, payload in received:
            if payload_type == OUTPUT:
                os.write(terminal, payload)
