"""SageMaker's calls about endpoints, answered around moto; endpoints go on with what they do in a thread."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.logs.models import logs_backends

from tgi_deploy.sandbox import roles, schedules
from tgi_deploy.sandbox.guest.spawn import Spawner
from tgi_deploy.sandbox.sagemaker import rules, scaling
from tgi_deploy.sandbox.sagemaker.endpoint import Endpoint, Surroundings, Variant, variants_of
from tgi_deploy.sandbox.sagemaker.runtime import invoke
from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, RefusedError, json_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.sandbox.faults import FaultTable

_TICK_S: Final = 0.05
# Instances of each type that an account may have in endpoints.
QUOTA_INSTANCES: Final = 8
_PAGE: Final = 100
_LIMIT: Final = (
    "The account-level service limit '{kind} for endpoint usage' is {most} Instances, with current utilization of "
    "{used} Instances and a request delta of {more} Instances. Please use AWS Service Quotas to request an increase "
    "for this quota. If AWS Service Quotas is not available, contact AWS support to request an increase for this quota."
)
# DeleteEndpoint deregisters the endpoint's scalable targets, and fails without this permission.
_DEREGISTER: Final = "application-autoscaling:DeregisterScalableTarget"


class Hosting:
    """All endpoints. `lock` guards moto and them; `home` is a folder for their processes."""

    def __init__(self, *, home: Path, faults: FaultTable, speed: float, lock: threading.RLock) -> None:
        rules.install()
        groups = home / "groups"
        groups.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8"}
        self._spawner = Spawner(groups=groups, environment=environment, home=home)
        self._faults, self._speed, self._lock = faults, speed, lock
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._scaling = scaling.Scaling(speed)
        self._lines: deque[tuple[str, str, str, dict[str, Any]]] = deque()
        self._closed = threading.Event()
        schedules.RUNNERS["aws-sdk:sagemaker:deleteEndpoint"] = self._delete_as
        threading.Thread(target=self._run, name="endpoints", daemon=True).start()

    def answer(self, call: Call) -> Answer | None:
        """Answer a call, or None if moto's answer suffices. Raises RefusedError."""
        if call.service == "application-autoscaling":
            return self._scaling.answer(call, self._endpoints)
        if call.service == "servicequotas":
            return _quotas(call)
        rules.refuse(call)
        actions: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            "CreateEndpoint": self._create,
            "UpdateEndpoint": self._update,
            "UpdateEndpointWeightsAndCapacities": self._scale,
            "DeleteEndpoint": self._delete,
            "AddTags": rules.add_tags,
        }
        return json_answer(actions[call.action](call), content_type=AMZ_JSON) if call.action in actions else None

    def invoke(self, call: Call) -> Answer:
        """Answer a call of the runtime, which may take long: not under the lock."""
        return invoke(call, self._endpoints.get((call.region, call.text("EndpointName"))), self._speed)

    def clear(self) -> None:
        """Forget the endpoints, and end their processes."""
        with self._lock:
            nodes = [node for endpoint in self._endpoints.values() for node in endpoint.nodes]
            self._endpoints.clear()
            self._lines.clear()
        for node in nodes:
            node.stop()

    def close(self) -> None:
        """End everything, and wait for it."""
        self._closed.set()
        self.clear()
        self._spawner.end_all(grace_s=1.0)

    def _delete_as(self, region: str, role_arn: str, given: Mapping[str, Any]) -> None:
        """Delete an endpoint with a role of EventBridge Scheduler, if that may and the endpoint is not busy."""
        name = str(given.get("EndpointName", ""))
        endpoint = self._endpoints.get((region, name))
        if endpoint is None or endpoint.busy:
            return
        facts = {f"aws:ResourceTag/{tag['Key']}": tag["Value"] for tag in endpoint.shown.tags}
        may = roles.may_schedule(role_arn, "sagemaker:DeleteEndpoint", endpoint.shown.arn, facts)
        for target in scaling.targets_of(region, name):
            may = may and roles.may_schedule(role_arn, _DEREGISTER, target.arn, {})
        if may:
            endpoint.begin_deletion()

    def _run(self) -> None:
        while not self._closed.wait(_TICK_S):
            with self._lock:
                for key, endpoint in list(self._endpoints.items()):
                    endpoint.step()
                    if endpoint.deleted:
                        self._remove(key)
                self._scaling.step(self._endpoints)
                self._flush()

    def _remove(self, key: tuple[str, str]) -> None:
        """Forget a deleted endpoint. Its scalable targets go, too: see `_DEREGISTER`."""
        region, name = key
        del self._endpoints[key]
        rules.backend(region).endpoints.pop(name, None)
        scaling.forget(region, name)

    def _flush(self) -> None:
        while self._lines:
            region, group, stream, event = self._lines.popleft()
            logs = logs_backends[DEFAULT_ACCOUNT_ID][region]
            logs.ensure_log_group(group)
            logs.ensure_log_stream(group, stream)
            logs.put_log_events(group, stream, [event])

    def _around(self, region: str) -> Surroundings:
        def line(group: str, stream: str, text: str) -> None:
            # CloudWatch Logs takes no empty event.
            self._lines.append((region, group, stream, {"timestamp": int(time.time() * 1000), "message": text or " "}))

        return Surroundings(region=region, faults=self._faults, spawner=self._spawner, speed=self._speed, line=line)

    def _create(self, call: Call) -> dict[str, Any]:
        region, name, config = call.region, call.text("EndpointName"), call.text("EndpointConfigName")
        rules.must_exist(region, "EndpointConfig", config)
        variants = self._variants(region, config)
        self._refuse_quota(region, {variant.pools[0][0]: variant.count for variant in variants})
        shown = rules.backend(region).create_endpoint(name, config, call.params.get("Tags") or [])
        endpoint = self._endpoints[region, name] = Endpoint(shown, self._around(region), variants)
        endpoint.begin_creation()
        return {"EndpointArn": shown.arn}

    def _update(self, call: Call) -> dict[str, Any]:
        endpoint = self._idle(call)
        variants = self._variants(call.region, call.text("EndpointConfigName"))
        policy = call.params.get("DeploymentConfig") or {}
        if call.params.get("RetainDeploymentConfig"):
            policy = endpoint.shown.last_deployment_config or {}
        keeps = call.params.get("RetainAllVariantProperties") and not any(
            item["VariantPropertyType"] == "DesiredInstanceCount"
            for item in call.params.get("ExcludeRetainedVariantProperties") or ()
        )
        desired = {item.name: endpoint.desired.get(item.name, item.count) if keeps else item.count for item in variants}
        for count in desired.values():
            rules.refuse_deployment(policy, count)
        rolls = "RollingUpdatePolicy" in policy
        self._refuse_quota(call.region, {item.pools[0][0]: 1 if rolls else desired[item.name] for item in variants})
        endpoint.begin_update(variants, desired, policy)
        return {"EndpointArn": endpoint.shown.arn}

    def _scale(self, call: Call) -> dict[str, Any]:
        endpoint = self._idle(call)
        wanted = {item["VariantName"]: item for item in call.params["DesiredWeightsAndCapacities"]}
        if not wanted.keys() <= endpoint.desired.keys():
            absent = ", ".join(sorted(wanted.keys() - endpoint.desired.keys()))
            raise rules.invalid(
                f'The variant name(s) "{absent}" is/are not present within endpoint configuration '
                f'"{endpoint.shown.endpoint_config_name}".'
            )
        counts = {name: item["DesiredInstanceCount"] for name, item in wanted.items() if "DesiredInstanceCount" in item}
        kinds = {variant.name: variant.pools[0][0] for variant in endpoint.variants}
        self._refuse_quota(call.region, {kinds[name]: count - endpoint.desired[name] for name, count in counts.items()})
        endpoint.weights |= {name: item["DesiredWeight"] for name, item in wanted.items() if "DesiredWeight" in item}
        endpoint.begin_scaling(counts)
        return {"EndpointArn": endpoint.shown.arn}

    def _delete(self, call: Call) -> dict[str, Any]:
        self._idle(call, also=("Failed", "UpdateRollbackFailed")).begin_deletion()
        return {}

    def _idle(self, call: Call, also: tuple[str, ...] = ()) -> Endpoint:
        """Return an endpoint that can be changed: its configuration must still exist, except to delete it."""
        endpoint = self._endpoints[call.region, call.text("EndpointName")]
        status, arn = endpoint.shown.endpoint_status, endpoint.shown.arn
        if endpoint.busy:
            raise rules.invalid(f'Cannot update in-progress endpoint "{arn}".')
        if not also:
            if status == "Failed":
                raise rules.invalid(f'Cannot update failed endpoint "{arn}". The only operation is DeleteEndpoint.')
            rules.must_exist(call.region, "EndpointConfig", endpoint.shown.endpoint_config_name)
        return endpoint

    def _variants(self, region: str, config: str) -> tuple[Variant, ...]:
        try:
            return variants_of(region, config)
        except KeyError as model:
            raise rules.invalid(f'Could not find model "{rules.arn(region, "Model", model.args[0])}".') from None

    def _refuse_quota(self, region: str, delta: Mapping[str, int]) -> None:
        nodes = [node for (where, _), found in self._endpoints.items() if where == region for node in found.nodes]
        for kind, more in delta.items():
            used = sum(node.spec.instance_type == kind for node in nodes)
            if more > 0 and used + more > QUOTA_INSTANCES:
                message = _LIMIT.format(kind=kind, most=QUOTA_INSTANCES, used=used, more=more)
                raise RefusedError("ResourceLimitExceeded", message)


def _quotas(call: Call) -> Answer | None:
    """Return SageMaker's quotas for endpoint usage. Their codes are made up."""
    every = [_quota(call.region, kind) for kind in rules.instance_types()]
    if call.action == "GetServiceQuota":
        found = [one for one in every if one["QuotaCode"] == call.text("QuotaCode")]
        return json_answer({"Quota": found[0]}, content_type=AMZ_JSON) if found else None
    if call.action not in {"ListServiceQuotas", "ListAWSDefaultServiceQuotas"}:
        return None
    start, size = int(call.params.get("NextToken", 0)), int(call.params.get("MaxResults", _PAGE))
    page: dict[str, Any] = {"Quotas": every[start : start + size]}
    if start + size < len(every):
        page["NextToken"] = str(start + size)
    return json_answer(page, content_type=AMZ_JSON)


def _quota(region: str, kind: str) -> dict[str, Any]:
    code = f"L-{sha256(kind.encode()).hexdigest()[:8].upper()}"
    return {
        "ServiceCode": "sagemaker",
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{DEFAULT_ACCOUNT_ID}:sagemaker/{code}",
        "QuotaCode": code,
        "QuotaName": f"{kind} for endpoint usage",
        "Value": float(QUOTA_INSTANCES),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
