"""Application Auto Scaling of endpoints, on the concurrent requests of a variant's instances."""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, RefusedError, json_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.sagemaker.endpoint import Endpoint

    Endpoints = Mapping[tuple[str, str], Endpoint]

_DIMENSION: Final = "sagemaker:variant:DesiredInstanceCount"
# The metric has a value every 10 s. Target tracking scales out after three that are too high, and in after 15 minutes
# of low ones: Application Auto Scaling User Guide, "How target tracking works".
_PERIOD_S: Final = 10.0
_OUT: Final = 3
_IN: Final = 90
_IN_SHARE: Final = 0.9
_COOLDOWN_S: Final = 300.0
_NEEDS_TARGET: Final = frozenset({"PutScalingPolicy", "DeregisterScalableTarget"})


def _moto(region: str) -> Any:  # noqa: ANN401 -- moto has no types to name
    return applicationautoscaling_backends[DEFAULT_ACCOUNT_ID][region]


def targets_of(region: str, endpoint: str = "") -> list[Any]:
    """Return the scalable targets of an endpoint's variants, or of all endpoints."""
    known = _moto(region).targets.get(_DIMENSION, {}).values()
    return [one for one in known if not endpoint or one.resource_id.split("/")[1] == endpoint]


def forget(region: str, endpoint: str) -> None:
    """Deregister the variants of an endpoint."""
    for target in targets_of(region, endpoint):
        del _moto(region).targets[_DIMENSION][target.resource_id]
        _forget_policies(region, target.resource_id)


def _forget_policies(region: str, resource: str) -> None:
    policies = _moto(region).policies
    for key in [key for key, policy in policies.items() if policy.resource_id == resource]:
        del policies[key]


@dataclass(slots=True)
class _History:
    """A variant's latest values of the metric, and when it was scaled last."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=_IN))
    scaled: float = -math.inf


class Scaling:
    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._next = 0.0
        self._histories: dict[tuple[str, str], _History] = {}
        self._tags: dict[str, dict[str, str]] = {}

    def answer(self, call: Call, endpoints: Endpoints) -> Answer | None:
        """Refuse what AWS would refuse, and answer what moto can't: tags."""
        resource = call.text("ResourceId")
        if call.action == "ListTagsForResource":
            return json_answer({"Tags": self._tags_of(call)}, content_type=AMZ_JSON)
        if call.text("ServiceNamespace") != "sagemaker":
            return None
        if call.action == "DescribeScalingActivities":
            found = endpoints.get((call.region, resource.removeprefix("endpoint/").partition("/variant/")[0]))
            return json_answer({"ScalingActivities": _activities(found)}, content_type=AMZ_JSON)
        if call.action in _NEEDS_TARGET and resource not in {one.resource_id for one in targets_of(call.region)}:
            what = f"resource ID: {resource}, scalable dimension: {call.text('ScalableDimension')}"
            message = f"No scalable target registered for service namespace: sagemaker, {what}"
            raise RefusedError("ObjectNotFoundException", message)
        if call.action == "DeregisterScalableTarget":  # it deletes the target's policies (API Reference)
            _forget_policies(call.region, resource)
        if call.action == "RegisterScalableTarget":
            return json_answer({"ScalableTargetARN": self._register(call, endpoints)}, content_type=AMZ_JSON)
        return None

    def _register(self, call: Call, endpoints: Endpoints) -> str:
        name, _, variant = call.text("ResourceId").removeprefix("endpoint/").partition("/variant/")
        endpoint = endpoints.get((call.region, name))
        if endpoint is None or variant not in endpoint.desired:
            raise RefusedError("ValidationException", f"Resource not found: {call.text('ResourceId')}")
        given = [call.params.get(key) for key in ("MinCapacity", "MaxCapacity", "RoleARN", "SuspendedState")]
        place = (call.params[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension"))
        target = _moto(call.region).register_scalable_target(*place, *given)
        self._tags.setdefault(target.arn, dict(call.params.get("Tags") or {}))
        return str(target.arn)

    def _tags_of(self, call: Call) -> dict[str, str]:
        arn = call.text("ResourceARN")
        if arn not in {one.arn for one in targets_of(call.region)}:
            raise RefusedError("ResourceNotFoundException", f"The resource doesn't exist: {arn}")
        return self._tags[arn]

    def step(self, endpoints: Endpoints) -> None:
        """Take a value of the metric every 10 s, and scale."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PERIOD_S / self._speed
        for (region, name), endpoint in endpoints.items():
            for target in targets_of(region, name):
                if endpoint.shown.endpoint_status == "InService":
                    self._evaluate(region, endpoint, target)

    def _evaluate(self, region: str, endpoint: Endpoint, target: Any) -> None:  # noqa: ANN401 -- moto's own class
        variant = target.resource_id.rpartition("/")[2]
        serving = endpoint.serving(variant)
        history = self._histories.setdefault((region, target.resource_id), _History())
        history.values.append(sum(len(node.requests) for node in serving) / max(1, len(serving)))
        found = [one for one in _moto(region).policies.values() if one.resource_id == target.resource_id]
        rule = (found[0].target_tracking_scaling_policy_configuration if found else None) or {}
        wanted = _wanted(history.values, rule["TargetValue"], len(serving)) if rule else len(serving)
        wanted = max(target.min_capacity, min(target.max_capacity, wanted))
        cooldown_s = rule.get("ScaleOutCooldown" if wanted > len(serving) else "ScaleInCooldown", _COOLDOWN_S)
        if wanted != len(serving) and time.monotonic() - history.scaled >= cooldown_s / self._speed:
            self._histories[region, target.resource_id] = _History(scaled=time.monotonic())
            endpoint.scaled.append(_activity(target, found[0].policy_name if found else "", len(serving), wanted))
            endpoint.scale({variant: wanted})


def _activity(target: Any, policy: str, before: int, wanted: int) -> dict[str, Any]:  # noqa: ANN401 -- moto's own class
    """Return a scaling activity, in AWS's words as its user guide quotes them for another service."""
    alarm = f"TargetTracking-{target.resource_id}-Alarm{'High' if wanted > before else 'Low'}"
    return {
        "ActivityId": secrets.token_hex(16),
        "ServiceNamespace": "sagemaker",
        "ResourceId": target.resource_id,
        "ScalableDimension": _DIMENSION,
        "Description": f"Setting desired instance count to {wanted}.",
        "Cause": f"monitor alarm {alarm} in state ALARM triggered policy {policy}",
        "StartTime": time.time(),
        "StatusCode": "Successful",
        "StatusMessage": f"Successfully set desired instance count to {wanted}. Change successfully fulfilled by "
        "sagemaker.",
    }


def _activities(endpoint: Endpoint | None) -> list[dict[str, Any]]:
    """Return what was done, the last first."""
    return list(reversed(endpoint.scaled)) if endpoint is not None else []


def _wanted(values: deque[float], target: float, count: int) -> int:
    if min([*values][-_OUT:]) > target and len(values) >= _OUT:
        return math.ceil(count * values[-1] / target)
    if len(values) == _IN and max(values) < target * _IN_SHARE:
        return max(1, math.ceil(count * max(values) / target))
    return count
