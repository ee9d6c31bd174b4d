"""What the API server asks kubelets for: logs, exec and port-forward, over TLS. Only the API server may connect.

Exec and port-forward speak the WebSocket protocols of the official Python client; SPDY, which kubectl uses for
port-forward, is not supported.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request
from websockets.protocol import Protocol, Side
from websockets.server import ServerProtocol
from websockets.sync.connection import Connection

from tgi_deploy.sandbox.guest.tls_proxy import relay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tgi_deploy.sandbox.kubernetes.pods import Pod
    from tgi_deploy.sandbox.kubernetes.probes import Place

_V4, _V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_CHUNK_BYTES: Final = 65_536
_CONNECT_S: Final = 5.0
# As many users as a proof sends at once connect in the same moment.
_BACKLOG: Final = 128


class Kubelet:
    """`pod` returns a pod by its namespace and name. `certificate` is the API server's, with its key.

    One thread has all TLS connections, because OpenSSL does not allow two to use one at once. Each caller's bytes pass
    on through a pair of sockets to a separate thread.
    """

    def __init__(self, pod: Callable[[str, str], Pod | None], certificate: Path, key: Path) -> None:
        self.pod = pod
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.load_verify_locations(certificate)
        self._context.verify_mode = ssl.CERT_REQUIRED

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve_forever(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener, ssl=self._context, backlog=_BACKLOG)
        await server.serve_forever()

    async def _accept(self, caller: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        near, far = socket.socketpair()
        threading.Thread(target=self._handle, args=(near,), daemon=True).start()
        reply, request = await asyncio.open_connection(sock=far)
        await asyncio.gather(relay(caller, request), relay(reply, answer))

    def _handle(self, link: socket.socket) -> None:
        with link, suppress(OSError):  # a caller that goes away
            _Handler(link, link.getsockname(), self)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Kubelet  # type: ignore[assignment]  # not one of `socketserver`

    def do_GET(self) -> None:
        """Answer `/containerLogs/NAMESPACE/POD/CONTAINER`, `/exec/…` and `/portForward/…`."""
        url = urlsplit(self.path)
        what, namespace, name, *_ = [*url.path.strip("/").split("/"), "", ""]
        pod, query = self.server.pod(namespace, name), parse_qs(url.query)
        actions = {"containerLogs": self._logs, "exec": self._exec, "portForward": self._forward}
        if pod is None or what not in actions:
            self.send_error(404, "no such pod here" if what in actions else "not supported by the sandbox")
        elif pod.place is None:
            self.send_error(400, f"container {pod.container} in pod {name} is waiting to start: ContainerCreating")
        else:
            actions[what](pod, pod.place, query)

    do_POST = do_GET  # noqa: N815 -- the name that http.server looks for

    def log_message(self, *_words: object) -> None:
        """Write no access log."""

    def _logs(self, pod: Pod, _place: Place, query: dict[str, list[str]]) -> None:
        chosen = {name: values[0] for name, values in query.items()}
        log = pod.former_logs if chosen.get("previous") == "true" else pod.logs
        if log is None:
            self.send_error(400, f"previous terminated container {pod.container} not found")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in log.read(chosen):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _websocket(self) -> Connection | None:
        """Shake hands and return the connection; None if the caller asked for another protocol."""
        offered = [word.strip() for word in self.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        chosen = next((known for known in (_V5, _V4) if known in offered), None)
        if chosen is None:
            self.send_error(400, "the sandbox supports WebSockets with v4 or v5.channel.k8s.io only")
            return None
        handshake = ServerProtocol(select_subprotocol=lambda _protocol, _offered: chosen)  # type: ignore[arg-type,return-value]
        handshake.send_response(handshake.accept(Request(self.path, Headers(self.headers.items()))))
        for data in handshake.data_to_send():
            self.connection.sendall(data)
        self.close_connection = True
        return Connection(self.connection, Protocol(Side.SERVER))

    def _exec(self, _pod: Pod, place: Place, query: dict[str, list[str]]) -> None:
        link = self._websocket()
        if link is not None:
            execute(link, query["command"], place)
            link.close()

    def _forward(self, _pod: Pod, place: Place, query: dict[str, list[str]]) -> None:
        link = self._websocket()
        if link is not None:
            ports = [int(port) for text in query.get("ports", query.get("port", ())) for port in text.split(",")]
            forward(link, ports, place)
            link.close()


def execute(link: Connection, command: list[str], place: Place) -> None:
    """Run a command with the container's variables, as a process of this computer; report its exit code."""
    try:
        process = subprocess.Popen(  # noqa: S603 -- the cluster's owner asked for it
            command, cwd=place.folder, env=dict(place.environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as problem:
        _send(link, _STATUS, json.dumps(_failure(126, str(problem))).encode())
        return
    outputs = ((_STDOUT, process.stdout), (_STDERR, process.stderr))
    readers = [threading.Thread(target=_show, args=(link, number, pipe), daemon=True) for number, pipe in outputs]
    for reader in (*readers, threading.Thread(target=_feed, args=(link, process), daemon=True)):
        reader.start()
    code = process.wait()
    for reader in readers:
        reader.join()
    outcome = _failure(code, f"command terminated with non-zero exit code: {code}") if code else {"status": "Success"}
    _send(link, _STATUS, json.dumps({"metadata": {}, **outcome}).encode())


def _failure(code: int, message: str) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": {"causes": causes}}


def _send(link: Connection, channel: int, data: bytes) -> None:
    with suppress(ConnectionClosed):
        link.send(bytes((channel,)) + data)


def _show(link: Connection, channel: int, pipe: Any) -> None:  # noqa: ANN401 -- the pipe of a process
    while data := pipe.read1(_CHUNK_BYTES):
        _send(link, channel, data)


def _feed(link: Connection, process: subprocess.Popen[bytes]) -> None:
    """Pass input on. A caller that goes away ends the command."""
    with suppress(OSError):
        for message in link:
            if process.stdin and message[:1] == bytes((_STDIN,)):
                process.stdin.write(bytes(message[1:]))  # type: ignore[arg-type]
                process.stdin.flush()
            elif process.stdin and message[:2] == bytes((_CLOSE, _STDIN)):
                process.stdin.close()
        process.terminate()


def forward(link: Connection, ports: list[int], place: Place) -> None:
    """Pass bytes between the caller and ports of the pod: two channels for each, the second for errors."""
    sockets: dict[int, socket.socket] = {}
    for number, port in enumerate(ports):
        for channel in (2 * number, 2 * number + 1):
            _send(link, channel, port.to_bytes(2, "little"))
        try:
            sockets[2 * number] = socket.create_connection(place.endpoint(port), _CONNECT_S)
        except OSError as problem:
            _send(link, 2 * number + 1, f"error forwarding port {port} to pod: {problem}".encode())
            continue
        sockets[2 * number].settimeout(None)
        threading.Thread(target=_receive, args=(link, 2 * number, sockets[2 * number]), daemon=True).start()
    with suppress(OSError):
        for message in link:
            if message[0] in sockets and message[1:]:
                sockets[int(message[0])].sendall(bytes(message[1:]))  # type: ignore[arg-type]
    for open_socket in sockets.values():
        with suppress(OSError):
            open_socket.shutdown(socket.SHUT_RDWR)
        open_socket.close()


def _receive(link: Connection, channel: int, source: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            _send(link, channel, data)
    link.close()
