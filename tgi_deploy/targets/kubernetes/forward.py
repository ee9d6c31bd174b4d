"""Forwards ports of this computer to pods, through the API server.

Each connection is a WebSocket to the pod's `portforward`, which carries the bytes of one port on channel 0 and an error
on channel 1; the first message on each is the port's number: k8s.io/kubelet/pkg/cri/streaming/portforward.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.kubernetes.pods import serving
from tgi_deploy.targets.kubernetes.transport import CALLS
from tgi_deploy.targets.reply import ReplyError
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from websockets.sync.client import ClientConnection

    from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
    from tgi_deploy.targets.kubernetes.transport import Transport
    from tgi_deploy.values.serving import TunnelEnd

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = 0
_OPEN_S: Final = 10.0
_TRIES: Final = 3
_AGAIN_S: Final = 0.3
_PIECE: Final = 65536
_WAITING: Final = 512


class Forwards:
    """Ports stay open until the process ends. `cloud` and `transport` return those of a place."""

    def __init__(self, cloud: Callable[[str], KubernetesCloud], transport: Callable[[str], Transport]) -> None:
        self._cloud = cloud
        self._transport = transport
        self._lock = threading.Lock()
        self._ports: dict[TunnelEnd, int] = {}

    def local_port(self, end: TunnelEnd) -> int:
        """Return the port of this computer that leads there. While no pod runs, connections to it are reset."""
        with self._lock:
            if end not in self._ports:
                listening = socket.create_server(("127.0.0.1", 0), backlog=_WAITING)
                self._ports[end] = listening.getsockname()[1]
                threading.Thread(target=self._serve, args=(listening, end), name="forward", daemon=True).start()
            return self._ports[end]

    def _serve(self, listening: socket.socket, end: TunnelEnd) -> None:
        while True:
            near, _ = listening.accept()
            threading.Thread(target=self._carry, args=(near, end), name="forwarded", daemon=True).start()

    def _carry(self, near: socket.socket, end: TunnelEnd) -> None:
        with near:
            try:
                with self._open(end) as far:
                    _exchange(near, far)
            except (DeployError, ReplyError, OSError, WebSocketException, ValueError) as error:
                CALLS.info("forwarding to %s: %s", end.machine_id, one_line(str(error)))

    def _open(self, end: TunnelEnd) -> ClientConnection:
        """Connect to the container port of the newest ready pod. A failure is retried: nothing has been sent yet.

        Raises DeployError `no_pod` or of the API, OSError, WebSocketException.
        """
        for _ in range(_TRIES - 1):
            with suppress(DeployError, OSError, WebSocketException):
                return self._connected(end)
            time.sleep(_AGAIN_S)
        return self._connected(end)

    def _connected(self, end: TunnelEnd) -> ClientConnection:
        cloud, transport = self._cloud(end.place), self._transport(end.place)
        found = cloud.workload(end.machine_id)
        pod = serving(found[1]) if found else None
        if found is None or pod is None or not pod.has_run:
            why = f"{end.machine_id} has no running pod"
            raise DeployError("no_pod", why, hint="'tgi-deploy status NAME' shows why")
        container = found[0].part("spec").part("template").part("spec").first("containers")
        port = container.first("ports").integer("containerPort")
        return _connected(transport, f"{cloud.api.path('/api/v1', 'pods', pod.name)}/portforward?ports={port}")


def _connected(transport: Transport, path: str) -> ClientConnection:
    address = urlsplit(transport.server)
    secure = address.scheme == "https"
    return connect(
        address._replace(scheme="wss" if secure else "ws").geturl() + path,
        ssl=transport.tls if secure else None,
        server_hostname=transport.server_name or None if secure else None,
        additional_headers=transport.headers(),
        subprotocols=[_PROTOCOL],  # type: ignore[list-item]  # a NewType of str
        open_timeout=_OPEN_S,
        max_size=None,
        compression=None,
        proxy=None,
    )


def _exchange(near: socket.socket, far: ClientConnection) -> None:
    threading.Thread(target=_outward, args=(near, far), name="outward", daemon=True).start()
    try:
        _inward(far, near)
    finally:
        with suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)  # ends the other thread's wait


def _outward(near: socket.socket, far: ClientConnection) -> None:
    """Send what a program here writes. Its end ends the connection: the protocol can't close one direction."""
    with suppress(OSError, WebSocketException):
        while piece := near.recv(_PIECE):
            far.send(bytes([_DATA]) + piece)
    with suppress(OSError, WebSocketException):
        far.close()


def _inward(far: ClientConnection, near: socket.socket) -> None:
    """Pass on what the pod sends. Raises ValueError for an error on the other channel, which ends the connection."""
    announced: set[int] = set()
    for message in far:
        channel, data = message[0], message[1:]
        if not isinstance(channel, int) or not isinstance(data, bytes):
            return
        if channel not in announced:
            announced.add(channel)
        elif channel == _DATA:
            near.sendall(data)
        elif data:
            raise ValueError(bytes(data).decode("utf-8", "replace"))
