"""No request is cut: streams of 100 s stay open over every change of what serves them.

Callers choose an endpoint of the Service for each connection, as a node's proxy does, and connect to the pod itself.
The API server's own proxy loses streams without any change: Go's reverse proxy aborts an answer that begins while it
still reads the end of the request's body (golang/go: net/http/httputil), so it proves nothing here.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from builders.control_plane import eventually
from builders.crowd import Crowd, streaming

from tgi_deploy.sandbox.addresses import can_bind

# The simulated nodes give their pods addresses of the network for benchmarks (RFC 2544), on the loopback interface.
pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.allow_hosts(["127.0.0.0/8", "::1", "198.18.0.0/15"]),
]
NAME = "llama3-13b"
SPEED = 20
STREAMS = 4
LEAST_S = 100
# One text that a grammar forces, which takes the engine a little more than 100 s.
ANSWER = " ".join(["word"] * 3000)
BODY = {
    "inputs": "on",
    "parameters": {"grammar": {"type": "json", "value": {"properties": {"text": {"const": ANSWER}}}}},
}
UP = ("up", NAME, "--target", "kubernetes", "--yes")


@dataclass
class Callers(Crowd):
    """`lasted_s`: how long each stream took, in the engine's time."""

    namespace: Any = None
    lasted_s: list[float] = field(default_factory=list)

    @property
    def netloc(self):
        path = self.namespace.path("endpointslices", group="/apis/discovery.k8s.io/v1")
        found = self.namespace.plane.call("GET", path)["items"]
        ready = [
            f"{one['addresses'][0]}:{item['ports'][0]['port']}"
            for item in found
            for one in item["endpoints"] or ()
            if one["conditions"]["ready"]
        ]
        return random.choice(ready) if ready else "127.0.0.1:9"  # noqa: S311 -- as a node's proxy does

    def _read_stream(self, begun):
        since = time.monotonic()
        super()._read_stream(begun)
        self.lasted_s.append((time.monotonic() - since) * SPEED)


def changed(run, *words):
    code, document = run(*words)
    assert code == 0, document["errors"]
    return document


def limited_to(namespace, gpus):
    """Give the namespace a quota of so many GPUs."""
    path, hard = namespace.path("resourcequotas", "team"), {"requests.nvidia.com/gpu": str(gpus)}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard}}
    namespace.apply(path, quota)
    eventually(lambda: namespace.plane.call("GET", path).get("status", {}).get("hard") == hard)


def test_streams_of_100_s_outlive_an_update_a_rollback_a_restart_and_a_smaller_number(namespace, run):
    namespace.plane.engines(speed=SPEED)
    changed(run, *UP)
    (pod,) = namespace.ready()
    if not can_bind(pod["status"]["podIP"], 0):
        pytest.skip("pods have addresses on this computer only for root")
    crowd = Callers(
        url="", path="/generate_stream", body=BODY, last=b'"details":null}\n\n', renewed=True, namespace=namespace
    )
    with streaming(crowd, STREAMS, apart_s=0.3):
        changed(run, *UP, "--engine-version", "3.3.6")
        changed(run, "rollback", NAME, "--yes")
        changed(run, "scale", NAME, "2")
        changed(run, "restart", NAME, "--yes")
        changed(run, "scale", NAME, "1")
        eventually(lambda: len(namespace.pods()) == 1)
    assert (crowd.cut, crowd.refused) == ([], []), sorted(crowd.lasted_s)
    assert crowd.whole > 2 * STREAMS
    assert min(crowd.lasted_s) > LEAST_S
    changed(run, "down", NAME, "--yes")


@contextmanager
def counted(look):
    """Yield a list to which the number of what `look` returns is added five times a second."""
    found, stop = [], threading.Event()

    def count():
        while not stop.wait(0.2):
            found.append(len(look()))

    counting = threading.Thread(target=count, daemon=True)
    counting.start()
    try:
        yield found
    finally:
        stop.set()
        counting.join()


def test_streams_outlive_an_update_in_steps_and_never_fewer_pods_are_ready(namespace, run):
    namespace.plane.engines(speed=SPEED)
    limited_to(namespace, 3)  # GPUs: one pod more than the two that serve
    two = (*UP, "--replicas", "2")
    changed(run, *two)
    if not can_bind(namespace.ready()[0]["status"]["podIP"], 0):
        pytest.skip("pods have addresses on this computer only for root")
    crowd = Callers(
        url="", path="/generate_stream", body=BODY, last=b'"details":null}\n\n', renewed=True, namespace=namespace
    )
    with counted(namespace.ready) as ready, streaming(crowd, STREAMS, apart_s=0.3):
        updated = changed(run, *two, "--engine-version", "3.3.6")
    assert updated["data"]["update"]["at_a_time"] == 1
    assert (crowd.cut, crowd.refused) == ([], []), sorted(crowd.lasted_s)
    assert min(crowd.lasted_s) > LEAST_S
    assert min(ready) == 2
    assert {pod["spec"]["containers"][0]["image"].partition("@")[0][-5:] for pod in namespace.ready()} == {"3.3.6"}
    changed(run, "down", NAME, "--yes")
