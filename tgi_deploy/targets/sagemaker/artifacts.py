"""Renders an endpoint for CloudFormation. All values are quoted as JSON, which YAML includes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.targets.deployable import check
from tgi_deploy.targets.protocol import Artifact
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.targets.sagemaker.requests import container, not_hosted, variant
from tgi_deploy.templating import render_text

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable

FILE: Final = "sagemaker.yaml"
_FROM_HUB: Final = SageMakerOptions()
# The folder's real name is a parameter of the stack.
_FROM_S3: Final = SageMakerOptions(weights="s3://bucket/folder/")


def render_artifact(form: str, deployable: Deployable, *, templates_dir: Path | None) -> Artifact:
    """Render the stack. Gated weights come from S3, because a token would be readable in the model.

    Raises:
        InputError: `limits_not_rendered`, `autoscaling_unavailable`, `not_hosted`, or for a value that is not safe
            to render.
    """
    check(deployable)
    problem = not_hosted(deployable.candidate)
    if problem is not None:
        raise problem
    if any(limit is not None for limit in (deployable.ttl_s, deployable.idle_s, deployable.lease_s)):
        raise InputError(
            "limits_not_rendered",
            "a stack has no limits: nothing in it would end the endpoint",
            hint="leave the limits out, or use 'up', which enforces --ttl and --lease",
        )
    if deployable.replicas.varies:
        raise InputError(
            "autoscaling_unavailable",
            f"a stack has no autoscaling: nothing in it would keep the number of machines within "
            f"{deployable.replicas.words}",
            hint="give one number with --replicas, or use 'up', which registers the endpoint for autoscaling",
        )
    candidate = deployable.candidate
    gated = bool(candidate.engine.container.secrets)
    variables = container(deployable, _FROM_S3 if gated else _FROM_HUB)
    members = variant(deployable, candidate, (), "", candidate.replicas)
    values = {
        "name": deployable.name,
        "region": candidate.offer.region,
        "weights": gated,
        "container": variables,
        "variant": {name: value for name, value in members.items() if name != "ModelName"},
    }
    return Artifact.of(form, FILE, render_text(f"{FILE}.j2", values, templates_dir=templates_dir))
