"""The desired resources of a deployment: role, limits, model, the alarm of an update, and endpoint. Pure.

The endpoint's name reserves the deployment's name, and so does the name of its first model, which exists before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.targets.sagemaker.alarms import ALARM
from tgi_deploy.targets.sagemaker.endpoints import ENDPOINT
from tgi_deploy.targets.sagemaker.limits import ROLE, end_resources
from tgi_deploy.targets.sagemaker.models import MODEL
from tgi_deploy.targets.sagemaker.names import endpoint_name, place_of, revision_name
from tgi_deploy.targets.sagemaker.requests import role_statements
from tgi_deploy.values.resource import Ref, Resource, machine_key, revision_key
from tgi_deploy.values.serving import INVOKED_NOTE, YES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tgi_deploy.targets.sagemaker.options import SageMakerOptions

ENDPOINT_ROLE: Final = "endpoint-role"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosted:
    """Everything that determines the resources. `container` and `variant` are members of AWS's requests.

    `secrets`: variables of the container → references. `ends_at`: when its limits end it, None for never.
    `most`: to how many machines AWS may scale it; 0 if the number is fixed. `drain_s`: how long their answers may take.
    `moves`: an endpoint that serves is moved to it, so that there is a revision to go back to.
    """

    name: str
    deployment_id: str
    region: str
    revision: int
    options: SageMakerOptions
    container: Mapping[str, Any]
    variant: Mapping[str, Any]
    replicas: int
    drain_s: int
    secrets: Mapping[str, str] = field(default_factory=dict)
    ends_at: datetime | None = None
    most: int = 0
    moves: bool = False

    @property
    def place(self) -> str:
        return place_of(self.region)


def resources(hosted: Hosted) -> tuple[Resource, ...]:
    """Return role, limits, model, the alarm of an update of an endpoint that serves, and endpoint."""
    limits = () if hosted.ends_at is None else end_resources(
        name=hosted.name, deployment_id=hosted.deployment_id, region=hosted.region, at=hosted.ends_at
    )  # fmt: skip
    role = (_role(hosted),) if hosted.options.create_role else ()
    alarm = (_alarm(hosted),) if hosted.moves else ()
    return (*role, *limits, _model(hosted), *alarm, _endpoint(hosted))


def _role(hosted: Hosted) -> Resource:
    caller = f"arn:{{partition}}:sagemaker:{hosted.region}:*:*"
    return Resource(
        key=ENDPOINT_ROLE,
        kind=ROLE,
        place=hosted.place,
        properties={
            "name": f"tgi-deploy-{hosted.deployment_id}-{hosted.region}-endpoint",
            "deployment": hosted.name,
            "trust": {
                "Effect": "Allow",
                "Principal": {"Service": "sagemaker.amazonaws.com"},
                "Action": "sts:AssumeRole",
                "Condition": {"ArnLike": {"aws:SourceArn": caller}},
            },
            "statements": role_statements(hosted.name, hosted.region, hosted.options),
        },
        mutable=("statements",),
    )


def _model(hosted: Hosted) -> Resource:
    role = hosted.options.role or Ref(key=ENDPOINT_ROLE, attribute="arn")
    return Resource(
        key=revision_key(MODEL, hosted.revision),
        kind=MODEL,
        place=hosted.place,
        properties={
            "name": revision_name(hosted.name, hosted.revision),
            "role": role,
            "container": dict(hosted.container),
            "secrets": dict(hosted.secrets),
        },
    )


def _alarm(hosted: Hosted) -> Resource:
    return Resource(
        key=revision_key(ALARM, hosted.revision),
        kind=ALARM,
        place=hosted.place,
        properties={"name": revision_name(hosted.name, hosted.revision), "endpoint": endpoint_name(hosted.name)},
    )


def _endpoint(hosted: Hosted) -> Resource:
    model = {"ModelName": Ref(key=revision_key(MODEL, hosted.revision), attribute="name")}
    fixed = {name: value for name, value in hosted.variant.items() if name != "InitialInstanceCount"}
    return Resource(
        key=machine_key(ENDPOINT, hosted.revision),
        kind=ENDPOINT,
        place=hosted.place,
        properties={
            "name": revision_name(hosted.name, hosted.revision),
            "endpoint": endpoint_name(hosted.name),
            "variant": {**fixed, **model},
            "replicas": hosted.replicas,
            "most": hosted.most,
            "drain_s": hosted.drain_s,
            "alarm": revision_name(hosted.name, hosted.revision) if hosted.moves else "",
        },
        mutable=("replicas", "most", "drain_s", "alarm"),
        notes={INVOKED_NOTE: YES},
        is_machine=True,
    )
