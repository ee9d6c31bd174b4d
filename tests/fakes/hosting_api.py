# ruff: noqa: N803 -- the names of the API's parameters
"""SageMaker in memory, with what an endpoint needs beside it (IAM, EventBridge Scheduler, Application Auto Scaling,
CloudWatch), at the seam where the adapter calls boto3. Every call passes `enter` and `leave`, where a test can
count it, kill the caller, or make it fail. Calls of other services are denied.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from tgi_deploy.data_files import profiles_dir
from tgi_deploy.targets.aws.errors import ErrorTable

ARN = "arn:aws:{}:us-east-1:123456789012:{}"
ROLE_ARN = "arn:aws:iam::123456789012:role{}{}"
MADE = datetime(2026, 1, 9, tzinfo=UTC)
URL = "https://runtime.sagemaker.us-east-1.amazonaws.com"
_OK = {"ResponseMetadata": {"RequestId": "1", "HTTPStatusCode": 200}}


def refusal(code: str, message: str, operation: str = "Call") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}}, operation
    )


def absent(what: str, name: str) -> ClientError:
    return refusal("ValidationException", f'Could not find {what} "{name}".')


@dataclass
class FakeHosting:
    """`models`, `configs`, `endpoints`, … are by name. `looks`: how many reads show an endpoint as changing.

    `fails`: configurations that never become healthy, with the reason. `refusals`: call → the error of the next such
    calls. `lost`: calls whose reply is lost, once each. `full`: types without capacity. `decision`: what IAM's
    simulation answers. `quotas`: machines in endpoints by type, None if they can't be read.
    """

    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    endpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    scaled: dict[str, dict[str, Any]] = field(default_factory=dict)
    alarms: dict[str, dict[str, Any]] = field(default_factory=dict)
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: dict[str, list[str]] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, Exception] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    activities: list[dict[str, Any]] = field(default_factory=list)
    decision: str = "allowed"
    quotas: dict[str, float] | None = None
    looks: int = 1
    full: frozenset[str] = frozenset()
    after_call: Any = None

    @property
    def table(self) -> ErrorTable:
        return ErrorTable.of(json.loads(Path(profiles_dir(), "aws/errors.json").read_text(encoding="utf-8")))

    @property
    def everything(self) -> dict[str, list[str]]:
        """Return the names of all that exists, by kind."""
        kinds = ("models", "configs", "endpoints", "alarms", "scaled", "roles", "groups")
        return {kind: sorted(getattr(self, kind)) for kind in kinds if getattr(self, kind)}

    def client(self, _service: str, _region: str, *, creating: bool = False) -> Any:
        return _Client(self)

    def call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(method)
        self.sent.append((method, parameters))
        if method in self.refusals:
            raise self.refusals[method]
        own = getattr(self, f"_{method}", None)
        if own is None:
            raise refusal("AccessDeniedException", "not allowed", method)
        answer = own(**parameters)
        if self.after_call is not None:
            self.after_call(method)
        if method in self.lost:
            self.lost.remove(method)
            raise refusal("InternalError", "no reply", method) from None
        return {**(answer or {}), **_OK}

    # SageMaker

    def _create_model(self, ModelName: str, **rest: Any) -> dict[str, Any]:
        if ModelName in self.models:
            raise refusal("ValidationException", f'Cannot create already existing model "{ModelName}".')
        self.models[ModelName] = rest
        return {"ModelArn": ARN.format("sagemaker", f"model/{ModelName}")}

    def _describe_model(self, ModelName: str) -> dict[str, Any]:
        if ModelName not in self.models:
            raise absent("model", ModelName)
        return {"ModelArn": ARN.format("sagemaker", f"model/{ModelName}"), "CreationTime": MADE}

    def _delete_model(self, ModelName: str) -> None:
        if self.models.pop(ModelName, None) is None:
            raise absent("model", ModelName)

    def _list_models(self, NameContains: str) -> dict[str, Any]:
        return {"Models": self._listed(self.models, "Model", "model", NameContains)}

    def _create_endpoint_config(self, EndpointConfigName: str, **rest: Any) -> dict[str, Any]:
        if EndpointConfigName in self.configs:
            raise refusal(
                "ValidationException", f'Cannot create already existing endpoint configuration "{EndpointConfigName}".'
            )
        if rest["ProductionVariants"][0]["ModelName"] not in self.models:
            raise absent("model", rest["ProductionVariants"][0]["ModelName"])
        self.configs[EndpointConfigName] = rest
        return {"EndpointConfigArn": ARN.format("sagemaker", f"endpoint-config/{EndpointConfigName}")}

    def _describe_endpoint_config(self, EndpointConfigName: str) -> dict[str, Any]:
        if EndpointConfigName not in self.configs:
            raise absent("endpoint configuration", EndpointConfigName)
        arn = ARN.format("sagemaker", f"endpoint-config/{EndpointConfigName}")
        variants = self.configs[EndpointConfigName]["ProductionVariants"]
        return {"EndpointConfigArn": arn, "CreationTime": MADE, "ProductionVariants": variants}

    def _delete_endpoint_config(self, EndpointConfigName: str) -> None:
        if self.configs.pop(EndpointConfigName, None) is None:
            raise absent("endpoint configuration", EndpointConfigName)

    def _list_endpoint_configs(self, NameContains: str) -> dict[str, Any]:
        return {"EndpointConfigs": self._listed(self.configs, "EndpointConfig", "endpoint-config", NameContains)}

    def _create_endpoint(self, EndpointName: str, EndpointConfigName: str, Tags: list[Any]) -> dict[str, Any]:
        if EndpointName in self.endpoints:
            raise refusal("ValidationException", f'Cannot create already existing endpoint "{EndpointName}".')
        count = self._count(EndpointConfigName)
        self.endpoints[EndpointName] = {
            "Tags": Tags, "status": "Creating", "config": EndpointConfigName, "pending": EndpointConfigName,
            "left": self.looks, "count": count,
        }  # fmt: skip
        return {"EndpointArn": ARN.format("sagemaker", f"endpoint/{EndpointName}")}

    def _count(self, config: str) -> int:
        if config not in self.configs:
            raise absent("endpoint configuration", config)
        return self.configs[config]["ProductionVariants"][0]["InitialInstanceCount"]

    def _changeable(self, name: str) -> dict[str, Any]:
        if name not in self.endpoints:
            raise absent("endpoint", name)
        found = self.endpoints[name]
        if found["status"] in {"Creating", "Updating", "Deleting"}:
            raise refusal("ValidationException", f'Cannot update in-progress endpoint "{name}".')
        return found

    def _update_endpoint(self, EndpointName: str, EndpointConfigName: str, **rest: Any) -> dict[str, Any]:
        found = self._changeable(EndpointName)
        count = found["count"] if rest["RetainAllVariantProperties"] else self._count(EndpointConfigName)
        found.update(status="Updating", pending=EndpointConfigName, left=self.looks, count=count, why="")
        return {"EndpointArn": ARN.format("sagemaker", f"endpoint/{EndpointName}")}

    def _update_endpoint_weights_and_capacities(
        self, EndpointName: str, DesiredWeightsAndCapacities: list[Any]
    ) -> dict[str, Any]:
        found = self._changeable(EndpointName)
        found.update(count=DesiredWeightsAndCapacities[0]["DesiredInstanceCount"])
        return {"EndpointArn": ARN.format("sagemaker", f"endpoint/{EndpointName}")}

    def _describe_endpoint(self, EndpointName: str) -> dict[str, Any]:
        if EndpointName not in self.endpoints:
            raise absent("endpoint", EndpointName)
        found = self.endpoints[EndpointName]
        self._pass_time(EndpointName, found)
        count = {"DesiredInstanceCount": found["count"], "CurrentInstanceCount": found["count"]}
        pending = {"PendingDeploymentSummary": {"EndpointConfigName": found["pending"]}} if found["pending"] else {}
        return {
            "EndpointName": EndpointName,
            "EndpointArn": ARN.format("sagemaker", f"endpoint/{EndpointName}"),
            "EndpointStatus": found["status"],
            "EndpointConfigName": found["config"],
            "CreationTime": MADE,
            **pending,
            **({"FailureReason": found["why"]} if found.get("why") else {}),
            **({} if found["status"] == "Creating" else {"ProductionVariants": [{**self._machines(found), **count}]}),
        }

    def _machines(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the type of the machines; of several pools, the first that has room."""
        variants = self.configs.get(found["config"], {"ProductionVariants": [{}]})["ProductionVariants"]
        pools = [item["InstanceType"] for item in variants[0].get("InstancePools", ())]
        if not pools:
            return {"VariantName": "engine", "InstanceType": variants[0].get("InstanceType", "")}
        taken = next(name for name in pools if name not in self.full)
        counts = [{"InstanceType": name, "CurrentInstanceCount": int(name == taken)} for name in pools]
        return {"VariantName": "engine", "InstancePools": counts}

    def _pass_time(self, name: str, found: dict[str, Any]) -> None:
        if found["status"] == "Deleting":
            found["left"] -= 1
            if found["left"] < 0:
                del self.endpoints[name]
        elif found["pending"]:
            found["left"] -= 1
            if found["left"] < 0:
                why = self.fails.get(found["pending"], "")
                if not why:
                    found["config"] = found["pending"]
                failed = why and found["status"] == "Creating"
                found.update(status="Failed" if failed else "InService", pending="", why=why)

    def _delete_endpoint(self, EndpointName: str) -> None:
        self._changeable(EndpointName).update(status="Deleting", left=self.looks)

    def _list_endpoints(self, NameContains: str) -> dict[str, Any]:
        return {"Endpoints": self._listed(self.endpoints, "Endpoint", "endpoint", NameContains)}

    def _listed(self, what: dict[str, Any], member: str, kind: str, contains: str) -> list[dict[str, Any]]:
        return [
            {f"{member}Name": name, f"{member}Arn": ARN.format("sagemaker", f"{kind}/{name}"), "CreationTime": MADE}
            for name in what
            if contains in name
        ]

    def _tagged(self, arn: str) -> list[dict[str, str]]:
        kind, _, name = arn.split(":", 5)[5].partition("/")
        kinds = {"model": self.models, "endpoint-config": self.configs, "endpoint": self.endpoints}
        if name not in kinds[kind]:
            raise absent(kind, name)
        return kinds[kind][name]["Tags"]

    def _list_tags(self, ResourceArn: str) -> dict[str, Any]:
        return {"Tags": self._tagged(ResourceArn)}

    def _add_tags(self, ResourceArn: str, Tags: list[dict[str, str]]) -> dict[str, Any]:
        known = {item["Key"]: item for item in self._tagged(ResourceArn)} | {item["Key"]: item for item in Tags}
        self._tagged(ResourceArn)[:] = known.values()
        return {"Tags": self._tagged(ResourceArn)}

    # Application Auto Scaling

    def _register_scalable_target(self, ResourceId: str, **rest: Any) -> dict[str, Any]:
        known = self.scaled.setdefault(ResourceId, {"Tags": rest.get("Tags", {})})
        known.update(least=rest["MinCapacity"], most=rest["MaxCapacity"])
        return {"ScalableTargetARN": f"arn:aws:autoscaling:{ResourceId}"}

    def _describe_scalable_targets(self, ResourceIds: list[str] | None = None, **_rest: Any) -> dict[str, Any]:
        named = {name: item for name, item in self.scaled.items() if ResourceIds is None or name in ResourceIds}
        return {
            "ScalableTargets": [
                {
                    "ResourceId": name, "ScalableTargetARN": f"arn:aws:autoscaling:{name}", "CreationTime": MADE,
                    "MinCapacity": item["least"], "MaxCapacity": item["most"],
                }
                for name, item in named.items()
            ]
        }  # fmt: skip

    def _put_scaling_policy(self, ResourceId: str, **rest: Any) -> dict[str, Any]:
        self.scaled[ResourceId]["policy"] = rest["TargetTrackingScalingPolicyConfiguration"]
        return {"PolicyARN": "arn:aws:autoscaling:policy"}

    def _deregister_scalable_target(self, ResourceId: str, **_rest: Any) -> None:
        if self.scaled.pop(ResourceId, None) is None:
            raise refusal("ObjectNotFoundException", "no scalable target")

    def _describe_scaling_activities(self, ResourceId: str, **_rest: Any) -> dict[str, Any]:
        return {"ScalingActivities": self.activities} if ResourceId in self.scaled else {"ScalingActivities": []}

    # CloudWatch

    def _put_metric_alarm(self, AlarmName: str, **rest: Any) -> None:
        self.alarms.setdefault(AlarmName, rest)

    def _describe_alarms(self, AlarmNamePrefix: str = "", AlarmNames: Any = None, **_rest: Any) -> dict[str, Any]:
        named = [name for name in self.alarms if name.startswith(AlarmNamePrefix) and name in (AlarmNames or [name])]
        return {
            "MetricAlarms": [
                {"AlarmName": name, "AlarmArn": ARN.format("cloudwatch", f"alarm:{name}")} for name in named
            ]
        }

    def _delete_alarms(self, AlarmNames: list[str]) -> None:
        for name in AlarmNames:
            self.alarms.pop(name, None)

    # Service Quotas

    def _list_service_quotas(self, ServiceCode: str) -> dict[str, Any]:
        if self.quotas is None:
            raise refusal("AccessDeniedException", f"not allowed for {ServiceCode}", "ListServiceQuotas")
        listed = self.quotas.items()
        quotas = [
            {"QuotaCode": "L-1", "QuotaName": f"{kind} for endpoint usage", "Value": most} for kind, most in listed
        ]
        return {"Quotas": quotas}

    # IAM and STS

    def _get_caller_identity(self) -> dict[str, Any]:
        return {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/ann"}

    def _simulate_principal_policy(self, PolicySourceArn: str, **rest: Any) -> dict[str, Any]:
        assert PolicySourceArn.startswith("arn:aws:iam::123456789012:role/")
        assert rest["ResourceArns"][0].startswith("arn:aws:cloudwatch:us-east-1:123456789012:alarm:tgi-deploy-")
        (action,) = rest["ActionNames"]
        return {"EvaluationResults": [{"EvalActionName": action, "EvalDecision": self.decision}], "IsTruncated": False}

    def _create_role(self, RoleName: str, Path: str, **rest: Any) -> dict[str, Any]:
        if RoleName in self.roles:
            raise refusal("EntityAlreadyExists", "taken")
        self.roles[RoleName] = {"Path": Path, **rest}
        return self._get_role(RoleName)

    def _get_role(self, RoleName: str) -> dict[str, Any]:
        if RoleName not in self.roles:
            raise refusal("NoSuchEntity", "no such role")
        arn = ROLE_ARN.format(self.roles[RoleName]["Path"], RoleName)
        return {"Role": {"RoleName": RoleName, "Arn": arn, "CreateDate": MADE, "Tags": self.roles[RoleName]["Tags"]}}

    def _list_roles(self, PathPrefix: str) -> dict[str, Any]:
        found = {name: item for name, item in self.roles.items() if item["Path"].startswith(PathPrefix)}
        return {"Roles": [{"RoleName": name, "Path": item["Path"]} for name, item in found.items()]}

    def _put_role_policy(self, RoleName: str, PolicyDocument: str, **_rest: Any) -> None:
        self.roles[RoleName]["policy"] = json.loads(PolicyDocument)

    def _list_role_policies(self, RoleName: str) -> dict[str, Any]:
        return {"PolicyNames": ["tgi-deploy"] if "policy" in self._own(RoleName) else []}

    def _own(self, name: str) -> dict[str, Any]:
        if name not in self.roles:
            raise refusal("NoSuchEntity", "no such role")
        return self.roles[name]

    def _list_attached_role_policies(self, RoleName: str) -> dict[str, Any]:
        self._own(RoleName)
        return {"AttachedPolicies": []}

    def _delete_role_policy(self, RoleName: str, **_rest: Any) -> None:
        self._own(RoleName).pop("policy", None)

    def _delete_role(self, RoleName: str) -> None:
        if self.roles.pop(RoleName, None) is None:
            raise refusal("NoSuchEntity", "no such role")

    # EventBridge Scheduler

    def _create_schedule_group(self, Name: str, Tags: list[Any], **_rest: Any) -> dict[str, Any]:
        if Name in self.groups:
            raise refusal("ConflictException", "taken")
        self.groups[Name] = {"Tags": Tags}
        return {"ScheduleGroupArn": f"arn:aws:scheduler:{Name}"}

    def _list_schedule_groups(self, NamePrefix: str) -> dict[str, Any]:
        return {"ScheduleGroups": [{"Name": name} for name in self.groups if name.startswith(NamePrefix)]}

    def _get_schedule_group(self, Name: str) -> dict[str, Any]:
        if Name not in self.groups:
            raise refusal("ResourceNotFoundException", "no group")
        return {"Name": Name, "Arn": f"arn:aws:scheduler:{Name}", "State": "ACTIVE", "CreationDate": MADE}

    def _list_tags_for_resource(self, **asked: Any) -> dict[str, Any]:
        if asked.get("ResourceARN", "").startswith("arn:aws:cloudwatch:"):
            return {"Tags": self.alarms[asked["ResourceARN"].rpartition(":")[2]]["Tags"]}
        if "ResourceARN" in asked:
            return {"Tags": self.scaled[asked["ResourceARN"].removeprefix("arn:aws:autoscaling:")]["Tags"]}
        return {"Tags": self.groups[asked["ResourceArn"].removeprefix("arn:aws:scheduler:")]["Tags"]}

    def _delete_schedule_group(self, Name: str) -> None:
        if self.groups.pop(Name, None) is None:
            raise refusal("ResourceNotFoundException", "no group")

    def _create_schedule(self, GroupName: str, **rest: Any) -> dict[str, Any]:
        if "schedule" in self.groups[GroupName]:
            raise refusal("ConflictException", "taken")
        return self._update_schedule(GroupName, **rest)

    def _update_schedule(self, GroupName: str, **rest: Any) -> dict[str, Any]:
        self.groups[GroupName]["schedule"] = rest
        return {"ScheduleArn": f"arn:aws:scheduler:{GroupName}/end"}

    # CloudWatch Logs

    def _describe_log_streams(self, logGroupName: str, **_rest: Any) -> dict[str, Any]:
        made = round(MADE.timestamp() * 1000)
        if not self.log:
            raise refusal("ResourceNotFoundException", "The specified log group does not exist.")
        return {"logStreams": [{"logStreamName": name, "creationTime": made} for name in self.log]}

    def _get_log_events(self, logStreamName: str, **_rest: Any) -> dict[str, Any]:
        events = [{"message": line} for line in self.log[logStreamName]]
        return {"events": events, "nextBackwardToken": "b/1"}


@dataclass
class _Client:
    hosting: FakeHosting

    @property
    def meta(self) -> Any:
        return type("Meta", (), {"endpoint_url": URL, "partition": "aws", "region_name": "us-east-1"})

    def get_paginator(self, method: str) -> Any:
        def paginate(**parameters: Any) -> list[dict[str, Any]]:
            parameters.pop("PaginationConfig", None)
            return [self.hosting.call(method, parameters)]

        return type("Paginator", (), {"paginate": staticmethod(paginate)})

    def __getattr__(self, method: str) -> Any:
        return lambda **parameters: self.hosting.call(method, parameters)
