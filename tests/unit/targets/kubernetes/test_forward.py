"""A port of this computer that leads to a pod: the API server is one in memory, with a real WebSocket server."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fakes.kubernetes_api import FakeCluster
from websockets.sync.server import serve

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.forward import Forwards
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.values.serving import TunnelEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE, MACHINE = "kubernetes:team-a@dev", "deployment/tgi-deploy-demo"
LABELS = {"tgi-deploy/deployment": "demo", "tgi-deploy/id": "id1"}
SPEC = {"containers": [{"name": "engine", "ports": [{"containerPort": 80}]}]}
MANIFEST: dict[str, Any] = {
    "metadata": {"name": "tgi-deploy-demo", "labels": LABELS},
    "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": SPEC}},
}


@contextmanager
def pod_that_echoes(refusals: int) -> Iterator[str]:
    """Return the address of an API server that refuses so many connections to the pod before it opens one."""
    left = [refusals]

    def refuse(connection: Any, _request: Any) -> Any:
        left[0] -= 1
        return connection.respond(HTTPStatus.INTERNAL_SERVER_ERROR, "error dialing backend") if left[0] >= 0 else None

    def echo(link: Any) -> None:
        link.send(b"\x00\x50\x00")
        link.send(b"\x01\x50\x00")
        for message in link:
            link.send(message)

    with serve(echo, "127.0.0.1", 0, process_request=refuse, subprotocols=["v4.channel.k8s.io"]) as server:  # type: ignore[list-item]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


def answered(server: str, sent: bytes, unreachable: int = 0) -> bytes:
    """Return what the pod replies, after so many requests to an API server that does not answer."""
    cluster = FakeCluster()
    api = Api(place=Place.of(PLACE), sender=cluster)
    api.apply(api.path("/apis/apps/v1", "deployments", "tgi-deploy-demo"), "creating", MANIFEST, lambda _reply: True)
    transport: Any = SimpleNamespace(server=server, headers=dict, tls=None, server_name="")
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
    with pod_that_echoes(refusals=0) as server:
        assert answered(server, b"hello", unreachable=outages) == reply


def test_the_reason_why_a_connection_failed_is_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "tgi_deploy.calls")
    with pod_that_echoes(refusals=3) as server:
        answered(server, b"hello")
    assert "forwarding to deployment/tgi-deploy-demo: server rejected WebSocket connection: HTTP 500" in caplog.text
