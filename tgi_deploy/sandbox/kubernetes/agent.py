"""`python -m tgi_deploy.sandbox.kubernetes.agent FOLDER`: the kubelet of every node, until the API server is gone.

It registers the nodes of `nodes.json`, and serves any other that is registered with its port.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from tgi_deploy.sandbox.guest.spawn import Spawner
from tgi_deploy.sandbox.kubernetes import CERTIFICATE, ENGINE, GROUPS, KEY, NODES, access
from tgi_deploy.sandbox.kubernetes.kubelet import Kubelet
from tgi_deploy.sandbox.kubernetes.nodes import INSTANCE_TYPE, LEASES, lease, node, now, ready
from tgi_deploy.sandbox.kubernetes.pods import ConfigError, Pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NODES_PATH: Final = "/api/v1/nodes"
_PODS_PATH: Final = "/api/v1/pods"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/strategic-merge-patch+json"
_HEARTBEAT_S: Final = 5.0
_RETRY_S: Final = 0.5
_WATCH_S: Final = 300
_LAST_ADDRESS: Final = 254


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class Cluster:
    """The API server, as the agent uses it."""

    def __init__(self, folder: Path, ending: threading.Event) -> None:
        self._server, token = access(folder)
        headers = {"Authorization": f"Bearer {token}"}
        self._http = PoolManager(headers=headers, ca_certs=str(folder / CERTIFICATE), maxsize=20, retries=False)
        self._ending = ending

    def call(self, method: str, path: str, body: object = None, content: str = "application/json") -> Any:  # noqa: ANN401 -- JSON
        """Raises ApiError, or HTTPError while the server does not answer."""
        headers = {**self._http.headers, "Content-Type": content}
        reply = self._http.request(method, self._server + path, json=body, headers=headers, timeout=30.0)
        document = json.loads(reply.data)
        if reply.status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(reply.status, str(document.get("message")))
        return document

    def watch(self, path: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield changes from a version on, until the server ends it."""
        url = f"{self._server}{path}?watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_S}"
        with self._http.request("GET", url, preload_content=False, timeout=2.0 * _WATCH_S) as reply:
            rest = b""
            for piece in reply.stream(None):
                *lines, rest = (rest + piece).split(b"\n")
                for event in map(json.loads, lines):
                    if event["type"] == "ERROR":
                        return
                    yield event["type"], event["object"]

    def report(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._insist("PATCH", f"{_path(pod)}/status", body, _MERGE)

    def event(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        about = pod["metadata"]
        involved = {"apiVersion": "v1", "kind": "Pod", **{key: about[key] for key in ("name", "namespace", "uid")}}
        body = {
            "metadata": {"generateName": f"{about['name']}."},
            "involvedObject": involved,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "source": {"component": "kubelet"},
        }
        self._insist("POST", f"/api/v1/namespaces/{about['namespace']}/events", body)

    def removed(self, pod: Mapping[str, Any]) -> None:
        self._insist("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})

    def value(self, namespace: str, kind: str, name: str, key: str) -> str:
        try:
            data = self.call("GET", f"/api/v1/namespaces/{namespace}/{kind}s/{name}").get("data", {})
        except ApiError as problem:
            raise ConfigError(f'{kind} "{name}" not found') from problem
        if key not in data:
            raise ConfigError(f"couldn't find key {key} in {kind} {namespace}/{name}")
        return base64.b64decode(data[key]).decode() if kind == "secret" else str(data[key])

    def token(self, pod: Mapping[str, Any], seconds: int) -> str:
        about, account = pod["metadata"], pod["spec"]["serviceAccountName"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
        spec = {"expirationSeconds": seconds, "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{about['namespace']}/serviceaccounts/{account}/token"
        try:
            return str(self.call("POST", path, {"spec": spec})["status"]["token"])
        except ApiError as problem:
            raise ConfigError(f"no token for the service account {account}: {problem}") from problem

    @property
    def address(self) -> tuple[str, str]:
        found = urlsplit(self._server)
        return str(found.hostname), str(found.port)

    def beat(self, name: str) -> None:
        """Renew a node's lease and its status."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases/{name}?fieldManager=kubelet"
        self.call("PATCH", path, lease(name), _APPLY)
        self.call("PATCH", f"{_NODES_PATH}/{name}/status", {"status": ready()}, _MERGE)

    def _insist(self, method: str, path: str, body: object, content: str = "application/json") -> None:
        """Repeat a call until the server has decided: also that the object is gone, or is another now."""
        while not self._ending.is_set():
            try:
                self.call(method, path, body, content)
            except ApiError as problem:
                if problem.status < HTTPStatus.TOO_MANY_REQUESTS:
                    return
            except HTTPError:
                pass
            else:
                return
            self._ending.wait(_RETRY_S)


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


_FAILED: Final = (ApiError, HTTPError, OSError)


class Agent:
    def __init__(self, folder: Path, network: str) -> None:
        """`network`: the first three parts of the pods' addresses."""
        self.ending = threading.Event()
        self._folder = folder
        self._network = network
        self._cluster = Cluster(folder, self.ending)
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LANG": "C.UTF-8"}
        self._spawner = Spawner(groups=folder / GROUPS, environment=environment, home=folder)
        self._pods: dict[str, Pod] = {}
        self._types: dict[str, str] = {}
        self._count = 0
        self._kubelet = Kubelet(self._named, folder / CERTIFICATE, folder / KEY)

    def run(self) -> None:
        """Register the nodes, and run their pods until `ending` is set."""
        threading.Thread(target=self._kubelet.serve_forever, daemon=True).start()
        version = self._cluster.call("GET", "/version")["gitVersion"]
        for item in json.loads((self._folder / NODES).read_text(encoding="utf-8")):
            self._cluster.call("POST", _NODES_PATH, node(**item, port=self._kubelet.port, version=version))
        threading.Thread(target=self._beat, daemon=True).start()
        threading.Thread(target=self._follow, daemon=True).start()
        self.ending.wait()
        for pod in tuple(self._pods.values()):
            pod.drop()
        self._spawner.end_all(grace_s=1.0)

    def _named(self, namespace: str, name: str) -> Pod | None:
        wanted = {"namespace": namespace, "name": name}
        return next((pod for pod in self._pods.values() if wanted.items() <= pod.pod["metadata"].items()), None)

    def _beat(self) -> None:
        while not self.ending.is_set():
            with suppress(*_FAILED):
                found = self._cluster.call("GET", _NODES_PATH)["items"]
                self._types = {item["metadata"]["name"]: item["metadata"]["labels"][INSTANCE_TYPE] for item in found}
                for name in self._types:
                    self._cluster.beat(name)
            self.ending.wait(_HEARTBEAT_S)

    def _follow(self) -> None:
        """List all pods, then watch them; again after any interruption."""
        while not self.ending.is_set():
            try:
                listed = self._cluster.call("GET", _PODS_PATH)
                self._sync(listed["items"])
                for kind, item in self._cluster.watch(_PODS_PATH, listed["metadata"]["resourceVersion"]):
                    self._changed(kind, item)
            except _FAILED as problem:
                sys.stderr.write(f"{now()} {problem}\n")
                self.ending.wait(_RETRY_S)

    def _sync(self, items: list[dict[str, Any]]) -> None:
        there = {item["metadata"]["uid"] for item in items}
        for uid in self._pods.keys() - there:
            self._pods.pop(uid).drop()
        for item in items:
            self._changed("MODIFIED", item)

    def _changed(self, kind: str, item: dict[str, Any]) -> None:
        about = item["metadata"]
        if kind == "DELETED":
            if about["uid"] in self._pods:
                self._pods.pop(about["uid"]).drop()
        elif "nodeName" in item["spec"] and item.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            if about["uid"] not in self._pods:
                self._run(item)
            if "deletionTimestamp" in about:
                self._pods[about["uid"]].terminate(about.get("deletionGracePeriodSeconds", 0))

    def _run(self, item: dict[str, Any]) -> None:
        name = item["spec"]["nodeName"]
        if name not in self._types:
            found = self._cluster.call("GET", f"{_NODES_PATH}/{name}")
            self._types[name] = found["metadata"]["labels"][INSTANCE_TYPE]
        pod = Pod(item, self._types[name], self._address(), self._cluster, self._spawner)
        self._pods[item["metadata"]["uid"]] = pod
        threading.Thread(target=pod.run, args=(self._folder / ENGINE,), daemon=True).start()

    def _address(self) -> str:
        used = {pod.address for pod in self._pods.values()}
        while True:
            self._count = self._count % _LAST_ADDRESS + 1
            address = f"{self._network}.{self._count}"
            if address not in used:
                return address


def main(argv: list[str]) -> int:
    folder, network = Path(argv[0]), argv[1]
    agent = Agent(folder, network)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: agent.ending.set())
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
