"""A metrics API for autoscalers, aggregated into a control plane; like an adapter, it reads the pods' metrics pages.

https://github.com/kubernetes/design-proposals-archive/tree/main/instrumentation (custom and external metrics API)
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from builders.control_plane import eventually

from tgi_deploy.sandbox.kubernetes import CERTIFICATE, KEY

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
GAUGES = ("tgi_queue_size", "tgi_batch_current_size")


def engine_path(namespace, pod, path):
    """Return the path by which the API server passes a request on to a pod's engine."""
    port = pod["spec"]["containers"][0]["ports"][0]["containerPort"]
    return namespace.path("pods", f"{pod['metadata']['name']}:{port}/proxy{path}")


def gauge(namespace, pod, name):
    """Return a gauge of a pod's engine; 0 while it does not answer."""
    status, page = namespace.plane.ask("GET", engine_path(namespace, pod, "/metrics"))
    found = re.search(rf"^{name}(?:\{{.*\}})? ([0-9.]+)$", page.decode(), re.MULTILINE)
    return round(float(found[1])) if status == 200 and found else 0


def chosen(namespace, query):
    """Return the pods that a label selector names; for that of a Service, those which it selects."""
    wanted = dict(term.split("=", 1) for term in query.get("labelSelector", [""])[0].split(",") if term)
    if "service" in wanted:
        wanted = namespace.plane.call("GET", namespace.path("services", wanted["service"]))["spec"]["selector"]
    return [pod for pod in namespace.ready() if wanted.items() <= pod["metadata"]["labels"].items()]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        *_, name = url.path.split("/")
        named = "/namespaces/" in url.path
        body = self.server.values(name, parse_qs(url.query)) if named else self.server.listed()
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_words):
        """Write no access log."""


class _MetricsApi(ThreadingHTTPServer):
    def __init__(self, namespace, group, names):
        self.namespace, self.custom, self.names = namespace, group == CUSTOM, names
        self.version = f"{group}/{'v1beta2' if self.custom else 'v1beta1'}"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(namespace.plane.home / CERTIFICATE, namespace.plane.home / KEY)
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.server_bind()
        self.server_activate()

    def listed(self):
        prefix = "pods/" if self.custom else ""
        about = {"namespaced": True, "kind": "MetricValueList", "singularName": "", "verbs": ["get"]}
        found = [{"name": f"{prefix}{name}", **about} for name in self.names]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": self.version, "resources": found}

    def values(self, name, query):
        """Return a gauge of each pod, or its sum over the pods of a Service."""
        now = datetime.now(UTC).strftime("%FT%TZ")
        found = {pod["metadata"]["name"]: gauge(self.namespace, pod, name) for pod in chosen(self.namespace, query)}
        if not self.custom:
            item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(sum(found.values()))}
            return {"kind": "ExternalMetricValueList", "apiVersion": self.version, "metadata": {}, "items": [item]}
        about = {"kind": "Pod", "namespace": self.namespace.name, "apiVersion": "/v1"}
        items = [
            {"describedObject": {**about, "name": pod}, "metric": {"name": name}, "timestamp": now, "value": str(value)}
            for pod, value in found.items()
        ]
        return {"kind": "MetricValueList", "apiVersion": self.version, "metadata": {}, "items": items}


@contextmanager
def metrics_api(namespace, group, names=GAUGES):
    """Serve `names` for the pods of one namespace, through the control plane's own API server."""
    server = _MetricsApi(namespace, group, names)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ports = [{"port": server.server_port}]
    service = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
    where = namespace.path("services", "metrics")
    namespace.apply(where, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"}, "spec": service})
    _, version = server.version.split("/")
    spec = {
        "group": group, "version": version, "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": "metrics", "namespace": namespace.name, "port": server.server_port},
    }  # fmt: skip
    name = f"{version}.{group}"
    body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}, "spec": spec}
    namespace.apply(f"{_SERVICES}/{name}", body)
    try:
        eventually(lambda: namespace.plane.ask("GET", f"/apis/{server.version}")[0] == 200)
        yield
    finally:
        namespace.plane.call("DELETE", f"{_SERVICES}/{name}")
        server.shutdown()
        server.server_close()
        eventually(lambda: namespace.plane.ask("GET", f"/apis/{group}")[0] == 404)
