"""Endpoints: the machine of a revision is the deployment's endpoint with the revision's configuration.

A configuration can't be changed, and its name contains the revision: it is the machine's id and carries its tags. The
endpoint keeps its name from revision to revision, and the tags of the first one, which claim the name. Properties:
name (of the configuration), endpoint, variant (the only `ProductionVariant` of CreateEndpointConfig), replicas,
most (to how many replicas AWS may scale it; 0: the number is fixed), drain_s (how long its answers may take, so that a
later update lets its machines finish them), alarm (which makes SageMaker undo the move; empty for none); mutable:
replicas, and `tags` that are limits or a price.

* Creating a revision's machine creates its configuration and then the endpoint, or moves the endpoint to it.
* Deleting it moves the endpoint back to the configuration of a former revision, with as many machines as before, if
  there is one, or else deletes the endpoint; then it deletes the configuration. Of several machines, `find` returns
  the newest first, so that deleting all of them, last to first, never moves it back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.reconcile.claim import claimed_error
from tgi_deploy.reconcile.ends import READS_TAGS, certain_end, ends_of
from tgi_deploy.reconcile.errors import ExistsError, InUseError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, before_visible, tag_list
from tgi_deploy.targets.sagemaker.limits import enforce
from tgi_deploy.targets.sagemaker.listing import SERVICE, described, listed_with_tags, tags_of_arn
from tgi_deploy.targets.sagemaker.names import VARIANT, endpoint_of, number_of, place_of
from tgi_deploy.targets.sagemaker.state import EndpointState, read_endpoint
from tgi_deploy.values.resource import (
    DESCRIPTION_ONLY,
    TAG_ID,
    TAG_KEY,
    TAG_NAME,
    TAG_PREFIX,
    TAG_PRICE,
    TAG_SPEC,
    Found,
    key_of,
    machine_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

ENDPOINT: Final = "endpoint"
# On a configuration: how many machines the endpoint had before it was moved to it.
TAG_BEFORE: Final = f"{TAG_PREFIX}replicas-before"
# On a configuration: how many seconds the answers of its machines may take.
TAG_DRAIN: Final = f"{TAG_PREFIX}drain-s"
_COUNT: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)
_RUNTIME: Final = "sagemaker-runtime"
_SAME: Final = (TAG_ID, TAG_KEY, TAG_SPEC)
# Of botocore, `RollingUpdatePolicy`: a step replaces between 5 % and 50 % of the machines.
_ONE: Final = {"Type": "INSTANCE_COUNT", "Value": 1}
_LEAST_PERCENT: Final = 5
_LEAST_SHARE: Final = {"Type": "CAPACITY_PERCENT", "Value": _LEAST_PERCENT}
_LEAST_ROLLING: Final = 2
_MOST_SINGLE: Final = 20
# Two periods of the alarm and the delay of its metric.
_LEAST_WAIT_S: Final = 180
# No answer takes longer: then SageMaker ends its stream.
_LONGEST_STREAM_S: Final = 480
_LONGEST_UPDATE_S: Final = 28800


@dataclass(frozen=True, slots=True)
class Configuration:
    """A revision's configuration as AWS describes it. `created` is in ISO 8601, empty right after its creation."""

    name: str
    arn: str
    created: str
    tags: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        return endpoint_of(self.name)


@dataclass(frozen=True, slots=True)
class Endpoints:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = True
    unrepeatable: ClassVar = False
    # SageMaker deletes or moves no endpoint that it is creating or moving. Moving one back starts machines, which takes
    # about ten minutes, and lets the others finish their answers, which takes up to eight.
    slower: ClassVar = 3

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        configurations = [
            Configuration(*item)
            for item in listed_with_tags(self.api, tags, "list_endpoint_configs", "EndpointConfigs", "EndpointConfig")
        ]
        endpoints = {
            name: state
            for name, *_, own in listed_with_tags(self.api, tags, "list_endpoints", "Endpoints", "Endpoint")
            if (state := self.endpoint(name, tags=own)) is not None
        }
        found = [self._found(item, self._state_of(item, endpoints)) for item in configurations]
        known = {item.name for item in configurations}
        alone = (state for state in endpoints.values() if state.configuration not in known)
        found += [self._alone(state) for state in alone]
        return tuple(sorted(found, key=lambda item: -number_of(item.id)))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- these calls take no token; names are unique in a region
        """Create the configuration, then create or move the endpoint, unless an earlier request has done so."""
        state = self.endpoint(properties["endpoint"])
        if state is not None and state.tags.get(TAG_ID) != tags[TAG_ID]:
            raise self._taken(state, tags)
        replicas = properties["replicas"]
        retain = state is not None and state.keeps(replicas, properties["most"])
        own = _own_tags(state, replicas, properties["drain_s"], retain=retain)
        configuration = self._configured(properties, {**tags, **own})
        if certain_end(ends_of(None, [configuration.tags])) is None:
            # An earlier endpoint or revision may have left a schedule, which would delete this one, too.
            enforce(self.api, self._found(configuration, None), configuration.tags)
        if state is None:
            self._created(configuration, tags)
        elif configuration.name not in state.configurations:
            least = state.moved(replicas, properties["most"])
            serving = self.configuration(state.configuration)
            policy = update_policy(least, wait_s(serving), alarm=properties["alarm"])
            self._moved(state, configuration.name, policy, retain=retain)
        return self.read({"id": configuration.name}) or self._found(
            configuration, self.endpoint(configuration.endpoint)
        )

    def _configured(self, properties: Mapping[str, Any], tags: Mapping[str, str]) -> Configuration:
        name, variant = properties["name"], properties["variant"]

        def read(reply: Reply) -> Configuration:
            return Configuration(name, reply.text("EndpointConfigArn", prefix="arn:"), "", tags)

        try:
            return before_visible(
                self.api,
                lambda: self.api.change(
                    "create_endpoint_config",
                    "creating an endpoint's configuration",
                    read,
                    service=SERVICE,
                    EndpointConfigName=name,
                    ProductionVariants=[{**variant, "InitialInstanceCount": properties["replicas"]}],
                    Tags=tag_list(tags),
                ),
            )
        except ExistsError:
            known = self.configuration(name)
            if known is None or any(known.tags.get(tag) != tags.get(tag) for tag in _SAME):
                raise
            return known

    def _created(self, configuration: Configuration, tags: Mapping[str, str]) -> None:
        before_visible(
            self.api,
            lambda: self.api.change(
                "create_endpoint",
                "creating an endpoint",
                lambda reply: reply.text("EndpointArn", prefix="arn:"),
                service=SERVICE,
                EndpointName=configuration.endpoint,
                EndpointConfigName=configuration.name,
                Tags=tag_list(tags),
            ),
        )

    def _moved(self, state: EndpointState, name: str, policy: Mapping[str, Any], *, retain: bool) -> None:
        """Move an endpoint to another configuration. `retain`: keep the number of machines."""
        before_visible(
            self.api,
            lambda: self.api.change(
                "update_endpoint",
                "updating an endpoint",
                lambda reply: reply.text("EndpointArn", prefix="arn:"),
                service=SERVICE,
                once=True,
                EndpointName=state.name,
                EndpointConfigName=name,
                RetainAllVariantProperties=retain,
                DeploymentConfig=policy,
            ),
        )

    def _taken(self, state: EndpointState, tags: Mapping[str, str]) -> Exception:
        found = self._alone(state)
        if TAG_ID in state.tags:
            return claimed_error(tags[TAG_NAME], found, owner="")
        return ExistsError(f"creating an endpoint: {state.name} exists, and this tool did not create it")

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Change the number of replicas, or the `tags` that are limits or a price."""
        tags = properties.get("tags")
        if tags:
            self._limit(attributes, tags)
        elif not properties.get("most"):
            self._resize(attributes, properties["replicas"])

    def _limit(self, attributes: Mapping[str, str], tags: Mapping[str, str]) -> None:
        found = self.read(attributes)
        if found is None:
            raise ResourceNotFoundError(f"there is no endpoint configuration {attributes['id']} in {self.api.region}")
        if tags.keys() != {TAG_PRICE}:
            enforce(self.api, found, {**found.tags, **tags})
        arn = found.attributes["arn"]
        self.api.ask("add_tags", "tagging an endpoint's configuration", lambda reply: reply.optional_parts("Tags"),
                     service=SERVICE, ResourceArn=arn, Tags=tag_list(tags))  # fmt: skip

    def _resize(self, attributes: Mapping[str, str], replicas: int) -> None:
        """Change the number of machines, unless SageMaker is creating or moving the endpoint, which sets it, too."""
        state = self.endpoint(endpoint_of(attributes["id"]))
        if state is None or state.desired == replicas or not state.settled:
            return
        self.api.ask(
            "update_endpoint_weights_and_capacities",
            "changing the number of machines",
            lambda reply: reply.text("EndpointArn", prefix="arn:"),
            service=SERVICE,
            EndpointName=state.name,
            DesiredWeightsAndCapacities=[{"VariantName": VARIANT, "DesiredInstanceCount": replicas}],
        )

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        name = attributes["id"]
        configuration, state = self.configuration(name), self.endpoint(endpoint_of(name))
        if configuration is not None:
            return self._found(configuration, state)
        return None if state is None or name not in state.configurations else self._alone(state)

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Raises InUseError while SageMaker creates or moves the endpoint, which can't be canceled."""
        name = attributes["id"]
        configuration, state = self.configuration(name), self.endpoint(endpoint_of(name))
        ours = state is not None and (configuration is None or _same_owner(state, configuration))
        if state is not None and ours and name in state.configurations and not state.ending:
            self._leave(state, name, configuration)
        elif state is not None and ours and configuration is not None:
            self._resize_back(state, configuration)
        if configuration is not None:
            self.api.remove(
                "delete_endpoint_config",
                "deleting an endpoint's configuration",
                service=SERVICE,
                EndpointConfigName=name,
            )

    def _leave(self, state: EndpointState, name: str, left: Configuration | None) -> None:
        """Move an endpoint back to another revision's configuration, or delete it."""
        if not state.settled and not state.failed:
            raise InUseError(
                f"the endpoint {state.name} is {state.status}; SageMaker can't delete it until that is done"
            )
        other = None if state.failed else self._former(state, name)
        if other is None:
            self.api.remove("delete_endpoint", "deleting an endpoint", service=SERVICE, EndpointName=state.name)
            return
        self._moved(state, other, update_policy(state.desired, wait_s(left)), retain=True)
        raise InUseError(f"the endpoint {state.name} is being moved back to {other}")

    def _resize_back(self, state: EndpointState, left: Configuration) -> None:
        """Give an endpoint that has gone back from a configuration the number of machines that it had before."""
        before = left.tags.get(TAG_BEFORE, "")
        if state.ending or state.failed or not _COUNT.fullmatch(before):
            return
        if number_of(left.name) < number_of(state.configuration) or state.desired == int(before):
            return
        if not state.settled:
            raise InUseError(f"the endpoint {state.name} is {state.status}")
        self._resize({"id": state.configuration}, int(before))

    def _former(self, state: EndpointState, name: str) -> str | None:
        """Return the configuration of the same deployment's last revision before this one."""
        deployment_id = state.tags.get(TAG_ID, "")
        listed = listed_with_tags(
            self.api, {TAG_ID: deployment_id}, "list_endpoint_configs", "EndpointConfigs", "EndpointConfig"
        )
        before = [
            known for known, *_ in listed if endpoint_of(known) == state.name and number_of(known) < number_of(name)
        ]
        return max(before, key=number_of) if before and deployment_id else None

    def configuration(self, name: str) -> Configuration | None:
        def read(reply: Reply) -> tuple[str, str]:
            return reply.text("EndpointConfigArn", prefix="arn:"), reply.moment("CreationTime")

        found = described(
            self.api, "describe_endpoint_config", "reading an endpoint's configuration", read, EndpointConfigName=name
        )
        tags = None if found is None else tags_of_arn(self.api, found[0])
        return None if found is None or tags is None else Configuration(name, *found, tags)

    def types(self, state: EndpointState) -> frozenset[str]:
        """Return the types of an endpoint's machines; of several pools, those that have machines."""
        if state.instance_type:
            return frozenset(state.instance_type.split(", "))

        def read(reply: Reply) -> frozenset[str]:
            return frozenset(item.optional_text("InstanceType") for item in reply.optional_parts("ProductionVariants"))

        doing = "reading the type of an endpoint's machines"
        found = described(self.api, "describe_endpoint_config", doing, read, EndpointConfigName=state.configuration)
        return found or frozenset()

    def endpoint(self, name: str, *, tags: Mapping[str, str] | None = None) -> EndpointState | None:
        """Return the state of an endpoint; None if it does not exist. `tags` are the endpoint's, if already known."""
        found = described(self.api, "describe_endpoint", "reading an endpoint", read_endpoint, EndpointName=name)
        if found is None:
            return None
        own = tags_of_arn(self.api, found.arn) if tags is None else tags
        return None if own is None else found.tagged(own)

    def address(self, name: str) -> str:
        """Return the URL that an endpoint is invoked at."""
        client = self.api.sessions.client(_RUNTIME, self.api.region)
        return f"{client.meta.endpoint_url}/endpoints/{name}/invocations"

    def _state_of(self, item: Configuration, endpoints: dict[str, EndpointState]) -> EndpointState | None:
        """Return the state of a configuration's endpoint; None if that is gone or belongs to someone else."""
        if item.endpoint not in endpoints:
            state = self.endpoint(item.endpoint)
            return state if state is not None and _same_owner(state, item) else None
        return endpoints[item.endpoint]

    def _found(self, item: Configuration, state: EndpointState | None) -> Found:
        if state is not None and not _same_owner(state, item):
            state = None
        status, alive = ("stopped", False) if state is None else state.of(item.name)
        return Found(
            key=key_of(item.tags, machine_key(ENDPOINT, 1)),
            kind=ENDPOINT,
            place=place_of(self.api.region),
            attributes={
                "id": item.name,
                "name": item.name,
                "arn": item.arn,
                "endpoint": item.endpoint,
                "created": item.created,
                "market": "on-demand",
                "instance_type": state.instance_type if state is not None else "",
                "address": self.address(item.endpoint) if alive else "",
                **({DESCRIPTION_ONLY: "only its configuration is left"} if state is None else {}),
            },
            tags=dict(item.tags),
            state=status,
            alive=alive,
            is_machine=True,
        )

    def _alone(self, state: EndpointState) -> Found:
        """Return an endpoint whose configuration is gone, with its own tags."""
        item = Configuration(state.configuration, state.arn, state.created, state.tags)
        return self._found(item, state)


def _own_tags(state: EndpointState | None, replicas: int, answer_s: int, *, retain: bool) -> dict[str, str]:
    """Return the tags of a configuration alone: where its limits are, and what later updates have to know of it."""
    tags = dict([READS_TAGS, (TAG_DRAIN, str(answer_s))])
    if state is not None and not retain and state.desired != replicas:
        tags[TAG_BEFORE] = str(state.desired)
    return tags


def _same_owner(state: EndpointState, item: Configuration) -> bool:
    return state.tags.get(TAG_ID) == item.tags.get(TAG_ID)


def drain_s(configuration: Configuration | None) -> int:
    """Return how many seconds the answers of a configuration's machines may take: the most there is if unknown."""
    found = configuration.tags.get(TAG_DRAIN, "") if configuration is not None else ""
    return min(int(found), _LONGEST_STREAM_S) if _COUNT.fullmatch(found) else _LONGEST_STREAM_S


def wait_s(configuration: Configuration | None) -> int:
    """Return how many seconds SageMaker keeps its machines after it has moved the requests to others.

    That is as long as their answers may take, and long enough for the alarm.
    """
    return max(drain_s(configuration), _LEAST_WAIT_S)


def at_a_time(replicas: int) -> int:
    """Return how many of so many machines `update_policy` replaces in a step. A share is rounded down."""
    return 1 if replicas <= _MOST_SINGLE else replicas * _LEAST_PERCENT // 100


def most_at_once(state: EndpointState, replicas: int, most: int) -> int:
    """Return how many machines there are at once while the endpoint moves to `replicas`, of at most `most`."""
    wanted = state.desired if state.keeps(replicas, most) else replicas
    moved = state.moved(replicas, most)
    return state.desired + wanted if moved < _LEAST_ROLLING else max(state.desired, wanted) + at_a_time(moved)


def update_policy(replicas: int, kept_s: int, *, alarm: str = "") -> dict[str, Any]:
    """Return how an endpoint with that many machines moves: machine by machine, or a second one beside a single one.

    SageMaker stops the containers of former machines, which then have 30 s, only `kept_s` after it has moved the
    requests.
    """
    undone = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]}} if alarm else {}
    if replicas < _LEAST_ROLLING:
        routing = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
        policy = {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": kept_s}
        return {"BlueGreenUpdatePolicy": policy, **undone}
    policy = {
        "MaximumBatchSize": _ONE if replicas <= _MOST_SINGLE else _LEAST_SHARE,
        "WaitIntervalInSeconds": kept_s,
        "MaximumExecutionTimeoutInSeconds": _LONGEST_UPDATE_S,
    }
    return {"RollingUpdatePolicy": policy, **undone}
