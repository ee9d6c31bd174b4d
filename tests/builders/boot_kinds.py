"""The kinds of plan whose machines are booted in tests; adding one takes one line in KINDS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builders.certificates import issued

from tgi_deploy.operations.planning.artifacts import deployable
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.targets.ec2.launch import tls_image
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog, render_artifact

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable

HUB_TOKEN = "hf_canaryCanaryCanaryCanaryCanary01"
API_KEY = "key-canaryCanaryCanaryCanaryCanary02"
OWN = issued()
PARAMETERS = {
    "parameters/team/hub-token": HUB_TOKEN, "parameters/team/api-key": API_KEY, "parameters/team/tls-key": OWN.key,
}  # fmt: skip
_SECRETS = {"hub_token_parameter": "/team/hub-token", "api_key_parameter": "/team/api-key"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Option texts, the deployment's changes of its plan, and whether the machine has and mounts instance storage."""

    texts: dict[str, Any] = field(default_factory=dict)
    deployment: dict[str, Any] = field(default_factory=dict)
    has_nvme: bool = False
    mounts_nvme: bool = False

    @property
    def gpus(self) -> int:
        return self.deployable().candidate.offer.instance_type.accelerator_count

    def deployable(self) -> Deployable:
        requested = {"model": "zephyr-7b", "instance": "g6e.xlarge", "regions": ("us-east-1",), **self.texts}
        texts = OptionTexts(**requested)
        found = plan(texts, open_catalog(), {})
        assert isinstance(found, Plan), found
        made = deployable(found, texts, {}, name="boot")
        storage = replaced(made.candidate.storage, weights_on_nvme=self.has_nvme)
        return replaced(made, candidate=replaced(made.candidate, storage=storage), **self.deployment)

    def user_data(self) -> str:
        return render_artifact("user-data", self.deployable()).text


KINDS = {
    "bare": Kind(),
    "old-engine": Kind(texts={"engine_version": "2.2.0"}),
    "instance-store": Kind(has_nvme=True, mounts_nvme=True),
    "instance-store-missing": Kind(has_nvme=True),
    "secrets": Kind(texts={"model": "llama3-8b"}, deployment=_SECRETS),
    "half-of-the-gpus": Kind(texts={"instance": "g6e.12xlarge", "num_shard": "2"}),
    # Images that are built for the tests have no digest.
    "tls": Kind(deployment={"tls_image": tls_image().partition("@")[0]}),
    "certificate": Kind(
        deployment={
            "tls_image": tls_image().partition("@")[0],
            "certificate": OWN.chain,
            "certificate_key_parameter": "/team/tls-key",
        }
    ),
    "everything": Kind(
        texts={
            "model": "llama3-8b", "instance": "g6e.12xlarge", "num_shard": "4", "market": "spot",
            "ttl": "2h", "idle_timeout": "1h", "lease": "3h",
        },
        deployment=_SECRETS,
        has_nvme=True,
        mounts_nvme=True,
    ),
}  # fmt: skip
