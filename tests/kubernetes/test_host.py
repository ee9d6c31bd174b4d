"""Callers outside the cluster: only at a named host, with a certificate or the user's consent."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from builders.control_plane import defined

pytestmark = pytest.mark.control_plane
NAME, OWN = "llama3-13b", "tgi-deploy-llama3-13b"
UP = ("up", NAME, "--target", "kubernetes", "--yes")
NETWORKING = "/apis/networking.k8s.io/v1"


@contextmanager
def ingress_class(namespace):
    """Have the cluster know ingress-nginx, whose controller these tests need not run."""
    path, name = f"{NETWORKING}/ingressclasses", "nginx"
    spec = {"controller": "k8s.io/ingress-nginx"}
    namespace.plane.call("POST", path, {"metadata": {"name": name}, "spec": spec})
    try:
        yield name
    finally:
        namespace.plane.call("DELETE", f"{path}/{name}")


def test_a_host_leads_to_the_service_until_down(namespace, run):
    host = ("--host", "llm.example.com", "--cluster-issuer", "letsencrypt", "--expose-to-world")
    with ingress_class(namespace) as name:
        code, refused = run(*UP, *host)
        assert (code, refused["errors"][0]["code"]) == (1, "ingress_class_missing")
        code, made = run(*UP, *host, "--ingress-class", name)
        assert code == 0, made["errors"]
        path = namespace.path("ingresses", OWN, NETWORKING)
        live = namespace.plane.call("GET", path)
        assert live["spec"]["ingressClassName"] == name
        assert live["spec"]["tls"] == [{"hosts": ["llm.example.com"], "secretName": f"{OWN}-tls"}]
        notes = live["metadata"]["annotations"]
        assert notes["cert-manager.io/cluster-issuer"] == "letsencrypt"
        assert notes["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "3600"
        (owner,) = live["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Service", OWN)
        (rule,) = live["spec"]["rules"]
        backend = rule["http"]["paths"][0]["backend"]["service"]
        assert namespace.plane.call("GET", namespace.path("services", backend["name"]))["spec"]["type"] == "ClusterIP"
        code, opened = run("open", NAME)
        assert (code, opened["data"]["url"], opened["data"]["tunnel"]) == (0, "https://llm.example.com", "")
        assert run("ask", NAME, "Hello")[0] == 0
        code, changed = run(*UP, *host[:2], "--plaintext", "--expose-to-world", "--ingress-class", name)
        assert code == 0, changed["errors"]
        assert "tls" not in namespace.plane.call("GET", path)["spec"]
        code, opened = run("open", NAME)
        assert (code, opened["data"]["url"]) == (0, "http://llm.example.com")
        assert "unencrypted" in opened["data"]["unencrypted"]
        assert run("down", NAME, "--yes")[0] == 0
        assert namespace.plane.ask("GET", path)[0] == 404


GATEWAYS = "/apis/gateway.networking.k8s.io/v1"
LISTENERS = [
    {"name": "http", "protocol": "HTTP", "port": 80},
    {
        "name": "https",
        "protocol": "HTTPS",
        "port": 443,
        "hostname": "*.example.com",
        "tls": {"certificateRefs": [{"name": "web"}]},
    },
]


def test_a_route_of_a_gateway_leads_to_the_service_until_down(namespace, run):
    gateway = ("--gateway", f"{namespace.name}/web/https")
    host = ("--host", "llm.example.com", *gateway, "--expose-to-world")
    code, refused = run(*UP, *host)
    assert (code, refused["errors"][0]["code"]) == (1, "gateway_unusable")
    with defined(namespace.plane, "gateway.networking.k8s.io_gateways", "gateway.networking.k8s.io_httproutes"):
        code, refused = run(*UP, *host)
        assert (code, refused["errors"][0]["code"]) == (1, "gateway_unusable")
        about = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "web"}}
        namespace.plane.call(
            "POST",
            namespace.path("gateways", group=GATEWAYS),
            {**about, "spec": {"gatewayClassName": "any", "listeners": LISTENERS}},
        )
        code, refused = run(*UP, "--host", "llm.example.org", *gateway, "--expose-to-world")
        assert "serves only *.example.com" in refused["errors"][0]["message"]
        code, checked = run("doctor", "--target", "kubernetes")
        found = {item["code"]: item["message"] for item in checked["data"]["findings"]}
        assert f"{namespace.name}/web/https (*.example.com)" in found["cluster_gateways"]
        code, made = run(*UP, *host)
        assert code == 0, made["errors"]
        path = namespace.path("httproutes", OWN, GATEWAYS)
        live = namespace.plane.call("GET", path)
        (parent,), (rule,) = live["spec"]["parentRefs"], live["spec"]["rules"]
        assert (parent["name"], parent["sectionName"], live["spec"]["hostnames"]) == (
            "web",
            "https",
            ["llm.example.com"],
        )
        service = namespace.plane.call("GET", namespace.path("services", rule["backendRefs"][0]["name"]))
        assert rule["backendRefs"][0]["port"] == service["spec"]["ports"][0]["port"]
        (owner,) = live["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Service", OWN)
        code, opened = run("open", NAME)
        assert (code, opened["data"]["url"], opened["data"]["tunnel"]) == (0, "https://llm.example.com", "")
        code, again = run(*UP, *host)
        assert (code, again["data"]["changed"]) == (0, False)
        code, changed = run(*UP, *host[:2], "--gateway", f"{namespace.name}/web/http", "--plaintext", host[-1])
        assert code == 0, changed["errors"]
        assert namespace.plane.call("GET", path)["spec"]["parentRefs"][0]["sectionName"] == "http"
        assert run("down", NAME, "--yes")[0] == 0
        assert namespace.plane.ask("GET", path)[0] == 404
