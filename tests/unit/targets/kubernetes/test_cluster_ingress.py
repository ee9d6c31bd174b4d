"""Callers outside the cluster: what is refused without the user's consent, and what an Ingress is given."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kubernetes_api import FakeCluster, failure

from tgi_deploy import Client
from tgi_deploy.errors import InputError
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.ingress import ingress_findings, ingress_manifest
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
        ({}, ""),
    ],
)
def test_the_url_shows_whether_the_host_has_a_certificate(options: Any, url: str):
    assert KubernetesOptions(**options).public_url == url


@pytest.mark.parametrize(
    "consent", [{"tls_secret": "web", "expose_to_world": True}, {"plaintext": True, "api_key_secret": "key"}]
)
def test_a_host_can_be_rendered_with_the_consent_that_its_refusal_names(consent: Any):
    client, host = Client(offline=True), HOST["host"]
    with pytest.raises(InputError):
        client.render("llama3-8b", "kubernetes", host=host)
    assert "kind: Ingress" in client.render("llama3-8b", "kubernetes", host=host, **consent).data.artifact.text


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
