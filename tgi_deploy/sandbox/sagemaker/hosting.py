"""Answers SageMaker's calls about endpoints, which moto lacks; a thread advances the endpoints."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.logs.models import logs_backends

from tgi_deploy.sandbox import roles
from tgi_deploy.sandbox.guest.spawn import Spawner
from tgi_deploy.sandbox.sagemaker import rules
from tgi_deploy.sandbox.sagemaker.endpoint import Deployment, Endpoint, SandboxRegion, Variant
from tgi_deploy.sandbox.sagemaker.runtime import invoke
from tgi_deploy.sandbox.sagemaker.scaling import Scaling, forget, targets_of
from tgi_deploy.sandbox.wire import AMZ_JSON, Answer, Call, json_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tgi_deploy.sandbox.faults import FaultTable

_TICK_S: Final = 0.05
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
        self._scaling = Scaling(speed)
        self._lines: deque[tuple[str, str, str, dict[str, Any]]] = deque()
        self._closed = threading.Event()
        roles.RUNNERS["aws-sdk:sagemaker:deleteEndpoint"] = self._delete_as
        threading.Thread(target=self._run, name="endpoints", daemon=True).start()

    def answer(self, call: Call) -> Answer | None:
        """Answer a call, or return None if moto's answer suffices. Raises RefusedError."""
        if call.service == "application-autoscaling":
            return self._scaling.answer(call, self._endpoints)
        if call.service == "servicequotas":
            listed = call.action == "ListServiceQuotas"
            return json_answer(rules.list_quotas(call), content_type=AMZ_JSON) if listed else None
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
            self._lines = deque()  # what ends still writes into the former one
        for node in nodes:
            node.stop()

    def close(self) -> None:
        """End everything, and wait for it."""
        self._closed.set()
        self.clear()
        self._spawner.end_all(grace_s=1.0)

    def _run(self) -> None:
        while not self._closed.wait(_TICK_S):
            with self._lock:
                for (region, name), endpoint in list(self._endpoints.items()):
                    endpoint.step()
                    if endpoint.deleted:
                        del self._endpoints[region, name]
                        rules.backend(region).endpoints.pop(name, None)
                        forget(region, name)
                self._scaling.step(self._endpoints)
                self._flush()

    def _flush(self) -> None:
        while self._lines:
            region, group, stream, event = self._lines.popleft()
            logs = logs_backends[DEFAULT_ACCOUNT_ID][region]
            logs.ensure_log_group(group)
            logs.ensure_log_stream(group, stream)
            logs.put_log_events(group, stream, [event])

    def _region(self, name: str) -> SandboxRegion:
        lines = self._lines

        def line(group: str, stream: str, text: str) -> None:
            # CloudWatch Logs takes no empty event.
            lines.append((name, group, stream, {"timestamp": int(time.time() * 1000), "message": text or " "}))

        return SandboxRegion(name=name, faults=self._faults, spawner=self._spawner, speed=self._speed, line=line)

    def _create(self, call: Call) -> dict[str, Any]:
        region, name, config = call.region, call.text("EndpointName"), call.text("EndpointConfigName")
        variants = _variants(region, config)
        self._refuse_quota(region, {variant.pools[0][0]: variant.count for variant in variants})
        shown = rules.backend(region).create_endpoint(name, config, call.params.get("Tags") or [])
        endpoint = self._endpoints[region, name] = Endpoint(shown, self._region(region), variants)
        endpoint.create()
        return {"EndpointArn": shown.arn}

    def _update(self, call: Call) -> dict[str, Any]:
        endpoint, config = self._idle(call), call.text("EndpointConfigName")
        variants = _variants(call.region, config)
        policy = call.params.get("DeploymentConfig") or {}
        kept = endpoint.desired if call.params.get("RetainAllVariantProperties") else {}
        desired = {variant.name: kept.get(variant.name, variant.count) for variant in variants}
        deployment = Deployment(config=config, variants=variants, desired=desired, policy=policy)
        for name, count in desired.items():
            rules.refuse_batch(policy.get("RollingUpdatePolicy", {}).get("MaximumBatchSize"), count)
            kind = next(variant.pools[0][0] for variant in variants if variant.name == name)
            self._refuse_quota(call.region, {kind: deployment.batch(name)})
        endpoint.update(deployment)
        return {"EndpointArn": endpoint.shown.arn}

    def _scale(self, call: Call) -> dict[str, Any]:
        endpoint = self._idle(call)
        wanted = {item["VariantName"]: item for item in call.params["DesiredWeightsAndCapacities"]}
        absent = ", ".join(sorted(wanted.keys() - endpoint.desired.keys()))
        if absent:
            config = endpoint.shown.endpoint_config_name
            message = f'The variant name(s) "{absent}" is/are not present within endpoint configuration "{config}".'
            raise rules.invalid(message)
        counts = {name: item["DesiredInstanceCount"] for name, item in wanted.items() if "DesiredInstanceCount" in item}
        kinds = {variant.name: variant.pools[0][0] for variant in endpoint.variants}
        more = {kinds[name]: count - endpoint.desired[name] for name, count in counts.items()}
        self._refuse_quota(call.region, more)
        endpoint.scale(counts)
        return {"EndpointArn": endpoint.shown.arn}

    def _delete(self, call: Call) -> dict[str, Any]:
        self._idle(call).delete()
        return {}

    def _delete_as(self, region: str, role_arn: str, given: Mapping[str, Any]) -> None:
        """Delete an endpoint with a role of EventBridge Scheduler, if that may and the endpoint is not busy."""
        name = str(given.get("EndpointName", ""))
        endpoint = self._endpoints.get((region, name))
        if endpoint is None or endpoint.busy:
            return
        facts = {f"aws:ResourceTag/{tag['Key']}": tag["Value"] for tag in endpoint.shown.tags}
        may = roles.may_schedule(role_arn, "sagemaker:DeleteEndpoint", endpoint.shown.arn, facts)
        for target in targets_of(region, name):
            may = may and roles.may_schedule(role_arn, _DEREGISTER, target.arn, {})
        if may:
            endpoint.delete()

    def _idle(self, call: Call) -> Endpoint:
        """Return an endpoint that is not busy. All calls but DeleteEndpoint need its configuration."""
        endpoint = self._endpoints[call.region, call.text("EndpointName")]
        arn, config = endpoint.shown.arn, endpoint.shown.endpoint_config_name
        if endpoint.busy:
            raise rules.invalid(f'Cannot update in-progress endpoint "{arn}".')
        if call.action != "DeleteEndpoint":
            # "DeleteEndpoint is the only operation that can be performed on a failed endpoint": DescribeEndpoint.
            if endpoint.shown.endpoint_status == "Failed":
                raise rules.invalid(f'Cannot update failed endpoint "{arn}". The only operation is DeleteEndpoint.')
            rules.must_exist(call.region, "EndpointConfig", config)
        return endpoint

    def _refuse_quota(self, region: str, more: Mapping[str, int]) -> None:
        nodes = [node for (where, _), found in self._endpoints.items() if where == region for node in found.nodes]
        for kind, count in more.items():
            rules.refuse_quota(kind, sum(node.spec.instance_type == kind for node in nodes), count)


def _variants(region: str, config: str) -> tuple[Variant, ...]:
    """Raises RefusedError for a configuration or a model that does not exist."""
    rules.must_exist(region, "EndpointConfig", config)
    try:
        return tuple(
            Variant.of(region, item) for item in rules.backend(region).endpoint_configs[config].production_variants
        )
    except KeyError as model:
        rules.must_exist(region, "Model", str(model.args[0]))
        raise
