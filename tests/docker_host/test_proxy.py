"""The proxy on the real engine, before two servers that only stream: what callers see of its reloads."""

from __future__ import annotations

import json
import os
import socket
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from builders.crowd import crowd_at
from builders.records import deployment
from builders.waiting import eventually

from tgi_deploy.clock import SystemClock
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.cloud import DockerCloud
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.front import ProxyFront
from tgi_deploy.targets.docker.launch import proxy_image
from tgi_deploy.targets.docker.proxy import Proxies
from tgi_deploy.values.deployment import ResourceRecord

pytestmark = [pytest.mark.docker_engine, pytest.mark.xdist_group("docker_host")]
TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))
STREAMS = 100
# Sixty events in six seconds; says its own name.
SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1")
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in [b"data: on\\n\\n"] * 60 + [b"data: last\\n\\n"]:
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(event), event))
            time.sleep(0.1)
        self.wfile.write(b"0\\r\\n\\r\\n")
    def log_message(self, *words):
        pass
class Server(ThreadingHTTPServer):
    request_queue_size = 256
Server(("0.0.0.0", 80), Handler).serve_forever()
"""


class Host:
    """A network, a proxy on it that nobody is behind, and servers that are started."""

    def __init__(self, engine, name):
        self.engine, self.name = engine, name
        self.api = Api(endpoint=Endpoint(url=engine.host), table=TABLE, environ={})
        self.cloud = DockerCloud(api=self.api)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.network = self.make("network", {"name": name})
        wanted = {"name": name, "image": proxy_image(), "network": self.network.id, "bind": "127.0.0.1",
                  "port": self.port, "engine_port": 80}  # fmt: skip
        self.proxy = self.make("proxy", wanted)
        self.cloud.handler("proxy").update(self.proxy.attributes, wanted)
        self.front = ProxyFront(api=self.api, clock=SystemClock())
        self.record = deployment(resources=(record("proxy", self.proxy.id),))

    def make(self, key, properties):
        return self.cloud.handler(key).create(properties, tags=self.tags(key), token="")

    def tags(self, key):
        tags = {"deployment": self.name, "id": self.name, "key": key, "spec": "s", "version": "0"}
        return {f"tgi-deploy:{tag}": text for tag, text in tags.items()}

    def server(self, result):
        number = ord(result) - ord("A") + 1
        labels = (f"--label={tag}={text}" for tag, text in self.tags(f"container@{number}.1").items())
        made = self.engine.docker(
            "run", "--detach", "--name", f"{self.name}.{number}", "--network", self.name, *labels,
            "--entrypoint", "python3", self.engine.image, "-c", SERVER, result,
        )  # fmt: skip
        eventually(lambda: self.get(f"/machines/{made[:12]}/health") == (200, result))
        return record(f"container@{number}.1", made[:12])

    def get(self, path="/"):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode() if reply.status == 200 else ""
        except OSError:
            return 0, ""
        finally:
            connection.close()


def record(key, thing_id):
    kind = key.partition("@")[0]
    return ResourceRecord(
        key=key, kind=kind, place="docker", state="created", spec="s", request_number=1, attributes={"id": thing_id}
    )


@pytest.fixture
def host(docker_engine):
    name = f"t-front-{os.getpid()}-{time.monotonic_ns() % 10**8}"
    made = Host(docker_engine, name)
    yield made
    for found in reversed(made.cloud.find({"tgi-deploy:id": name})):
        docker_engine.attempt(*(("network", "rm") if found.kind == "network" else ("rm", "--force")), found.id)
    assert made.cloud.find({"tgi-deploy:id": name}) == ()
    made.api.client.close()


def test_a_hundred_streams_survive_a_switch_and_no_request_is_refused(host):
    first, second = host.server("A"), host.server("B")
    assert host.front.shift(host.record, first) == "127.0.0.1"
    with crowd_at(host.url, "/generate", {}, last=b"data: last", streams=STREAMS) as crowd:
        host.front.shift(host.record, second)
        assert host.get() == (200, "B")
        assert Proxies(host.api).workers(host.proxy.id) > 1
        list(host.front.drain(host.record, first, 60))
        assert crowd.whole + len(crowd.cut) == STREAMS
    assert (crowd.whole, crowd.cut, crowd.refused) == (STREAMS, [], [])
    assert crowd.asked > 20


def test_no_request_is_sent_before_the_first_switch_or_while_draining(host):
    first = host.server("A")
    assert host.get() == (503, "")
    host.front.shift(host.record, first)
    assert host.get() == (200, "A")
    with crowd_at(host.url, "/generate", {}, last=b"data: last", streams=5) as crowd:
        list(host.front.drain(host.record, first, 60))
        assert crowd.whole == 5
    assert host.get() == (503, "")


def test_a_restarted_proxy_keeps_its_backend(host):
    host.server("A")
    host.front.shift(host.record, host.server("B"))
    host.engine.docker("restart", host.proxy.id)
    eventually(lambda: host.get() == (200, "B"))


def test_a_restarted_container_is_found_at_its_new_address(host):
    machine = host.server("A")
    host.front.shift(host.record, machine)
    host.engine.docker("stop", "--time", "0", machine.attributes["id"])
    host.server("B")
    host.engine.docker("start", machine.attributes["id"])
    eventually(lambda: host.get() == (200, "A"))


def test_proxy_resources_are_found_and_removed_in_order(host):
    server = host.server("A")
    found = host.cloud.find({"tgi-deploy:id": host.name})
    assert [(item.kind, item.is_machine) for item in found] == [
        ("network", False), ("proxy", False), ("container", True)
    ]  # fmt: skip
    assert host.cloud.machine(server.attributes["id"]).address == f"127.0.0.1/machines/{server.attributes['id']}"
    assert found[-1].attributes["address"] == "127.0.0.1"
    assert host.make("network", {"name": host.name}).id == host.network.id
