"""The data channel of a session: numbered messages over a WebSocket, each acknowledged, and sent again until it is."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.connection import Connection

OF_CLIENT: Final = "input_stream_data"
OF_AGENT: Final = "output_stream_data"
_ACKNOWLEDGE: Final = "acknowledge"
_CLOSED: Final = "channel_closed"
# Types of payload.
OUTPUT: Final = 1
HANDSHAKE_REQUEST: Final = 5
HANDSHAKE_RESPONSE: Final = 6
HANDSHAKE_COMPLETE: Final = 7
FLAG: Final = 10
# Flags.
TERMINATE: Final = 2
CONNECT_ERROR: Final = 3
MOST_BYTES: Final = 1024  # of a payload, as the agent sends them
# Length of the header without the payload's, type, schema, milliseconds, sequence, flags, id, digest, payload's type
# and length.
_HEAD: Final = struct.Struct(">I32sIQqQ16s32sII")
_HEADER_LENGTH: Final = _HEAD.size - 4
_RESEND_S: Final = 0.2


class Message(NamedTuple):
    kind: str
    sequence: int
    payload_type: int
    payload: bytes
    id: uuid.UUID


def encoded(message: Message) -> bytes:
    """The id's halves are swapped on the wire."""
    digest, number = hashlib.sha256(message.payload).digest(), message.id.bytes
    head = _HEAD.pack(
        _HEADER_LENGTH,
        message.kind.encode().ljust(32),
        1,
        int(time.time() * 1000),
        message.sequence,
        0,
        number[8:] + number[:8],
        digest,
        message.payload_type,
        len(message.payload),
    )
    return head + message.payload


def decoded(raw: bytes) -> Message:
    """Raises ValueError for anything but a whole message."""
    if len(raw) < _HEAD.size:
        raise ValueError("a message is shorter than its header")
    _, kind, _, _, sequence, _, number, digest, payload_type, length = _HEAD.unpack_from(raw)
    payload = raw[_HEAD.size :]
    if len(payload) != length or (payload and hashlib.sha256(payload).digest() != digest):
        raise ValueError("a message differs from its digest")
    name = kind.decode("ascii").strip(" \0")
    return Message(name, sequence, payload_type, payload, uuid.UUID(bytes=number[8:] + number[:8]))


def _connection_closed() -> type[Exception]:
    from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 -- most deployments have no sessions

    return ConnectionClosed


class Channel:
    """One end. `sends` is the kind of its own messages."""

    def __init__(self, link: Connection, *, sends: str) -> None:
        self._link = link
        self._sends = sends
        self._lock = threading.Lock()
        self._next = 0
        self._expected = 0
        self._open: dict[int, tuple[float, bytes]] = {}
        threading.Thread(target=self._repeat, name="resend", daemon=True).start()

    def send(self, payload_type: int, payload: bytes) -> None:
        with self._lock:
            raw = encoded(Message(self._sends, self._next, payload_type, payload, uuid.uuid4()))
            self._open[self._next] = (time.monotonic(), raw)
            self._next += 1
            self._pass(raw)

    def send_json(self, payload_type: int, document: dict[str, Any]) -> None:
        self.send(payload_type, json.dumps(document).encode())

    def received(self) -> Iterator[tuple[int, bytes]]:
        """Yield type and payload of each message in order, until the other end closes the channel."""
        with suppress(_connection_closed()):
            while True:
                raw = self._link.recv()
                message = decoded(raw if isinstance(raw, bytes) else raw.encode())
                if message.kind == _CLOSED:
                    return
                if message.kind == _ACKNOWLEDGE:
                    self._open.pop(json.loads(message.payload)["AcknowledgedMessageSequenceNumber"], None)
                elif message.sequence <= self._expected:
                    self._acknowledge(message)
                    if message.sequence == self._expected:
                        self._expected += 1
                        yield message.payload_type, message.payload

    def close(self, session_id: str) -> None:
        """End the session at the other end, once it has acknowledged everything."""
        deadline = time.monotonic() + 1.0
        while self._open and time.monotonic() < deadline:
            time.sleep(0.01)
        document = {"SessionId": session_id, "MessageType": _CLOSED, "SchemaVersion": 1, "Output": ""}
        self._pass(encoded(Message(_CLOSED, 0, 0, json.dumps(document).encode(), uuid.uuid4())))
        self._link.close()

    def _acknowledge(self, message: Message) -> None:
        content = {
            "AcknowledgedMessageType": message.kind,
            "AcknowledgedMessageId": str(message.id),
            "AcknowledgedMessageSequenceNumber": message.sequence,
            "IsSequentialMessage": True,
        }
        self._pass(encoded(Message(_ACKNOWLEDGE, 0, 0, json.dumps(content).encode(), uuid.uuid4())))

    def _repeat(self) -> None:
        """Send again what is not acknowledged: a plugin drops output that comes before it is ready."""
        while not self._closed:
            time.sleep(_RESEND_S)
            with self._lock:
                late = [raw for at, raw in self._open.values() if time.monotonic() - at > _RESEND_S]
                for raw in late[:1]:
                    self._pass(raw)

    @property
    def _closed(self) -> bool:
        return self._link.protocol.state.name == "CLOSED"

    def _pass(self, raw: bytes) -> None:
        with suppress(_connection_closed()):
            self._link.send(raw)
