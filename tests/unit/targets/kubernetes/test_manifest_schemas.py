"""Rendered manifests fit the schemas of three minor versions of Kubernetes, without a cluster."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from builders import plans

from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.values.request import Replicas
from tgi_deploy.wiring import render_artifact

CASES = Path(__file__).parents[3] / "cases"
VERSIONS = sorted(path.stem for path in (CASES / "kubernetes_schemas").glob("*.json"))
RENDERED = sorted((CASES / "render").glob("*/kubernetes.yaml"))


@cache
def validator(version: str, kind: str) -> Any:
    document = json.loads((CASES / "kubernetes_schemas" / f"{version}.json").read_text(encoding="utf-8"))
    name = document["kinds"][kind]
    return jsonschema.Draft4Validator({"$ref": f"#/definitions/{name}", "definitions": document["definitions"]})


@cache
def definition(name: str) -> Any:
    """Return the validator of a custom resource, which accepts no unknown member."""
    text = (CASES / "kubernetes_schemas" / f"{name}.yaml").read_text(encoding="utf-8")
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    return jsonschema.Draft4Validator(strict(version["schema"]["openAPIV3Schema"]))


def strict(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    named = {name: strict(item) for name, item in schema.items() if name != "properties"}
    members = {name: strict(item) for name, item in schema.get("properties", {}).items()}
    return {**named, **({"properties": members} if members else {}), **closed}


def problems(document: dict[str, Any]) -> list[str]:
    found = (error for version in VERSIONS for error in validator(version, document["kind"]).iter_errors(document))
    return [f"{error.json_path}: {error.message}" for error in found]


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.parent.name)
def test_every_rendered_manifest_fits(path: Path):
    assert len(VERSIONS) == 3
    assert [item for document in documents(path.read_text(encoding="utf-8")) for item in problems(document)] == []


def test_a_range_a_host_and_limits_fit_and_leave_the_number_to_the_autoscaler():
    own = KubernetesOptions(namespace="team-a", host="llm.example.com", tls_secret="web", api_key_secret="key")
    wanted = plans.deployable(replicas=Replicas(least=1, most=4), options=own, ttl_s=3600, idle_s=600)
    found = documents(render_artifact("kubernetes", wanted).text)
    assert [item for document in found for item in problems(document)] == []
    kinds = {item["kind"]: item for item in found}
    assert {"Ingress", "HorizontalPodAutoscaler", "Job", "Role"} < kinds.keys()
    assert "replicas" not in kinds["Deployment"]["spec"]
    assert {item["metadata"]["namespace"] for item in found} == {"team-a"}
    notes = kinds["Deployment"]["metadata"]["annotations"]
    assert (notes["tgi-deploy/ttl-s"], notes["tgi-deploy/idle-s"]) == ("3600", "600")


def test_a_route_fits_the_definition_of_the_gateway_api():
    own = KubernetesOptions(host="llm.example.com", gateway="infra/web/https", api_key_secret="key")
    found = documents(render_artifact("kubernetes", plans.deployable(options=own)).text)
    (route,) = (item for item in found if item["kind"] == "HTTPRoute")
    check = definition("gateway.networking.k8s.io_httproutes")
    del route["metadata"]  # its schema is the API server's own
    assert [error.message for error in check.iter_errors(route)] == []
    route["spec"]["parentRefs"][0]["listener"] = "https"
    assert len(list(check.iter_errors(route))) == 1


@pytest.mark.parametrize("place", ["spec", "spec.template.spec", "spec.template.spec.containers.0.resources"])
def test_a_misspelled_member_does_not_fit(place: str):
    (found,) = (item for item in documents(RENDERED[0].read_text(encoding="utf-8")) if item["kind"] == "Deployment")
    part: Any = found
    for word in place.split("."):
        part = part[int(word) if word.isdigit() else word]
    part["replica"] = 1
    assert len(problems(found)) == 3
