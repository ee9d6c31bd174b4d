"""Callers outside the cluster: what is refused without the user's consent, and what an Ingress is given."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kubernetes_api import FakeCluster, failure

from tgi_deploy import Client
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.ingress import host_findings, host_manifest, ingress_findings, ingress_manifest
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.targets.kubernetes.place import Place

LABELS = {"app.kubernetes.io/name": "tgi-deploy-demo"}
HOST = {"host": "llm.example.com"}
KEY = {"api_key_from_env": "LLM_KEY"}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({**HOST, **KEY}, "conflicting_options", "has no certificate"),
        ({**HOST, "tls_secret": "web"}, "world_exposed", "without an API key"),
        ({**HOST, **KEY, "tls_secret": "web", "plaintext": True}, "conflicting_options", "--plaintext excludes"),
        ({"tls_secret": "web"}, "conflicting_options", "--tls-secret works only with --host"),
        ({"plaintext": True}, "conflicting_options", "--plaintext works only with --host"),
        ({"host": "*.example.com", **KEY, "plaintext": True}, "bad_option_value", "not the name of a host"),
        ({"host": "LLM", **KEY, "plaintext": True}, "bad_option_value", "not the name of a host"),
        ({"prometheus": "prometheus:9090"}, "bad_option_value", "not the address of a Prometheus"),
        ({"gateway": "infra/web/https"}, "conflicting_options", "--gateway works only with --host"),
        ({**HOST, **KEY, "gateway": "infra/web"}, "bad_option_value", "does not name a listener"),
        ({**HOST, **KEY, "gateway": "infra/web/https/x"}, "bad_option_value", "does not name a listener"),
        ({**HOST, "gateway": "infra/web/https"}, "world_exposed", "without an API key"),
        (
            {**HOST, **KEY, "gateway": "infra/web/https", "tls_secret": "web"},
            "conflicting_options",
            "has the certificate",
        ),
    ],
)
def test_a_host_needs_a_certificate_and_a_key_or_the_users_consent(options: Any, code: str, words: str):
    with pytest.raises(InputError, match=words) as raised:
        KubernetesOptions(**options)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({**HOST, **KEY, "tls_secret": "web"}, "https://llm.example.com"),
        ({**HOST, "cluster_issuer": "ca", "expose_to_world": True}, "https://llm.example.com"),
        ({**HOST, **KEY, "plaintext": True}, "http://llm.example.com"),
        ({**HOST, **KEY, "gateway": "infra/web/https"}, "https://llm.example.com"),
        ({**HOST, **KEY, "gateway": "infra/web/http", "plaintext": True}, "http://llm.example.com"),
        ({}, ""),
    ],
)
def test_the_url_shows_whether_the_host_has_a_certificate(options: Any, url: str):
    assert KubernetesOptions(**options).public_url == url


@pytest.mark.parametrize(
    ("consent", "kind"),
    [
        ({"tls_secret": "web", "expose_to_world": True}, "Ingress"),
        ({"plaintext": True, "api_key_secret": "key"}, "Ingress"),
        ({"gateway": "infra/web/https", "api_key_secret": "key"}, "HTTPRoute"),
    ],
)
def test_a_host_can_be_rendered_with_the_consent_that_its_refusal_names(consent: Any, kind: str):
    client, host = Client(offline=True), HOST["host"]
    with pytest.raises(InputError):
        client.render("llama3-8b", "kubernetes", host=host)
    assert f"kind: {kind}" in client.render("llama3-8b", "kubernetes", host=host, **consent).data.artifact.text


@pytest.mark.parametrize("form", ["compose", "user-data"])
def test_consent_that_changes_no_other_artifact_is_refused(form: str):
    with pytest.raises(InputError, match="an option of --target kubernetes"):
        Client(offline=True).render("llama3-8b", form, expose_to_world=True)


def test_an_ingress_leads_to_the_service_of_all_revisions():
    options = KubernetesOptions(**HOST, **KEY, tls_secret="web", ingress_class="nginx")
    found = ingress_manifest(LABELS, options, "k8s.io/ingress-nginx")
    assert found["metadata"]["name"] == "tgi-deploy-demo"
    assert found["spec"]["tls"] == [{"hosts": ["llm.example.com"], "secretName": "web"}]
    (path,) = found["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "tgi-deploy-demo", "port": {"name": "http"}}
    assert found["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert "annotations" not in ingress_manifest(LABELS, options, "example.com/other")["metadata"]


@pytest.mark.parametrize(
    ("own", "listeners"), [({"tls_secret": "web"}, '[{"HTTPS":443}]'), ({"plaintext": True}, None)]
)
def test_a_load_balancer_of_aws_listens_for_tls_alone_where_the_host_has_a_certificate(own: Any, listeners: str | None):
    options = KubernetesOptions(**HOST, **KEY, **own)
    found = ingress_manifest(LABELS, options, "ingress.k8s.aws/alb")["metadata"]["annotations"]
    assert found.get("alb.ingress.kubernetes.io/listen-ports") == listeners


def classes(**found: bool) -> dict[tuple[str, str], Any]:
    note = "ingressclass.kubernetes.io/is-default-class"
    return {
        ("ingressclasses", name): {
            "metadata": {"name": name, "annotations": {note: str(default).lower()}}, "spec": {"controller": "x"},
        }
        for name, default in found.items()
    }  # fmt: skip


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        ({}, None, "no default IngressClass"),
        ({"a": False}, None, "it has a"),
        ({"a": True}, "b", "no IngressClass b"),
        ({"a": True}, None, ""),
        ({"a": False, "b": False}, "b", ""),
    ],
)
def test_an_ingress_that_no_controller_would_serve_is_a_finding(there: dict[str, bool], wanted: str, words: str):
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=FakeCluster(objects=classes(**there)))
    found = [item.message for item in ingress_findings(api, wanted)]
    assert (words in found[0]) if words else found == []


def test_without_permission_to_list_classes_nothing_is_claimed_about_them():
    cluster = FakeCluster(refusals={"GET ingressclasses": failure(403, "ingressclasses is forbidden")})
    assert list(ingress_findings(Api(place=Place.of("kubernetes:team-a@dev"), sender=cluster), None)) == []


def gateway(*listeners: dict[str, Any]) -> dict[tuple[str, str], Any]:
    metadata = {"name": "web", "namespace": "infra"}
    return {
        ("gateways", "web"): {"metadata": metadata, "spec": {"gatewayClassName": "x", "listeners": list(listeners)}}
    }


def listener(name: str = "https", protocol: str = "HTTPS", **changes: Any) -> dict[str, Any]:
    """Return a listener for all namespaces; `changes`: `hostname`, `tls`, `allowedRoutes`."""
    allowed = {"namespaces": {"from": "All"}}
    return {"name": name, "protocol": protocol, "port": 443, "allowedRoutes": allowed, **changes}


ROUTED = KubernetesOptions(**HOST, **KEY, gateway="infra/web/https")
SERVED = {"/apis/gateway.networking.k8s.io/v1": {"resources": []}}


def gateway_problems(there: dict[tuple[str, str], Any], options: KubernetesOptions = ROUTED, **changes: Any) -> Any:
    cluster = FakeCluster(**{"objects": there, "groups": SERVED, **changes})
    found = list(host_findings(Api(place=Place.of("kubernetes:team-a@dev"), sender=cluster), options))
    assert {item.code for item in found} <= {"gateway_unusable"}
    return [(item.message.partition(": ")[2], item.hint) for item in found]


@pytest.mark.parametrize("hostname", [None, "llm.example.com", "*.example.com", "*.com"])
def test_a_listener_with_tls_for_the_host_serves_it(hostname: str | None):
    own = listener(**({"hostname": hostname} if hostname else {}))
    assert gateway_problems(gateway(listener("http", "HTTP"), own)) == []


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (listener(protocol="HTTP"), "has no TLS"),
        (listener(hostname="*.example.org"), "serves only *.example.org"),
        (listener(hostname="*.llm.example.com"), "serves only *.llm.example.com"),
        (listener(allowedRoutes={}), "accepts only routes of its own namespace"),
        (listener(tls={"mode": "Passthrough"}), "infra/web has no listener https"),
        (listener(protocol="TLS"), "infra/web has no listener https"),
        (listener(allowedRoutes={"kinds": [{"kind": "GRPCRoute"}]}), "infra/web has no listener https"),
    ],
)
def test_a_listener_that_would_not_serve_the_host_is_a_finding_that_names_those_that_would(own: Any, words: str):
    ((found, hint),) = gateway_problems(gateway(own, listener("secure")))
    assert (words in found, hint) == (True, "use --gateway infra/web/secure")


def test_a_missing_gateway_or_api_is_a_finding():
    assert "there is no Gateway web in infra" in gateway_problems({})[0][0]
    assert "does not have the Gateway API" in gateway_problems(gateway(listener()), groups={})[0][0]


def test_plain_http_needs_a_listener_for_it_and_consent():
    plain = KubernetesOptions(**HOST, **KEY, gateway="infra/web/http", plaintext=True)
    assert gateway_problems(gateway(listener("http", "HTTP")), plain) == []
    ((found, _),) = gateway_problems(gateway(listener("http")), plain)
    assert "asks for plain HTTP" in found


def test_a_gateway_that_may_not_be_read_is_an_error_and_not_assumed_to_use_tls():
    with pytest.raises(DeployError, match="forbidden") as caught:
        gateway_problems({}, refusals={"GET gateways": failure(403, "gateways is forbidden")})
    assert caught.value.code == "cluster_forbidden"


def test_a_route_attaches_to_the_named_listener_alone_and_has_no_limit_of_time():
    found = host_manifest(LABELS, 8080, ROUTED)
    assert found["spec"]["hostnames"] == ["llm.example.com"]
    (parent,), (rule,) = found["spec"]["parentRefs"], found["spec"]["rules"]
    assert (parent["namespace"], parent["name"], parent["sectionName"]) == ("infra", "web", "https")
    assert (rule["backendRefs"][0]["name"], rule["backendRefs"][0]["port"]) == ("tgi-deploy-demo", 8080)
    assert rule["timeouts"] == {"request": "0s"}
