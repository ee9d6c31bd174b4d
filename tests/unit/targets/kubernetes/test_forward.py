"""A port of this computer that leads to a pod: the API server is one in memory, with a real WebSocket server."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from builders.certificates import issued
from fakes.kubernetes_api import FakeCluster
from websockets.asyncio.server import serve
from websockets.typing import Subprotocol

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.forward import Forwards
from tgi_deploy.targets.kubernetes.kubeconfig import Cluster
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.transport import Transport
from tgi_deploy.values.serving import TunnelEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Response

PLACE, MACHINE = "kubernetes:team-a@dev", "deployment/tgi-deploy-demo"
PROTOCOLS = [Subprotocol("v4.channel.k8s.io")]
LABELS = {"tgi-deploy/deployment": "demo", "tgi-deploy/id": "id1"}
SPEC = {"containers": [{"name": "engine", "ports": [{"containerPort": 80}]}]}
MANIFEST: dict[str, Any] = {
    "metadata": {"name": "tgi-deploy-demo", "labels": LABELS},
    "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": SPEC}},
}


@contextmanager
def pod_that_echoes(refusals: int = 0, tls: ssl.SSLContext | None = None, elsewhere: str = "") -> Iterator[str]:
    """Return the address of an API server that refuses so many connections to the pod before it opens one.

    With `elsewhere`, it redirects all of them.
    """
    left = [refusals]

    def refuse(connection: ServerConnection, _request: Any) -> Response | None:
        if elsewhere:
            redirect = connection.respond(HTTPStatus.FOUND, "")
            redirect.headers["Location"] = elsewhere.replace("http", "ws", 1)
            return redirect
        left[0] -= 1
        return connection.respond(HTTPStatus.INTERNAL_SERVER_ERROR, "error dialing backend") if left[0] >= 0 else None

    async def echo(link: ServerConnection) -> None:
        await link.send(b"\x00\x50\x00")
        await link.send(b"\x01\x50\x00")
        async for message in link:
            await link.send(message)

    async def run() -> None:
        ended = asyncio.Event()
        async with serve(echo, "127.0.0.1", 0, process_request=refuse, subprotocols=PROTOCOLS, ssl=tls) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            started.set_result((port, partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)))
            await ended.wait()

    started: Future[tuple[int, Callable[[], object]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    port, end = started.result()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}"
    finally:
        end()
        thread.join()


def answered(server: str, sent: bytes, unreachable: int = 0, tls: ssl.SSLContext | None = None) -> bytes:
    """Return what the pod replies, after so many requests to an API server that does not answer."""
    cluster = FakeCluster()
    api = Api(place=Place.of(PLACE), sender=cluster)
    api.apply(api.path("/apis/apps/v1", "deployments", "tgi-deploy-demo"), "creating", MANIFEST, lambda _reply: True)
    transport: Any = SimpleNamespace(server=server, headers=dict, tls=tls, server_name="")
    outages = iter(range(unreachable))

    def cloud(_place: str) -> KubernetesCloud:
        if next(outages, None) is not None:
            raise DeployError("cluster_unreachable", "listing pods: connection timed out")
        return KubernetesCloud(api=api)

    forwards = Forwards(cloud, lambda _place: transport)
    port = forwards.local_port(TunnelEnd(place=PLACE, machine_id=MACHINE, port=8080))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as near:
        near.sendall(sent)
        with suppress(ConnectionResetError):
            return near.recv(100)
    return b""


@pytest.mark.parametrize(("refusals", "reply"), [(0, b"hello"), (2, b"hello"), (3, b"")])
def test_a_connection_that_the_node_refuses_is_tried_again_before_anything_is_sent(refusals: int, reply: bytes):
    with pod_that_echoes(refusals) as server:
        assert answered(server, b"hello") == reply


@pytest.mark.parametrize(("outages", "reply"), [(2, b"hello"), (3, b"")])
def test_an_outage_of_the_api_server_is_waited_out_before_anything_is_sent(outages: int, reply: bytes):
    with pod_that_echoes() as server:
        assert answered(server, b"hello", unreachable=outages) == reply


def test_the_reason_why_a_connection_failed_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "tgi_deploy.calls")
    with pod_that_echoes(refusals=3) as server:
        answered(server, b"hello")
    assert "forwarding to deployment/tgi-deploy-demo: server rejected WebSocket connection: HTTP 500" in caplog.text


def test_a_redirect_is_not_followed():
    """A compromised node could answer with one, and have the caller's credentials used elsewhere: CVE-2020-8559."""
    with pod_that_echoes() as other, pod_that_echoes(elsewhere=other) as server:
        assert answered(server, b"hello") == b""


def test_one_thread_alone_uses_a_tls_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """OpenSSL's connections are not thread-safe: with a second thread, one in about 700 hung as it was opened."""
    own, users = issued(), set()

    def noted(kind: type, name: str) -> Callable[..., Any]:
        actual = getattr(kind, name)

        def call(self: Any, *words: Any) -> Any:
            if not self.server_side:
                users.add(threading.get_ident())
            return actual(self, *words)

        return call

    uses = {ssl.SSLObject: ("read", "write"), ssl.SSLSocket: ("recv", "sendall")}
    for kind, name in ((kind, name) for kind, names in uses.items() for name in names):
        monkeypatch.setattr(kind, name, noted(kind, name))
    (tmp_path / "server.pem").write_text(own.chain + own.key, encoding="ascii")
    offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    offered.load_cert_chain(tmp_path / "server.pem")
    with pod_that_echoes(tls=offered) as server:
        trusted = Transport(Cluster(server=server, ca=own.authority), {}).tls  # without key identifiers, as in old EKS
        assert answered(server, b"hello", tls=trusted) == b"hello"
    assert len(users) == 1
