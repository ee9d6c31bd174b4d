"""What leads callers outside the cluster to a deployment: only with `--host`, over TLS unless the user declines.

It is an Ingress or, with `--gateway`, an HTTPRoute.
https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import error
from tgi_deploy.targets.kubernetes.errors import ClusterRefusedError
from tgi_deploy.targets.kubernetes.gateway import gateway_findings, route_manifest
from tgi_deploy.targets.kubernetes.manifests import HTTP, SHARED_NAME
from tgi_deploy.targets.kubernetes.resources import HTTP_ROUTE, INGRESS
from tgi_deploy.values.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.kubernetes.options import KubernetesOptions
    from tgi_deploy.targets.reply import Reply

_CLASSES: Final = "/apis/networking.k8s.io/v1/ingressclasses"
_DEFAULT_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"
_ISSUER: Final = "cert-manager.io/cluster-issuer"


class IngressClass(NamedTuple):
    name: str
    controller: str
    is_default: bool


def ingress_classes(api: Api) -> tuple[IngressClass, ...] | None:
    """Return the cluster's; None if the credentials may not list them."""
    try:
        return api.each(_CLASSES, "looking for IngressClasses", _ingress_class)
    except ClusterRefusedError:
        return None


def _ingress_class(item: Reply) -> IngressClass:
    return IngressClass(
        name=item.part("metadata").text("name"),
        controller=item.optional_part("spec").optional_text("controller"),
        is_default=item.part("metadata").optional_part("annotations").optional_text(_DEFAULT_CLASS) == "true",
    )


def chosen_class(known: tuple[IngressClass, ...] | None, wanted: str | None) -> IngressClass | None:
    """Return the class that is named, or else the default; None if there is none, or if that is unknown."""
    matches = (item for item in known or () if (item.name == wanted if wanted else item.is_default))
    return next(matches, None)


def ingress_findings(api: Api, wanted: str | None) -> Iterator[Problem]:
    """Yield why no controller would serve the Ingress."""
    known = ingress_classes(api)
    if known is None or chosen_class(known, wanted) is not None:
        return
    names = ", ".join(item.name for item in known)
    has = f"it has {names}" if names else "it has none"
    what = f"no IngressClass {wanted}" if wanted else "no default IngressClass"
    yield error(
        "ingress_class_missing",
        f"the cluster has {what}, so that no controller would serve the host: {has}",
        hint="name one with --ingress-class CLASS" if names else "install an ingress controller, or leave --host out",
    )


def ingress_manifest(labels: Mapping[str, str], options: KubernetesOptions, controller: str) -> Manifest:
    """Return the Ingress to the Service with these labels. `controller` is that of its class, empty if unknown."""
    name = labels[SHARED_NAME]
    rows = Store.behind().json("kubernetes/ingress.json")["controllers"]
    known: Mapping[str, Mapping[str, str]] = next((row for row in rows if row["controller"] == controller), {})
    annotations = {**known.get("annotations", {}), **(known.get("tls_annotations", {}) if options.encrypted else {})}
    if options.cluster_issuer:
        annotations[_ISSUER] = options.cluster_issuer
    backend = {"service": {"name": name, "port": {"name": HTTP}}}
    rule = {"host": options.host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    secret = options.tls_secret or f"{name}-tls"
    tls = {"tls": [{"hosts": [options.host], "secretName": secret}]} if options.encrypted else {}
    by_class = {"ingressClassName": options.ingress_class} if options.ingress_class else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "labels": dict(labels), **({"annotations": annotations} if annotations else {})},
        "spec": {**by_class, "rules": [rule], **tls},
    }


def host_resource(api: Api, labels: Mapping[str, str], port: int, options: KubernetesOptions) -> Resource:
    """Return the Ingress or HTTPRoute, which all revisions share: it leads to the Service with this port."""
    kind = HTTP_ROUTE if options.gateway else INGRESS
    found = None if options.gateway else chosen_class(ingress_classes(api), options.ingress_class)
    manifest = host_manifest(labels, port, options, found.controller if found else "")
    properties = {"name": manifest["metadata"]["name"], "manifest": manifest}
    return Resource(key=kind, kind=kind, place=str(api.place), properties=properties, mutable=("manifest",))


def host_manifest(labels: Mapping[str, str], port: int, options: KubernetesOptions, controller: str = "") -> Manifest:
    """Return what leads callers outside the cluster to the Service with these labels."""
    if options.gateway:
        return route_manifest(labels, port, options)
    return ingress_manifest(labels, options, controller)


def host_findings(api: Api, options: KubernetesOptions) -> Iterator[Problem]:
    """Yield why nothing would serve the host."""
    if options.gateway:
        return gateway_findings(api, options)
    return ingress_findings(api, options.ingress_class)
