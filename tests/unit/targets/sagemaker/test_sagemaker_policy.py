"""The printed policy allows every call of a deployment's life, feature by feature, and none on what is not ours.

The calls are those on a fake of AWS; IAM's documented rules judge them (tests/builders/iam.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.iam import allows
from fakes.computer import FakeComputer, fake_ec2, plan, request
from fakes.hosting_account import another
from fakes.hosting_api import FakeHosting

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.scaling import scale
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.status import status
from tgi_deploy.secret import Secret
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.errors import iam_action
from tgi_deploy.targets.aws.policy import policy
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
from tgi_deploy.targets.sagemaker.options import SageMakerOptions
from tgi_deploy.targets.sagemaker.target import SageMakerTarget
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.request import Replicas
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACTIONS = read_actions("sagemaker")
ROLE = "arn:aws:iam::123456789012:role/hosting"
OURS = {"aws:ResourceTag/tgi-deploy:id": "some"}
SERVICES = (
    ("application-autoscaling", ("scalable", "scaling_")),
    ("cloudwatch", ("alarm",)),
    ("logs", ("log_",)),
    ("scheduler", ("schedule",)),
    ("iam", ("role", "get_policy", "principal_policy")),
    ("sts", ("caller_identity",)),
    ("service-quotas", ("service_quotas",)),
    ("pricing", ("products",)),
)


def service_of(method: str, sent: dict[str, Any]) -> str:
    if ":cloudwatch:" in sent.get("ResourceARN", ""):
        return "cloudwatch"
    if method == "list_tags_for_resource":
        return "application-autoscaling" if "ResourceARN" in sent else "scheduler"
    return next((name for name, words in SERVICES if any(word in method for word in words)), "sagemaker")


def asked(method: str, sent: dict[str, Any], hosting: FakeHosting) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield action, resource and condition keys of each permission that a call needs."""
    service = service_of(method, sent)
    action = iam_action(service, "".join(word.title() for word in method.split("_")))
    base = "123456789012"
    if service == "sagemaker":
        yield from _of_sagemaker(action, method, sent)
    elif service == "application-autoscaling":
        of = {"application-autoscaling:service-namespace": "sagemaker"}
        listing = method.startswith("describe")
        yield action, "*" if listing else f"arn:aws:application-autoscaling:us-east-1:{base}:scalable-target/x", of
    elif service == "cloudwatch":
        names = sent.get("AlarmNames") or [sent.get("AlarmName") or sent.get("ResourceARN", "").rpartition(":")[2]]
        for name in names:
            resource = "*" if method.startswith("describe") else f"arn:aws:cloudwatch:us-east-1:{base}:alarm:{name}"
            yield action, resource, {}
            if "Tags" in sent:
                yield "cloudwatch:TagResource", resource, {}
    elif service == "logs":
        yield action, f"arn:aws:logs:us-east-1:{base}:log-group:{sent['logGroupName']}", {}
    elif service == "scheduler":
        name = sent.get("GroupName") or sent.get("Name") or sent.get("ResourceArn", "").rpartition(":")[2]
        kind = "schedule-group" if "group" in method or "ResourceArn" in sent else "schedule"
        path = name if kind == "schedule-group" else f"{name}/end"
        yield action, f"arn:aws:scheduler:us-east-1:{base}:{kind}/{path}" if name else "*", {}
        if "Target" in sent:
            yield "iam:PassRole", sent["Target"]["RoleArn"], {"iam:PassedToService": "scheduler.amazonaws.com"}
    elif service == "iam" and "RoleName" in sent:
        path = sent.get("Path") or "/tgi-deploy/sagemaker/us-east-1/demo/"
        keys = {"iam:PermissionsBoundary": f"arn:aws:iam::{base}:policy/{ACTIONS.boundary.name}"}
        yield action, f"arn:aws:iam::{base}:role{path}{sent['RoleName']}", keys
    else:
        yield action, sent.get("PolicyArn") or sent.get("PolicySourceArn", "*"), {}


def _of_sagemaker(action: str, method: str, sent: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    members = {"ModelName": "model", "EndpointConfigName": "endpoint-config", "EndpointName": "endpoint"}
    arns = [f"arn:aws:sagemaker:us-east-1:1:{kind}/{sent[name]}" for name, kind in members.items() if name in sent]
    keys = {f"aws:RequestTag/{item['Key']}": item["Value"] for item in sent.get("Tags", ())}
    for arn in [*arns, *([sent["ResourceArn"]] if "ResourceArn" in sent else [])] or ["*"]:
        yield action, arn, keys if method.startswith("create") else {**keys, **OURS}
        if method.startswith("create") and arn == arns[-1]:
            yield "sagemaker:AddTags", arn, keys
    if "ExecutionRoleArn" in sent:
        yield "iam:PassRole", sent["ExecutionRoleArn"], {"iam:PassedToService": "sagemaker.amazonaws.com"}


class Life:
    """One deployment on a fake account, from `up` to `down`."""

    def __init__(self, home: Path) -> None:
        self.around, self.hosting = FakeComputer(home=home), FakeHosting()
        api = Api(region="us-east-1", sessions=self.hosting, retrier=Retrier(self.around.clock))
        cloud = SageMakerCloud(api=api, secret_of=lambda _name: Secret("hf_x"))
        target = SageMakerTarget(
            cloud_of=lambda _place: cloud, catalog=open_catalog, default_region=lambda: "us-east-1"
        )
        self.context = self.around.context(
            targets=(fake_ec2(self.around.world.cloud), target), cloud=target.cloud,
            regions=("sagemaker:us-east-1",), loopback=False,
        )  # fmt: skip

    def up(self, options: SageMakerOptions, most: int = 1, **changes: Any) -> None:
        made = plan()
        made = replaced(made, request=replaced(made.request, replicas=Replicas(least=1, most=most)))
        up(self.context, request(made, target="sagemaker", options=options, environ={}, wait=True, **changes))

    def update(self, options: SageMakerOptions) -> None:
        up(self.context, request(another(), target="sagemaker", options=options, environ={}, wait=True))

    def refused(self, *features: str) -> set[str]:
        """Return the actions that the policy for these features does not allow, of all calls so far."""
        document = policy(ACTIONS, (*ACTIONS.core, *features))
        every = (item for method, sent in self.hosting.sent for item in asked(method, sent, self.hosting))
        return {action for action, resource, keys in every if not allows(document, action, resource, keys)}

    def down(self) -> None:
        down(self.context, ("demo",), lambda _removals: True)


# Searches for what a feature that was not used may have left: if they are not allowed, that is a warning.
SEARCHES = {"iam:ListRoles"}


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path / "state")


def test_a_plain_deployment_needs_the_features_of_every_one(life: Life):
    life.up(SageMakerOptions(role=ROLE))
    scale(life.context, "demo", Replicas(least=2, most=2))
    life.update(SageMakerOptions(role=ROLE))
    life.down()
    assert "put_metric_alarm" in life.hosting.calls
    assert len(life.hosting.sent) > 20
    assert life.refused() <= SEARCHES


@pytest.mark.parametrize("feature", ["create-role", "limits", "replicas"])
def test_a_feature_needs_its_own_permissions(life: Life, feature: str):
    options = SageMakerOptions(role=None if feature == "create-role" else ROLE, create_role=feature == "create-role")
    life.up(options, most=4 if feature == "replicas" else 1,
            **({"ends": WantedEnds(ttl_s=7200)} if feature == "limits" else {}))  # fmt: skip
    if feature == "limits":
        extend(life.context, "demo", WantedEnds(ttl_s=14400))
    status(life.context, "demo")
    life.down()
    assert life.refused(feature) <= SEARCHES
    assert life.refused() - SEARCHES, "otherwise its statements would be unnecessary"


def test_what_is_not_ours_is_out_of_reach(life: Life):
    life.up(SageMakerOptions(create_role=True), most=4, ends=WantedEnds(ttl_s=7200))
    status(life.context, "demo")
    life.update(SageMakerOptions(create_role=True))
    life.down()
    document = policy(ACTIONS, tuple(ACTIONS.features))
    reached = {
        action
        for method, sent in life.hosting.sent
        for action, resource, keys in asked(method, sent, life.hosting)
        if "tgi-deploy" in resource and allows(document, action, resource.replace("tgi-deploy", "production"), keys)
    }
    # SageMaker takes any role that trusts it: an administrator narrows this to the one of --role.
    assert reached <= {"iam:PassRole"}
    untagged = [
        action
        for method, sent in life.hosting.sent
        for action, resource, _keys in asked(method, sent, life.hosting)
        if action.startswith(("sagemaker:Delete", "sagemaker:Update", "sagemaker:Create", "sagemaker:AddTags"))
        and allows(document, action, resource, {})
    ]
    assert untagged == []
