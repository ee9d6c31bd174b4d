"""Every reply of a Docker host that the adapters read: cut, empty, a page of something else, any member changed.

They come over loopback, through docker's own client. What comes of one is a result or an error in words.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path

import pytest
from builders.samples import some
from fakes.computer import FakeClock, Recorder
from fakes.docker_host import packed
from fakes.wire import INTERCEPTED, SPOILED, Spoiled, variants

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.cloud import DockerCloud
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.proxy import Proxies
from tgi_deploy.targets.docker.pull import pull

TABLE = ErrorTable.of(json.loads(Path(profiles_dir(), "docker/errors.json").read_text(encoding="utf-8")))
ID = "a" * 64
TAGS = {"tgi-deploy:id": "abc", "tgi-deploy:key": "container", "tgi-deploy:spec": "s1", "tgi-deploy:version": "0"}
CONTAINER = {
    "Id": ID,
    "Name": "/tgi-deploy-demo",
    "Created": "2026-01-09T00:00:00.123456789Z",
    "RestartCount": 1,
    "State": {
        "Status": "exited",
        "FinishedAt": "2026-01-09T00:00:05.5Z",
        "ExitCode": 1,
        "OOMKilled": False,
        "Error": "",
    },
    "Config": {"Image": "i", "Labels": TAGS, "Env": ["API_KEY=planted"], "Tty": False},
    "HostConfig": {
        "PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]},
        "LogConfig": {"Type": "json-file"},
    },
}
NETWORK = {"Id": ID, "Name": "tgi-deploy-demo", "Created": "2026-01-09T00:00:00Z", "Labels": TAGS}
LINE = b"2026-01-09T00:00:01.000000000Z hello\n"
MESSAGES = (
    {"status": "Downloading", "id": "a", "progressDetail": {"current": 10, "total": 100}},
    {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 100}},
)
# The engine's replies by method and path.
REPLIES = {
    "GET /version": {"ApiVersion": "1.43", "Version": "28.0.0"},
    "GET /containers/json": [{"Id": ID}],
    f"GET /containers/{ID}/json": CONTAINER,
    "GET /containers/tgi-deploy-demo/json": CONTAINER,
    "POST /containers/create": {"Id": ID, "Warnings": []},
    f"POST /containers/{ID}/start": None,
    f"POST /containers/{ID}/stop": None,
    f"POST /containers/{ID}/kill": None,
    f"GET /containers/{ID}/top": {"Titles": ["CMD"], "Processes": [["haproxy"], ["haproxy"]]},
    f"GET /containers/{ID}/archive": packed("front.cfg", b"server aaaaaaaaaaaa x:80"),
    f"PUT /containers/{ID}/archive": None,
    "GET /networks": [NETWORK],
    f"GET /networks/{ID}": NETWORK,
    "POST /networks/create": {"Id": ID},
    f"DELETE /networks/{ID}": None,
    f"DELETE /containers/{ID}": None,
    f"GET /containers/{ID}/logs": b"\x01\0\0\0" + len(LINE).to_bytes(4, "big") + LINE,
    "GET /events": {"timeNano": 1767916805 * 10**9, "Actor": {"Attributes": {"exitCode": "1"}}},
    "POST /volumes/create": {"Name": "cache", "CreatedAt": "2026-01-09T00:00:00Z"},
    "GET /volumes/cache": {"Name": "cache", "CreatedAt": "2026-01-09T00:00:00Z"},
    "DELETE /volumes/cache": None,
    "GET /system/df": {"Volumes": [{"Name": "cache", "UsageData": {"Size": 16, "RefCount": 1}}]},
    "GET /images/old/json": {"Id": "sha256:1"},
    "GET /images/new/json": Spoiled(404, b'{"message": "No such image: new"}', {"Content-Type": "application/json"}),
    "POST /images/create": b"\r\n".join(json.dumps(item).encode() for item in MESSAGES),
}
STREAMS = (f"GET /containers/{ID}/logs", f"GET /containers/{ID}/archive", "GET /events", "POST /images/create")
CREATING = {
    "create container": "POST /containers/create",
    "create network": "POST /networks/create",
    "create volume": "POST /volumes/create",
}
# A redirect would lead out of this computer.
KINDS = ("cut", "empty", "of another protocol", *(kind for kind in INTERCEPTED if "redirect" not in kind))
PROPERTIES = {
    "name": "tgi-deploy-demo",
    "image": "i",
    "args": [],
    "env": {},
    "secret_env": {},
    "container_port": 80,
    "port": 8080,
    "bind": "127.0.0.1",
    "stop_timeout_s": 30,
    "health": {"command": ["true"], "every_s": 1, "tries": 3, "patience_s": 10},
    "log": {"driver": "json-file", "options": {}},
    "volumes": {},
    "model": {},
    "shm_size": "1g",
    "devices": [],
    "restarts": 1,
}
STEPS = {
    "find containers": lambda cloud: cloud.find({"tgi-deploy:id": "abc"}),
    "read container": lambda cloud: cloud.handler("container").read({"id": ID}),
    "create container": lambda cloud: cloud.handler("container").create(PROPERTIES, tags=TAGS, token="t"),
    "update container": lambda cloud: cloud.handler("container").update({"id": ID}, PROPERTIES),
    "delete container": lambda cloud: cloud.handler("container").delete({"id": ID}),
    "look at the machine": lambda cloud: cloud.machine(ID),
    "look at the console": lambda cloud: cloud.console(ID),
    "create network": lambda cloud: cloud.handler("network").create({"name": "demo"}, tags=TAGS, token="t"),
    "read network": lambda cloud: cloud.handler("network").read({"id": ID}),
    "delete network": lambda cloud: cloud.handler("network").delete({"id": ID}),
    "write where requests go": lambda cloud: Proxies(cloud.api).configure(ID, "aaaaaaaaaaaa"),
    "read where requests go": lambda cloud: Proxies(cloud.api).serves(ID, "aaaaaaaaaaaa"),
    "read the certificate": lambda cloud: Proxies(cloud.api).reported_certificate(ID),
    "reload": lambda cloud: Proxies(cloud.api).reload(ID),
    "count workers": lambda cloud: Proxies(cloud.api).workers(ID),
    "create volume": lambda cloud: cloud.handler("volume").create({"name": "cache"}, tags=TAGS, token="t"),
    "read volume": lambda cloud: cloud.handler("volume").read({"id": "cache"}),
    "delete volume": lambda cloud: cloud.handler("volume").delete({"id": "cache"}),
    "measure volume": lambda cloud: cloud.handler("volume").size_bytes("cache"),
    "find the image": lambda cloud: pull(cloud.api, "old", listener=Recorder(), clock=FakeClock()),
    "pull the image": lambda cloud: pull(cloud.api, "new", listener=Recorder(), clock=FakeClock()),
}


class Engine:
    """A Docker host on loopback that answers from `REPLIES`, but for those in `changed`; `asked` are the requests."""

    def __init__(self):
        self.changed, self.asked = {}, []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                path = self.path.partition("?")[0]
                asked = f"{self.command} {path.removeprefix('/v1.43')}"
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                engine.asked.append(asked)
                reply = engine.changed.get(asked) or of_engine(REPLIES[asked])
                self.send_response(reply.status)
                streamed = asked in STREAMS and reply.body
                length = {"Transfer-Encoding": "chunked"} if streamed else {"Content-Length": str(len(reply.body))}
                for name, value in {**reply.headers, **length, "Connection": "close"}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(reply.body), reply.body) if streamed else reply.body)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 -- the server's own names

            def log_message(self, *_words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def cloud(self):
        url = f"tcp://127.0.0.1:{self.server.server_port}"
        return DockerCloud(api=Api(endpoint=Endpoint(url=url), table=TABLE, environ={}))

    def do(self, step, **changed):
        """The result of a step with these replies changed, or the error that it raises."""
        self.changed, self.asked = changed, []
        try:
            return STEPS[step](self.cloud())
        except DeployError as error:
            return error


def of_engine(content):
    if isinstance(content, Spoiled):
        return content
    if content is None:
        return Spoiled(204, b"", {})
    if isinstance(content, bytes):
        return Spoiled(200, content, {"Content-Type": "application/octet-stream"})
    return Spoiled(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def engine():
    made = Engine()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize("step", STEPS)
def test_docker_replies_are_parsed(engine, step):
    assert not isinstance(engine.do(step), DeployError)


@pytest.mark.slow
@pytest.mark.parametrize("step", some([*STEPS], 3))
def test_a_reply_with_any_changed_member_is_read_or_rejected_clearly(engine, step):
    engine.do(step)
    tried = 0
    for asked in dict.fromkeys(engine.asked):
        reply = of_engine(REPLIES[asked])
        for what, body in variants(reply.body) if isinstance(REPLIES[asked], (dict, list)) else ():
            tried += 1
            outcome = engine.do(step, **{asked: Spoiled(reply.status, body, reply.headers)})
            if isinstance(outcome, DeployError):
                assert outcome.code in {"docker_unreachable", "lost_reply", "name_taken"}, (asked, what, outcome)
    assert tried


@pytest.mark.parametrize(("step", "kind"), some([*product(STEPS, KINDS)], 12))
def test_an_unrelated_reply_is_a_clear_error(engine, step, kind):
    engine.do(step)
    for asked in dict.fromkeys(engine.asked):
        reply = of_engine(REPLIES[asked])
        if kind in SPOILED and not isinstance(REPLIES[asked], (dict, list)):
            continue
        spoiled = INTERCEPTED.get(kind) or Spoiled(reply.status, SPOILED[kind][1](reply.body), reply.headers)
        outcome = engine.do(step, **{asked: spoiled})
        if asked in STREAMS or REPLIES[asked] is None:
            assert not isinstance(outcome, DeployError) or outcome.code == "docker_unreachable", (asked, outcome)
        elif asked == CREATING.get(step):
            assert isinstance(outcome, LostReplyError), (asked, outcome)
        else:
            assert isinstance(outcome, DeployError), (asked, outcome)
            assert outcome.code == "docker_unreachable", (asked, outcome)
