"""Options of `up` for Kubernetes only."""

from __future__ import annotations

import re
from typing import Annotated, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Value
from tgi_deploy.values.options import EVERYWHERE, PLACES, SECRETS, ApiKeyFromEnv, flag_of, option

NAME: Final = "kubernetes"
# Of an RFC 1123 subdomain, as the names of Secrets and PersistentVolumeClaims.
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


_WITH_DOCTOR: Final = (*EVERYWHERE, "doctor")
_PLANNED: Final = (*_WITH_DOCTOR, "plan")


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
            commands=_PLANNED,
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
        for name in ("namespace", "hub_token_secret", "api_key_secret", "weights_claim"):
            value = getattr(self, name)
            if value is not None and not _OBJECT.fullmatch(value):
                raise InputError(
                    "bad_option_value",
                    f"{flag_of(name)} {quoted(value)} can't name an object of a cluster",
                    hint="use lower-case letters, digits, hyphens and dots",
                )
