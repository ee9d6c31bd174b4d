"""Autoscaling of an endpoint by the number of concurrent requests, through Application Auto Scaling.

Properties: name (of the endpoint), least and most (machines), concurrency (the concurrent requests that the plan
promises for one machine). The target carries the tags; its only policy is deleted with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, carries, each
from tgi_deploy.targets.reply import ReplyError
from tgi_deploy.targets.sagemaker.listing import described, found_with_tags
from tgi_deploy.targets.sagemaker.names import PREFIX, VARIANT, endpoint_name
from tgi_deploy.text import one_line
from tgi_deploy.values.resource import TAG_NAME, AutoscalerState, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.request import Replicas

TARGET: Final = "scalable-target"
SERVICE: Final = "application-autoscaling"
_NAMESPACE: Final = "sagemaker"
_DIMENSION: Final = "sagemaker:variant:DesiredInstanceCount"
_POLICY: Final = "tgi-deploy"
_TRACKING: Final = "TargetTrackingScaling"
# How many requests a model's container is processing, every 10 s (botocore, `MetricType`).
_METRIC: Final = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
# Machines are added before the planned number of users is reached, because one takes minutes to start.
SHARE: Final = 0.7
# A machine that has just started to serve, or has just lost its users, should not trigger the next change.
_OUT_S: Final = 300
_IN_S: Final = 900
# AWS does not document that the last change comes first. A page has at most 50.
_ACTIVITIES: Final = 50
_WORKED: Final = frozenset({"Successful", "InProgress", "Pending"})
_LONGEST_STATE: Final = 20
_LONGEST_WORDS: Final = 160
_YEARS: Final = range(2000, 9000)
_AT: Final = {"ServiceNamespace": _NAMESPACE, "ScalableDimension": _DIMENSION}


@dataclass(frozen=True, slots=True)
class ScalableTargets:
    api: Api
    rare: ClassVar = True
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        deployment = tags.get(TAG_NAME)
        asked = {"ResourceIds": [resource_id(endpoint_name(deployment))]} if deployment else {}
        found = self._described("listing scalable targets", **asked)
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- repeating this call changes nothing
        self._registered(properties, Tags=dict(tags))
        found = self.read({"id": resource_id(properties["name"])})
        if found is None:
            raise ResourceNotFoundError(f"registering {properties['name']} for scaling had no effect")
        return found

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Set the range and the policy."""
        self._registered(properties)
        configuration = {
            "TargetValue": round(properties["concurrency"] * SHARE, 3),
            "PredefinedMetricSpecification": {"PredefinedMetricType": _METRIC},
            "ScaleOutCooldown": _OUT_S,
            "ScaleInCooldown": _IN_S,
        }
        self.api.ask(
            "put_scaling_policy",
            "setting the autoscaling policy",
            lambda reply: reply.text("PolicyARN", prefix="arn:"),
            service=SERVICE,
            PolicyName=_POLICY,
            PolicyType=_TRACKING,
            ResourceId=attributes["id"],
            TargetTrackingScalingPolicyConfiguration=configuration,
            **_AT,
        )

    def _registered(self, properties: Mapping[str, Any], **more: Any) -> None:  # noqa: ANN401 -- the API's own
        self.api.ask(
            "register_scalable_target",
            "registering the endpoint for autoscaling",
            lambda reply: reply.text("ScalableTargetARN", prefix="arn:"),
            service=SERVICE,
            ResourceId=resource_id(properties["name"]),
            MinCapacity=properties["least"],
            MaxCapacity=properties["most"],
            **_AT,
            **more,
        )

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading the scalable target", ResourceIds=[attributes["id"]])
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove(
            "deregister_scalable_target",
            "deregistering the endpoint from autoscaling",
            service=SERVICE,
            ResourceId=attributes["id"],
            **_AT,
        )

    def _described(self, doing: str, **asked: Any) -> list[Found]:  # noqa: ANN401 -- the API's own
        listed = self.api.list(
            "describe_scalable_targets", doing, each("ScalableTargets", _target), service=SERVICE, **_AT, **asked
        )
        ours = (item for item in listed if item["id"].startswith(resource_id(PREFIX, variant="")))
        return found_with_tags(self.api, TARGET, ours, self._tags)

    def _tags(self, arn: str) -> dict[str, str] | None:
        """Return its tags; None if it was deregistered in between. Targets of before 2023 have no ARN and no tags."""
        if not arn:
            return None
        return described(self.api, "list_tags_for_resource", "reading a scalable target's tags",
                         lambda reply: reply.table("Tags"), service=SERVICE, ResourceARN=arn)  # fmt: skip


def state_of(api: Api, endpoint: str, wanted: Replicas) -> AutoscalerState:
    """Return the state of what changes an endpoint's number of machines within the range of the last `up`."""
    name = resource_id(endpoint)
    found = ScalableTargets(api).read({"id": name})
    problem = "AWS does not change the number: the endpoint is not registered for scaling"
    if found is not None:
        live = f"{found.attributes['least']}..{found.attributes['most']}"
        problem = "" if live == wanted.words else f"AWS keeps the number within {live}"
    return AutoscalerState(
        id=name,
        least=wanted.least,
        most=wanted.most or wanted.least,
        problem=problem,
        latest=_latest(api, name) if found is not None else "",
    )


def _latest(api: Api, name: str) -> str:
    """Return what AWS did last to an endpoint's number of machines, and why; empty if it did nothing in six weeks."""
    doing = "reading the last change of the number of machines"
    try:
        found = api.ask("describe_scaling_activities", doing, each("ScalingActivities", _activity), service=SERVICE,
                        ResourceId=name, MaxResults=_ACTIVITIES, **_AT)  # fmt: skip
    except DeployError as error:
        return f"unknown: {error.message}"
    return max(found, default=("", ""))[1]


def _activity(item: Reply) -> tuple[str, str]:
    """Return when a change began, in UTC, and a sentence: what, its state, and the cloud's reason."""
    began, state = moment_of(item.moment("StartTime")), one_line(item.text("StatusCode"), limit=_LONGEST_STATE)
    if began is None or began.year not in _YEARS:
        raise ReplyError("StartTime is not a plausible time")
    at = f"{began.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    why = item.optional_text("Cause") if state in _WORKED else item.optional_text("StatusMessage")
    words = one_line(item.text("Description").rstrip("."), limit=_LONGEST_WORDS)
    reason = one_line(why.rstrip("."), limit=_LONGEST_WORDS)
    return at, f"{at}: {words} ({state.lower()}){reason and f': {reason}'}"


def resource_id(endpoint: str, *, variant: str = VARIANT) -> str:
    """Return the id of an endpoint's variant in Application Auto Scaling."""
    return f"endpoint/{endpoint}" + (f"/variant/{variant}" if variant else "")


def _target(item: Reply) -> dict[str, str]:
    return {
        "id": item.text("ResourceId"),
        "arn": item.optional_text("ScalableTargetARN"),
        "created": item.moment("CreationTime"),
        "least": str(item.integer("MinCapacity")),
        "most": str(item.integer("MaxCapacity")),
    }
