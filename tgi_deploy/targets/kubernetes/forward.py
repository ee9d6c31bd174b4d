"""Forwards ports of this computer to pods, through the API server.

Each connection is a WebSocket to the pod's `portforward`, which carries the bytes of one port on channel 0 and an error
on channel 1; the first message on each is the port's number: k8s.io/kubelet/pkg/cri/streaming/portforward.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tgi_deploy.errors import DeployError
from tgi_deploy.futures import in_thread
from tgi_deploy.targets.kubernetes.pods import serving
from tgi_deploy.targets.kubernetes.transport import CALLS
from tgi_deploy.targets.reply import ReplyError
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from websockets.asyncio.client import ClientConnection

    from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
    from tgi_deploy.targets.kubernetes.transport import Transport
    from tgi_deploy.values.serving import TunnelEnd

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = 0
_OPEN_S: Final = 10.0
_TRIES: Final = 3
_RETRY_S: Final = 0.3
_CHUNK_BYTES: Final = 65536
_BACKLOG: Final = 512


class Forwards:
    """Local ports, open until the process ends. `cloud` and `transport` return those of a location.

    One thread serves all connections: OpenSSL does not allow two threads to use a TLS connection at once, and a
    blocking WebSocket client reads in one thread and writes in another.
    """

    def __init__(self, cloud: Callable[[str], KubernetesCloud], transport: Callable[[str], Transport]) -> None:
        self._cloud = cloud
        self._transport = transport
        self._lock = threading.Lock()
        self._servers: dict[TunnelEnd, asyncio.Server] = {}

    def local_port(self, end: TunnelEnd) -> int:
        """Return the local port that is forwarded to this end. While no pod runs, its connections are closed."""
        with self._lock:
            if end not in self._servers:
                listening = asyncio.start_server(partial(self._carry, end), "127.0.0.1", 0, backlog=_BACKLOG)
                self._servers[end] = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
            return int(self._servers[end].sockets[0].getsockname()[1])

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="forward", daemon=True).start()
        return loop

    async def _carry(self, end: TunnelEnd, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with await self._open(end) as remote:
                await _exchange(reader, writer, remote)
        except (DeployError, ReplyError, OSError, WebSocketException, ValueError) as error:
            CALLS.info("forwarding to %s: %s", end.machine_id, one_line(str(error)))
        finally:
            writer.close()

    async def _open(self, end: TunnelEnd) -> ClientConnection:
        """Connect to the container port of the newest ready pod. A failure is retried: nothing has been sent yet.

        Raises DeployError `no_pod` or of the API, OSError, WebSocketException.
        """
        for _ in range(_TRIES - 1):
            with suppress(DeployError, OSError, WebSocketException):
                return await self._connected(end)
            await asyncio.sleep(_RETRY_S)
        return await self._connected(end)

    async def _connected(self, end: TunnelEnd) -> ClientConnection:
        return await (await asyncio.wrap_future(in_thread(partial(self._connection, end))))

    def _connection(self, end: TunnelEnd) -> connect:
        """Return a connection to the newest ready pod, to be opened by awaiting it. Asks the API server for the pod."""
        cloud, transport = self._cloud(end.place), self._transport(end.place)
        found = cloud.workload(end.machine_id)
        pod = serving(found[1]) if found else None
        if found is None or pod is None or not pod.has_run:
            why = f"{end.machine_id} has no running pod"
            raise DeployError("no_pod", why, hint="'tgi-deploy status NAME' shows why")
        container = found[0].part("spec").part("template").part("spec").first("containers")
        port = container.first("ports").integer("containerPort")
        return _connection(transport, f"{cloud.api.path('/api/v1', 'pods', pod.name)}/portforward?ports={port}")


class _DirectConnect(connect):
    """A connection that follows no redirects.

    With one, a compromised node could have the caller's credentials used on another pod or host: CVE-2020-8559.
    """

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def _connection(transport: Transport, path: str) -> connect:
    address = urlsplit(transport.server)
    secure = address.scheme == "https"
    return _DirectConnect(
        address._replace(scheme="wss" if secure else "ws").geturl() + path,
        additional_headers=transport.headers(),
        subprotocols=[_PROTOCOL],  # type: ignore[list-item]  # a NewType of str
        open_timeout=_OPEN_S,
        max_size=None,
        compression=None,
        proxy=None,
        ssl=transport.tls if secure else None,
        server_hostname=transport.server_name or None if secure else None,
    )


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remote: ClientConnection) -> None:
    outward = asyncio.create_task(_outward(reader, remote))
    try:
        await _inward(remote, writer)
    finally:
        outward.cancel()


async def _outward(reader: asyncio.StreamReader, remote: ClientConnection) -> None:
    """Send what a local program writes. When it stops, close: the protocol can't close one direction alone."""
    with suppress(OSError, WebSocketException):
        while chunk := await reader.read(_CHUNK_BYTES):
            await remote.send(bytes([_DATA]) + chunk)
    await remote.close()


async def _inward(remote: ClientConnection, writer: asyncio.StreamWriter) -> None:
    """Pass on what the pod sends. Raises ValueError for an error on the other channel, which ends the connection."""
    announced: set[int] = set()
    async for message in remote:
        channel, data = message[0], message[1:]
        if not isinstance(channel, int) or not isinstance(data, bytes):
            return
        if channel not in announced:
            announced.add(channel)
        elif channel == _DATA:
            writer.write(data)
            await writer.drain()
        elif data:
            raise ValueError(bytes(data).decode("utf-8", "replace"))
