"""The HTTPRoute of a deployment with `--gateway`: a listener of the user's Gateway serves callers outside the cluster.

https://gateway-api.sigs.k8s.io/reference/1.4/spec/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import error
from tgi_deploy.targets.kubernetes.manifests import SHARED_NAME
from tgi_deploy.targets.kubernetes.objects import Dependents
from tgi_deploy.targets.kubernetes.resources import HTTP_ROUTE
from tgi_deploy.text import one_line, printable
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.resource import UNSERVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.kubernetes.options import KubernetesOptions
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.resource import Found

_VERSION: Final = "gateway.networking.k8s.io/v1"
GATEWAY_API: Final = f"/apis/{_VERSION}"
# Conditions of a route that must be true.
_NEEDED: Final = ("Accepted", "ResolvedRefs")
_PROTOCOLS: Final = {"HTTP": False, "HTTPS": True}
_WILDCARD: Final = "*."


class Listener(Frozen, frozen=True, kw_only=True):
    """A listener for HTTP routes. `hostname` is empty for any host, `tls` whether it decrypts TLS.

    `reach`: the namespaces whose routes it accepts: `All`, `Same` or `Selector`.
    """

    gateway: str
    name: str
    hostname: str
    tls: bool
    reach: str

    def __str__(self) -> str:
        """The form of `--gateway`."""
        return f"{self.gateway}/{self.name}"

    def serves(self, host: str) -> bool:
        """Return whether routes for a host match; a wildcard stands for one label or more."""
        if self.hostname.startswith(_WILDCARD):
            return host.endswith(self.hostname[1:])
        return self.hostname in {"", host}

    def why_not(self, options: KubernetesOptions, namespace: str) -> str:
        """Return why it can't serve the host with these options, as a predicate; empty if no reason is known."""
        if self.tls is not options.encrypted:
            return "has no TLS" if options.encrypted else "has TLS, but --plaintext asks for plain HTTP"
        if not self.serves(options.host or ""):
            return f"serves only {printable(self.hostname)}"
        if self.reach == "Same" and self.gateway.partition("/")[0] != namespace:
            return "accepts only routes of its own namespace"
        return ""


def listeners(api: Api, path: str) -> tuple[Listener, ...] | None:
    """Return the listeners for HTTP of a Gateway by its path; None if it does not exist."""
    return api.get(path, "looking for the Gateway", _listeners)


def all_listeners(api: Api) -> tuple[Listener, ...]:
    """Return the HTTP listeners of all Gateways. Raises ResourceNotFoundError in a cluster without the Gateway API."""
    path = api.path(GATEWAY_API, "gateways", everywhere=True)
    return tuple(item for found in api.each(path, "looking for Gateways", _listeners) for item in found)


def _listeners(gateway: Reply) -> tuple[Listener, ...]:
    metadata = gateway.part("metadata")
    name = f"{printable(metadata.text('namespace'))}/{printable(metadata.text('name'))}"
    return tuple(_listener(item, name) for item in gateway.part("spec").parts("listeners") if _takes_http(item))


def _takes_http(item: Reply) -> bool:
    """Return whether HTTP routes can attach to a listener: one that passes TLS through can't read HTTP."""
    kinds = {kind.text("kind") for kind in item.optional_part("allowedRoutes").optional_parts("kinds")}
    passes_on = item.optional_part("tls").optional_text("mode") == "Passthrough"
    return item.text("protocol") in _PROTOCOLS and not passes_on and (not kinds or "HTTPRoute" in kinds)


def _listener(item: Reply, gateway: str) -> Listener:
    allowed = item.optional_part("allowedRoutes").optional_part("namespaces")
    return Listener(
        gateway=gateway,
        name=printable(item.text("name")),
        hostname=item.optional_text("hostname"),
        tls=_PROTOCOLS[item.text("protocol")],
        reach=allowed.optional_text("from") or "Same",
    )


@dataclass(frozen=True, slots=True)
class Routes(Dependents):
    """HTTPRoutes; the attribute UNSERVED is set if the Gateway rejects one."""

    kind: str = HTTP_ROUTE

    def found(self, item: Reply) -> Found:
        found, why = Dependents.found(self, item), _rejection(item)
        return replaced(found, attributes={**found.attributes, UNSERVED: why}) if why else found


def _rejection(route: Reply) -> str:
    """Return the controller's reason for rejecting a route; empty if it serves it, or has not processed it yet."""
    for parent in route.optional_part("status").optional_parts("parents"):
        for condition in parent.optional_parts("conditions"):
            if condition.optional_text("type") in _NEEDED and condition.optional_text("status") == "False":
                return one_line(f"{condition.optional_text('reason')}: {condition.optional_text('message')}")
    return ""


def gateway_findings(api: Api, options: KubernetesOptions) -> Iterator[Problem]:
    """Yield why the listener would not serve the host with these options."""
    namespace, name, wanted = options.listener
    if api.get(GATEWAY_API, "looking for the Gateway API", lambda _found: True) is None:
        yield _unusable("the cluster does not have the Gateway API", "leave --gateway out to use an Ingress")
        return
    found = listeners(api, f"{GATEWAY_API}/namespaces/{namespace}/gateways/{name}")
    if found is None:
        yield _unusable(f"there is no Gateway {name} in {namespace}", "'kubectl get gateways -A' lists them")
        return
    own = next((item for item in found if item.name == wanted), None)
    why = own.why_not(options, api.place.namespace) if own else ""
    if own is None or why:
        lacking = f"the Gateway {namespace}/{name} has no listener {wanted} for HTTP routes"
        what = f"the listener {wanted} of {namespace}/{name} {why}" if own else lacking
        yield _unusable(what, _others(found, options, api.place.namespace))


def _others(found: Sequence[Listener], options: KubernetesOptions, namespace: str) -> str:
    """Return a hint that names the listeners that would serve the host, or the one to add."""
    fits = [f"--gateway {item}" for item in found if not item.why_not(options, namespace)]
    how = "with TLS" if options.encrypted else "without TLS"
    return f"use {' or '.join(fits)}" if fits else f"add a listener for {options.host} {how} to the Gateway"


def _unusable(why: str, hint: str) -> Problem:
    return error("gateway_unusable", f"the host would not be served: {why}", hint=hint)


def route_manifest(labels: Mapping[str, str], port: int, options: KubernetesOptions) -> Manifest:
    """Return the HTTPRoute to the Service with these labels, without the request timeout: streams are long."""
    namespace, gateway, listener = options.listener
    parent = {
        "group": _VERSION.partition("/")[0],
        "kind": "Gateway",
        "namespace": namespace,
        "name": gateway,
        "sectionName": listener,
    }
    name = labels[SHARED_NAME]
    backend = {"group": "", "kind": "Service", "name": name, "port": port, "weight": 1}
    match = {"path": {"type": "PathPrefix", "value": "/"}}
    rule = {"matches": [match], "backendRefs": [backend], "timeouts": {"request": "0s"}}
    return {
        "apiVersion": _VERSION,
        "kind": "HTTPRoute",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {"parentRefs": [parent], "hostnames": [options.host], "rules": [rule]},
    }
