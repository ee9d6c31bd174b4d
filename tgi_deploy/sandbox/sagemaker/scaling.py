"""Application Auto Scaling of endpoints, on the concurrent requests of a variant."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, RefusedError, json_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.sagemaker.endpoint import Endpoint

    Endpoints = Mapping[tuple[str, str], Endpoint]

_DIMENSION: Final = "sagemaker:variant:DesiredInstanceCount"
_METRIC: Final = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
# Target tracking's alarms: Application Auto Scaling User Guide, "How target tracking works"; the metric has a value
# every 10 s.
_PERIOD_S: Final = 10.0
_OUT: Final = 3
_IN: Final = 90
_IN_SHARE: Final = 0.9
_COOLDOWN_S: Final = 300.0


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
    """API Reference, "DeregisterScalableTarget": it deletes the policies of the target."""
    policies = _moto(region).policies
    for key in [key for key, policy in policies.items() if policy.resource_id == resource]:
        del policies[key]


class Scaling:
    """What scales, by resource: its latest values of the metric, and when it scaled last."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._next = 0.0
        self._values: dict[str, deque[float]] = {}
        self._scaled: dict[str, float] = {}
        self._activities: list[dict[str, Any]] = []

    def answer(self, call: Call, endpoints: Endpoints) -> Answer | None:
        """Refuse what AWS would refuse, and answer what moto can't."""
        resource = call.text("ResourceId")
        if call.text("ServiceNamespace") != "sagemaker":
            return None
        _, _, rest = resource.partition("endpoint/")
        name, _, variant = rest.partition("/variant/")
        endpoint = endpoints.get((call.region, name))
        known = any(target.resource_id == resource for target in targets_of(call.region))
        if call.action == "RegisterScalableTarget" and (endpoint is None or variant not in endpoint.desired):
            raise RefusedError("ValidationException", f"Resource not found: {resource}")
        if call.action in {"PutScalingPolicy", "DeregisterScalableTarget"} and not known:
            what = f"resource ID: {resource}, scalable dimension: {call.text('ScalableDimension')}"
            message = f"No scalable target registered for service namespace: sagemaker, {what}"
            raise RefusedError("ObjectNotFoundException", message)
        if call.action == "DeregisterScalableTarget":
            _forget_policies(call.region, resource)
        if call.action == "DescribeScalingActivities":
            found = [one for one in self._activities if resource in {"", one["ResourceId"]}]
            return json_answer({"ScalingActivities": found[::-1]}, content_type=AMZ_JSON)
        return None

    def step(self, endpoints: Endpoints) -> None:
        """Take a value of the metric every 10 s, and scale."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PERIOD_S / self._speed
        for (region, name), endpoint in endpoints.items():
            for target in targets_of(region, name):
                self._evaluate(region, endpoint, target)

    def _evaluate(self, region: str, endpoint: Endpoint, target: Any) -> None:  # noqa: ANN401 -- moto's own class
        variant = target.resource_id.rpartition("/")[2]
        serving = endpoint.serving(variant)
        policy = next((one for one in _moto(region).policies.values() if one.resource_id == target.resource_id), None)
        if policy is None or endpoint.shown.endpoint_status != "InService" or not serving:
            return
        rule = policy.target_tracking_scaling_policy_configuration
        values = self._values.setdefault(target.resource_id, deque(maxlen=_IN))
        values.append(sum(node.in_flight for node in serving) / len(serving))
        wanted = _wanted(values, rule["TargetValue"], len(serving))
        wanted = max(target.min_capacity, min(target.max_capacity, wanted))
        cooldown_s = rule.get("ScaleOutCooldown" if wanted > len(serving) else "ScaleInCooldown", _COOLDOWN_S)
        since = time.monotonic() - self._scaled.get(target.resource_id, -math.inf)
        if wanted != len(serving) and since >= cooldown_s / self._speed:
            self._scaled[target.resource_id] = time.monotonic()
            values.clear()
            endpoint.begin_scaling({variant: wanted})
            self._activities.append(_activity(target, wanted))


def _wanted(values: deque[float], target: float, count: int) -> int:
    if len(values) >= _OUT and min(list(values)[-_OUT:]) > target:
        return math.ceil(count * values[-1] / target)
    if len(values) == _IN and max(values) < target * _IN_SHARE:
        return max(1, math.ceil(count * max(values) / target))
    return count


def _activity(target: Any, wanted: int) -> dict[str, Any]:  # noqa: ANN401 -- moto's own class
    return {
        "ActivityId": f"{time.time_ns():x}",
        "ServiceNamespace": "sagemaker",
        "ResourceId": target.resource_id,
        "ScalableDimension": _DIMENSION,
        "Description": f"Setting desired instance count to {wanted}.",
        "Cause": f"monitor alarm of {_METRIC}",
        "StartTime": time.time(),
        "StatusCode": "Successful",
        "StatusMessage": f"Successfully set desired instance count to {wanted}.",
    }
