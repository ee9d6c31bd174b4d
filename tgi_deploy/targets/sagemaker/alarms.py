"""The alarm on errors of an update's new machines: if it goes off during the update, SageMaker rolls that back.

Properties: name (of the revision), endpoint. `attributes["id"]` begins with the kind, since a revision's model and
configuration have the same name. The alarm has no actions: outside an update, nothing happens if it goes off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.reconcile.errors import ExistsError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, acknowledged, carries, each, tag_list, tags_of
from tgi_deploy.targets.sagemaker.listing import described, found_with_tags
from tgi_deploy.targets.sagemaker.names import PREFIX, VARIANT, endpoint_name
from tgi_deploy.values.resource import TAG_ID, TAG_NAME, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

ALARM: Final = "alarm"
SERVICE: Final = "cloudwatch"
# More than a tenth of a minute's requests, two minutes in a row. The metric has the dimension of the configuration as
# soon as the new machines get requests: AWS's guide, "Auto-Rollback Configuration and Monitoring".
_RULE: Final = {
    "Namespace": "AWS/SageMaker",
    "MetricName": "Invocation5XXErrors",
    "Statistic": "Average",
    "Period": 60,
    "EvaluationPeriods": 2,
    "Threshold": 0.1,
    "ComparisonOperator": "GreaterThanThreshold",
    "TreatMissingData": "notBreaching",
}


@dataclass(frozen=True, slots=True)
class Alarms:
    api: Api
    rare: ClassVar = True
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        deployment = tags.get(TAG_NAME)
        begin = endpoint_name(deployment) if deployment else PREFIX
        found = self._described("looking for alarms", AlarmNamePrefix=begin)
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- repeating this call changes nothing
        name = properties["name"]
        former = self.read({"id": f"{ALARM}/{name}"})
        if former is not None and former.tags.get(TAG_ID) != tags.get(TAG_ID):
            raise ExistsError(f"the alarm {name} exists and does not belong to this deployment")
        dimensions = {"EndpointName": properties["endpoint"], "VariantName": VARIANT, "EndpointConfigName": name}
        self.api.ask(
            "put_metric_alarm",
            "creating an alarm",
            acknowledged,
            service=SERVICE,
            AlarmName=name,
            AlarmDescription="SageMaker goes back to the former revision if this goes off during the update",
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            Tags=tag_list(tags),
            **_RULE,
        )
        found = self.read({"id": f"{ALARM}/{name}"})
        if found is None:
            raise ResourceNotFoundError(f"creating the alarm {name} had no effect")
        return found

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """An alarm stays as it was created."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading an alarm", AlarmNames=[_name(attributes)])
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_alarms", "deleting an alarm", service=SERVICE, AlarmNames=[_name(attributes)])

    def _described(self, doing: str, **asked: Any) -> list[Found]:  # noqa: ANN401 -- the API's own
        read = each("MetricAlarms", _alarm)
        listed = self.api.list("describe_alarms", doing, read, service=SERVICE, AlarmTypes=["MetricAlarm"], **asked)
        return found_with_tags(self.api, ALARM, listed, self._tags)

    def _tags(self, arn: str) -> dict[str, str] | None:
        doing = "reading an alarm's tags"
        return described(self.api, "list_tags_for_resource", doing, tags_of, service=SERVICE, ResourceARN=arn)


def _alarm(item: Reply) -> dict[str, str]:
    name = item.text("AlarmName")
    return {"id": f"{ALARM}/{name}", "name": name, "arn": item.text("AlarmArn", prefix="arn:")}


def _name(attributes: Mapping[str, str]) -> str:
    return attributes["id"].partition("/")[2]
