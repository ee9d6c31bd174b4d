"""Options of `up` for Kubernetes only."""

from __future__ import annotations

import re
from typing import Annotated, Final

from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Value
from tgi_deploy.values.options import option

NAME: Final = "kubernetes"
# Of an RFC 1123 subdomain, as the names of Secrets and PersistentVolumeClaims.
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class KubernetesOptions(Value, frozen=True, kw_only=True):
    """Raises InputError `bad_option_value`."""

    hub_token_secret: Annotated[
        str | None,
        option("Kubernetes: Secret with the key HF_TOKEN.  [default: hf-token, for gated models]", "SECRET"),
    ] = None
    weights_claim: Annotated[
        str | None,
        option("Kubernetes: existing PersistentVolumeClaim for weights.  [default: the node's disk]", "CLAIM"),
    ] = None

    def __post_init__(self) -> None:
        for flag, value in (("--hub-token-secret", self.hub_token_secret), ("--weights-claim", self.weights_claim)):
            if value is not None and not _OBJECT.fullmatch(value):
                raise InputError(
                    "bad_option_value",
                    f"{flag} {quoted(value)} can't name an object of a cluster",
                    hint="use lower-case letters, digits, hyphens and dots",
                )
