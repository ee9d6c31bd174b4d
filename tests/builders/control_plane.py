"""The real Kubernetes control plane of the tests, with four simulated nodes of one L40S each.

Suites that need it import the fixtures in their conftest: `from builders.control_plane import namespace, plane`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from builders import waiting
from urllib3 import PoolManager
from websockets.asyncio.client import connect

from tgi_deploy.errors import InputError
from tgi_deploy.sandbox.kubernetes import CERTIFICATE, ENGINE, KUBECONFIG, access
from tgi_deploy.sandbox.kubernetes.plane import DEFAULT_NODES, start, stop
from tgi_deploy.targets.kubernetes.transport import encoded

PATIENCE_S = 240
APPLY = "application/apply-patch+yaml"
_SPEED = 600
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SCHEMAS = Path(__file__).parents[1] / "cases" / "kubernetes_schemas"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plane:
    """`home` is the cluster's folder, with `engine.json`: the speed and the faults of engines."""

    home: Path

    @property
    def kubeconfig(self):
        return self.home / KUBECONFIG

    @property
    def server(self):
        return access(self.home)[0]

    @property
    def headers(self):
        return {"Authorization": f"Bearer {access(self.home)[1]}"}

    def ask(self, method, path, body=None, content_type="application/json"):
        """Return the status and the body of a reply."""
        http = PoolManager(ca_certs=str(self.home / CERTIFICATE), headers=self.headers, retries=False)
        sent = None if body is None else encoded(body)
        reply = http.request(
            method, self.server + path, body=sent, headers={**self.headers, "Content-Type": content_type}
        )
        return reply.status, reply.data

    def call(self, method, path, body=None, content_type="application/json"):
        """Return the document of a successful reply."""
        status, data = self.ask(method, path, body, content_type)
        assert status < 300, data
        return json.loads(data)

    def messages(self, path, sent=b"", protocol="v4.channel.k8s.io"):
        """Return all messages of a subresource that speaks WebSocket, after sending it one."""
        tls = ssl.create_default_context(cafile=str(self.home / CERTIFICATE))
        address = urlsplit(self.server)._replace(scheme="wss").geturl() + path
        how = {"ssl": tls, "additional_headers": self.headers, "subprotocols": [protocol], "proxy": None}

        async def exchanged():
            async with connect(address, **how) as link:
                if sent:
                    await link.send(sent)
                return [message async for message in link]

        return asyncio.run(exchanged())

    def engines(self, **settings):
        """Change the speed and the faults of the engines that start from now on."""
        (self.home / ENGINE).write_text(json.dumps({"speed": _SPEED, **settings}), encoding="utf-8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Namespace:
    """A namespace of one test."""

    plane: Plane
    name: str

    def path(self, plural, name="", group="/api/v1"):
        return f"{group}/namespaces/{self.name}/{plural}{'/' + name if name else ''}"

    def deployments(self, name="", query=""):
        return self.path("deployments", name, "/apis/apps/v1") + query

    def apply(self, path, body):
        """Apply an object as the tests' own field manager."""
        return self.plane.call("PATCH", f"{path}?fieldManager=tests&fieldValidation=Strict", body, APPLY)

    def pods(self):
        return self.plane.call("GET", self.path("pods"))["items"]

    def ready(self):
        """Return the pods that are ready, and not ending."""
        return [pod for pod in self.pods() if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    def reasons(self):
        """Return the reason and the message of each event."""
        return {(item["reason"], item["message"]) for item in self.plane.call("GET", self.path("events"))["items"]}


@contextmanager
def defined(plane, *names):
    """Have the cluster serve custom resources by their projects' own definitions, without what acts on them."""
    documents = [yaml.safe_load((_SCHEMAS / f"{name}.yaml").read_text(encoding="utf-8")) for name in names]
    paths = []
    try:
        for document in documents:
            plane.call("POST", _DEFINITIONS, document)
            spec = document["spec"]
            served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
            paths.append((document["metadata"]["name"], f"{served}/{spec['names']['plural']}"))
        for _, path in paths:
            eventually(lambda path=path: plane.ask("GET", path)[0] == 200)
        yield
    finally:
        for name, path in paths:
            plane.call("DELETE", f"{_DEFINITIONS}/{name}")
            eventually(lambda path=path: plane.ask("GET", path)[0] == 404)


def is_ready(pod):
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def eventually(look):
    return waiting.eventually(look, within_s=PATIENCE_S, pause_s=0.3)


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    home = tmp_path_factory.mktemp("plane") / "cluster"
    try:
        start(home, DEFAULT_NODES)
    except InputError as missing:
        pytest.skip(f"{missing.message}: {missing.hint}")
    yield Plane(home=home)
    stop(home)


@pytest.fixture
def namespace(plane):
    plane.engines()
    made = Namespace(plane=plane, name=f"t-{secrets.token_hex(4)}")
    plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": made.name}})
    account = made.path("serviceaccounts", "default")
    eventually(lambda: plane.ask("GET", account)[0] == 200)
    yield made
    plane.call("DELETE", f"/api/v1/namespaces/{made.name}")
    eventually(lambda: not made.pods())
