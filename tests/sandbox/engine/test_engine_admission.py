"""Concurrency limits, with the server in the test process so that a slot can be held."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from io import StringIO

import pytest
from builders.waiting import eventually

from tgi_deploy.sandbox.engine.bodies import ApiError, parameters
from tgi_deploy.sandbox.engine.generator import Query
from tgi_deploy.sandbox.engine.inference import Inference
from tgi_deploy.sandbox.engine.launcher import Launcher, image_environment, prepare
from tgi_deploy.sandbox.engine.server import EngineServer
from tgi_deploy.sandbox.engine.situation import Container, Host, Pace

JSON = {"Content-Type": "application/json"}
REAL_TIME = 1
HELD = Query(route="generate", inputs="x", parameters=parameters())


@pytest.fixture
def server(catalog):
    """A server with one slot and 4 ms per token."""
    release, card = catalog.release("3.3.7"), catalog.accelerator("L40S")
    container = Container(
        release=release,
        host=Host(accelerator=card, gpus=1, memory_bytes=card.memory_bytes),
        environ=image_environment(release),
        faults=frozenset(),
        models=catalog,
        listen=("127.0.0.1", 0),
        pace=Pace(speed=1e9),
        out=StringIO(),
        err=StringIO(),
    )
    line = "--model-id HuggingFaceTB/SmolLM2-135M-Instruct --num-shard 1 --max-concurrent-requests 1"
    situation = prepare(container, line.split())
    Launcher(situation).start()
    situation.pace = Pace(speed=REAL_TIME)
    server = EngineServer(("127.0.0.1", 0), Inference(situation))
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    loop.start()
    yield server
    server.shutdown()
    server.server_close()
    loop.join()


@contextlib.contextmanager
def request(server, path, body):
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    connection.request("POST", path, json.dumps(body), JSON)
    reply = connection.getresponse()
    try:
        yield reply
    finally:
        reply.close()
        connection.close()


def test_beyond_the_concurrency_limit_it_is_overloaded(server):
    body = {"inputs": "x", "parameters": {"max_new_tokens": 1}}
    with server.inference.admitted(HELD), request(server, "/generate", body) as reply:
        assert reply.status == 429
        assert json.loads(reply.read()) == {"error": "Model is overloaded", "error_type": "overloaded"}
    with request(server, "/generate", body) as reply:
        assert reply.status == 200


def test_requests_that_join_a_batch_are_counted(server):
    inference = server.inference
    with inference.admitted(HELD):
        assert "tgi_batch_concat" not in inference.metrics.render()
        with pytest.raises(ApiError), inference.admitted(HELD):
            pass
        assert "tgi_batch_concat" not in inference.metrics.render()
    inference._slots = threading.BoundedSemaphore(2)
    with inference.admitted(HELD), inference.admitted(HELD):
        assert 'tgi_batch_concat{reason="backpressure"} 1' in inference.metrics.render()


def test_a_disconnected_client_frees_its_slot(server):
    # A forced text of thousands of tokens, which would take many seconds at this speed.
    endless = {"type": "object", "properties": {"said": {"const": "on and on " * 1000}}}
    grammar = {"type": "json", "value": endless}
    body = {"inputs": "x", "parameters": {"grammar": grammar, "max_new_tokens": 1000}}
    with request(server, "/generate_stream", body) as reply:
        assert reply.readline().startswith(b"data: ")
    eventually(lambda: server.drain(timeout_s=0), pause_s=0.01)
    counted = server.inference.metrics.render()
    assert "tgi_batch_current_size 0" in counted
    assert "tgi_request_success" not in counted


def test_with_a_dead_shard_health_fails(server):
    server.inference.dead.set()
    connection = http.client.HTTPConnection(*server.server_address, timeout=60)
    connection.request("GET", "/health")
    reply = connection.getresponse()
    assert (reply.status, json.loads(reply.read())) == (503, {"error": "unhealthy", "error_type": "healthcheck"})
    connection.close()
    with request(server, "/generate_stream", {"inputs": "x"}) as stream:
        event = json.loads(stream.read().removeprefix(b"data: "))
    failed = "Request failed during generation: Server error: transport error"
    assert event == {"error": failed, "error_type": "generation"}
