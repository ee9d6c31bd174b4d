"""Hosts models in the sandbox's SageMaker, through boto3."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builders.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from builders.sandboxed import Sandboxed

REGISTRY = "763104351884.dkr.ecr.{region}.amazonaws.com/huggingface-pytorch-tgi-inference"
TAGS = [{"Key": "team", "Value": "search"}]
CHANGING = ("Creating", "Updating", "RollingBack", "Deleting")


def image(release: str = "3.3.6", region: str = "us-east-1") -> str:
    return f"{REGISTRY.format(region=region)}:2.7.0-tgi{release}-gpu-py311-cu124-ubuntu22.04"


def trust(service: str = "sagemaker.amazonaws.com") -> str:
    allowed = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


@dataclass
class Hosted:
    """One account. `role` is trusted by SageMaker."""

    cloud: Sandboxed
    role: str

    @classmethod
    def of(cls, cloud: Sandboxed) -> Hosted:
        made = cloud.client("iam").create_role(RoleName="hosting", AssumeRolePolicyDocument=trust())
        return cls(cloud, made["Role"]["Arn"])

    @property
    def api(self) -> Any:
        return self.cloud.client("sagemaker")

    def model(self, name: str, model: str = "HuggingFaceTB/SmolLM2-135M-Instruct", **variables: str) -> str:
        given = {"HF_MODEL_ID": model, "SM_NUM_GPUS": "1", **variables}
        container = {"Image": image(), "Environment": given}
        self.api.create_model(ModelName=name, ExecutionRoleArn=self.role, PrimaryContainer=container, Tags=TAGS)
        return name

    def config(self, name: str, model: str, count: int = 1, **changes: Any) -> str:
        kinds = {} if "InstancePools" in changes else {"InstanceType": "ml.g6.xlarge"}
        variant = {"VariantName": "main", "ModelName": model, "InitialInstanceCount": count, **kinds, **changes}
        self.api.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant], Tags=TAGS)
        return name

    def create(self, name: str = "chat", config: str = "first") -> str:
        return self.api.create_endpoint(EndpointName=name, EndpointConfigName=config, Tags=TAGS)["EndpointArn"]

    def serve(self, count: int = 1, **changes: Any) -> dict[str, Any]:
        """Return an endpoint `chat` with a model and a configuration `first`, once it is in service or has failed."""
        self.config("first", self.model("first"), count, **changes)
        self.create()
        return self.settled()

    def described(self, name: str = "chat") -> dict[str, Any]:
        return self.api.describe_endpoint(EndpointName=name)

    def variant(self, name: str = "chat") -> dict[str, Any]:
        return self.described(name)["ProductionVariants"][0]

    def settled(self, name: str = "chat", *, seen: set[str] | None = None) -> dict[str, Any]:
        """Wait until the endpoint stops changing. `seen` collects the states until then."""

        def look() -> dict[str, Any] | None:
            found = self.described(name)
            if seen is not None:
                seen.add(found["EndpointStatus"])
            return None if found["EndpointStatus"] in CHANGING else found

        return eventually(look, lambda: str(self.described(name)), within_s=60.0)

    def wait(self, condition: Callable[[], Any]) -> Any:
        return eventually(condition, lambda: str(self.described()), within_s=60.0)

    def ask(self, body: object, name: str = "chat", **more: Any) -> Any:
        """Return the whole answer of an endpoint."""
        runtime = self.cloud.client("sagemaker-runtime")
        answer = runtime.invoke_endpoint(
            EndpointName=name, Body=json.dumps(body), ContentType="application/json", **more
        )
        return json.loads(answer["Body"].read())

    def stream(self, body: object, name: str = "chat") -> Any:
        """Return the events of an answer."""
        runtime = self.cloud.client("sagemaker-runtime")
        return runtime.invoke_endpoint_with_response_stream(
            EndpointName=name, Body=json.dumps(body), ContentType="application/json"
        )["Body"]

    def log(self, name: str = "chat") -> list[dict[str, Any]]:
        logs = self.cloud.client("logs")
        group = f"/aws/sagemaker/Endpoints/{name}"
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        return [event for page in pages for event in page["events"]]

    def streams(self, name: str = "chat") -> int:
        """Return the number of instances that have written to the log."""
        logs = self.cloud.client("logs")
        return len(logs.describe_log_streams(logGroupName=f"/aws/sagemaker/Endpoints/{name}")["logStreams"])
