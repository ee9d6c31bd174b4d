"""Options of `up` for Kubernetes only."""

from __future__ import annotations

import re
from typing import Annotated, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Value
from tgi_deploy.values.options import (
    EVERYWHERE,
    PLACES,
    SECRETS,
    ApiKeyFromEnv,
    RenderedExposeToWorld,
    RenderedPlaintext,
    flag_of,
    option,
)

NAME: Final = "kubernetes"
# What a revision's record names the Secret with the API key.
KEY_MARK: Final = "api_key_secret"
_NAMES: Final = (
    "namespace", "hub_token_secret", "api_key_secret", "weights_claim", "ingress_class", "tls_secret", "cluster_issuer",
)  # fmt: skip
_OF_AN_INGRESS: Final = ("ingress_class", "tls_secret", "cluster_issuer")
_OF_A_HOST: Final = (*_OF_AN_INGRESS, "gateway", "expose_to_world", "plaintext")
_HOST: Final = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])")
_URL: Final = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]{1,253}(/[A-Za-z0-9./_~%-]{0,200})?")
# Of an RFC 1123 subdomain, as the names of Secrets and PersistentVolumeClaims.
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


_WITH_DOCTOR: Final = (*EVERYWHERE, "render", "doctor")
_RENDERED: Final = (*EVERYWHERE, "render")
_PLANNED: Final = (*EVERYWHERE, "doctor", "plan")
_PLANNED_OR_RENDERED: Final = (*_PLANNED, "render")


class KubernetesOptions(Value, frozen=True, kw_only=True):
    """Raises InputError `bad_option_value`."""

    kube_context: Annotated[
        str | None,
        option(
            "Kubernetes: context of the kubeconfig.  [default: the current one]",
            "CONTEXT",
            commands=_PLANNED,
            section=PLACES,
        ),
    ] = None
    namespace: Annotated[
        str | None,
        option(
            "Kubernetes: namespace to deploy to.  [default: the context's]",
            "NAMESPACE",
            commands=_PLANNED_OR_RENDERED,
            section=PLACES,
        ),
    ] = None
    hub_token_secret: Annotated[
        str | None,
        option(
            "Kubernetes: Secret with the key HF_TOKEN.  [default: hf-token, for gated models]",
            "SECRET",
            commands=_WITH_DOCTOR,
            section=SECRETS,
        ),
    ] = None
    api_key_secret: Annotated[
        str | None,
        option(
            "Kubernetes: Secret with the key api-key, for the engine.  [default: engine-api-key, if a key is required]",
            "SECRET",
            commands=_WITH_DOCTOR,
            section=SECRETS,
        ),
    ] = None
    api_key_from_env: ApiKeyFromEnv = None
    prometheus: Annotated[
        str | None,
        option(
            "Kubernetes: URL of Prometheus in the cluster, for KEDA and --replicas MIN..MAX.  [default: metrics APIs]",
            "URL",
            commands=_RENDERED,
        ),
    ] = None
    host: Annotated[
        str | None,
        option(
            "Kubernetes: serve at this host name, by an Ingress.  [default: through the API server]",
            "NAME",
            commands=_RENDERED,
        ),
    ] = None
    ingress_class: Annotated[
        str | None,
        option("Kubernetes: class of the Ingress of --host.  [default: the cluster's]", "CLASS", commands=_RENDERED),
    ] = None
    gateway: Annotated[
        str | None,
        option(
            "Kubernetes: for --host, NAMESPACE/NAME/LISTENER of a Gateway instead of an Ingress.",
            "LISTENER",
            commands=_RENDERED,
        ),
    ] = None
    tls_secret: Annotated[
        str | None,
        option(
            "Kubernetes: Secret with the certificate for --host and its key.",
            "SECRET",
            commands=_RENDERED,
            section=SECRETS,
        ),
    ] = None
    cluster_issuer: Annotated[
        str | None,
        option(
            "Kubernetes: ClusterIssuer of cert-manager for the certificate of --host.",
            "ISSUER",
            commands=_RENDERED,
            section=SECRETS,
        ),
    ] = None
    expose_to_world: RenderedExposeToWorld = False
    plaintext: RenderedPlaintext = False
    weights_claim: Annotated[
        str | None,
        option(
            "Kubernetes: existing PersistentVolumeClaim for weights.  [default: the node's disk]",
            "CLAIM",
            commands=_WITH_DOCTOR,
            section=PLACES,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.prometheus is not None and not _URL.fullmatch(self.prometheus):
            raise InputError(
                "bad_option_value",
                f"--prometheus {quoted(self.prometheus)} is not the address of a Prometheus",
                hint="write it as --prometheus http://prometheus.monitoring.svc:9090",
            )
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None and not _OBJECT.fullmatch(value):
                raise InputError(
                    "bad_option_value",
                    f"{flag_of(name)} {quoted(value)} can't name an object of a cluster",
                    hint="use lower-case letters, digits, hyphens and dots",
                )
        self._check_host()

    @property
    def encrypted(self) -> bool:
        """Whether callers of the host use TLS: with a certificate of the Ingress, or that of the Gateway's listener."""
        return bool(self.tls_secret or self.cluster_issuer or (self.gateway and not self.plaintext))

    @property
    def listener(self) -> tuple[str, str, str]:
        """The namespace and the name of the Gateway, and its listener."""
        namespace, _, rest = (self.gateway or "").partition("/")
        gateway, _, name = rest.partition("/")
        return namespace, gateway, name

    @property
    def public_url(self) -> str:
        """The URL for callers outside the cluster; empty without a host."""
        return f"{'https' if self.encrypted else 'http'}://{self.host}" if self.host else ""

    def _check_host(self) -> None:
        """Raise InputError unless the host may be served as asked."""
        if self.host is None:
            given = next((flag_of(name) for name in _OF_A_HOST if getattr(self, name)), None)
            if given is not None:
                raise InputError(
                    "conflicting_options", f"{given} works only with --host on Kubernetes", hint="add --host NAME"
                )
            return
        if not _HOST.fullmatch(self.host):
            raise InputError(
                "bad_option_value",
                f"--host {quoted(self.host)} is not the name of a host",
                hint="write a name in lower case without a wildcard: --host llm.example.com",
            )
        self._check_gateway()
        if self.encrypted is self.plaintext:
            raise InputError(
                "conflicting_options",
                "--plaintext excludes a certificate for --host"
                if self.plaintext
                else f"--host {self.host} has no certificate, so that prompts and answers would travel unencrypted",
                hint="add --tls-secret, --cluster-issuer or --gateway, or --plaintext to accept plain HTTP",
            )
        if not (self.api_key_from_env or self.api_key_secret or self.expose_to_world):
            raise InputError(
                "world_exposed",
                f"--host {self.host} answers everybody who can reach its controller, without an API key",
                hint="add --api-key-secret SECRET or --api-key-from-env VARIABLE, or --expose-to-world to confirm",
            )

    def _check_gateway(self) -> None:
        """Raise InputError unless the options of a Gateway fit together."""
        if self.gateway is None:
            return
        if not all(map(_OBJECT.fullmatch, self.listener)):
            raise InputError(
                "bad_option_value",
                f"--gateway {quoted(self.gateway)} does not name a listener of a Gateway",
                hint="write its namespace, its name and the listener: --gateway infra/web/https",
            )
        given = next((flag_of(name) for name in _OF_AN_INGRESS if getattr(self, name)), None)
        if given is not None:
            raise InputError(
                "conflicting_options",
                f"{given} is for an Ingress, and --gateway asks for a route: the listener has the certificate",
                hint="omit one of them",
            )
