"""Instances. Properties: request (RunInstances' parameters except counts, token and tags), spot; mutable: tags."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.clocks import is_past
from tgi_deploy.reconcile.ends import READS_TAGS, moment_of
from tgi_deploy.reconcile.errors import NotYetError, ResourceNotFoundError, StaleTokenError
from tgi_deploy.reconcile.retry import PollPolicy, polls
from tgi_deploy.targets.aws.api import Api, acknowledged, paged, tag_list, tag_specifications, tagged, tags_of
from tgi_deploy.values.resource import RECLAIMED, STARTABLE, Found, MachineState, key_of, machine_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.targets.reply import Reply

_T = TypeVar("_T")
_State = Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]

KIND = "instance"
_THERE: Final[tuple[_State, ...]] = ("pending", "running", "stopping", "stopped", "shutting-down")
_STATES: Final[tuple[_State, ...]] = (*_THERE, "terminated")
_ALIVE: Final = ("pending", "running")
_STOPPED: Final = ("stopping", "stopped")
_TAGGED: Final = ("volume", "network-interface")  # in the launch itself
_NEW_S: Final = 60.0
_LATENESS: Final = PollPolicy(deadline_s=_NEW_S, poll_s=1, longest_poll_s=10)
_BATCH: Final = 100  # ids per TerminateInstances, which fails as a whole if one id is rejected
_SPOT: Final = "Server.Spot"  # common prefix of the state reasons of reclaimed spot instances


@dataclass(frozen=True, slots=True)
class Instances:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = True
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        asked = paged(tags)
        there = [*asked["Filters"], {"Name": "instance-state-name", "Values": list(_THERE)}]
        found = self._described(
            "looking for instances",
            lambda item: tagged(self._found(item, tags_of(item)), tags),
            **{**asked, "Filters": there},
        )
        return tuple(sorted(found, key=lambda item: (item.attributes["launched"], item.id)))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        """Launch one. Raises StaleTokenError if the token yields an earlier instance that has terminated."""
        kinds = (*_TAGGED, "spot-instances-request") if properties["spot"] else _TAGGED
        name, value = READS_TAGS
        own = {**tags, name: value}
        found = self.api.change(
            "run_instances",
            "launching an instance",
            lambda reply: self._found(reply.first("Instances"), own),
            **properties["request"],
            MinCount=1,
            MaxCount=1,
            ClientToken=token,
            TagSpecifications=[*tag_specifications(own, KIND), *tag_specifications(tags, *kinds)],
        )
        if not found.alive:
            raise StaleTokenError(f"launching an instance returned {found.id}, which is {found.state}", ended=found)
        return found

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Set the given tags; other tags stay, and nothing else changes in place."""
        tags = properties.get("tags")
        if tags:
            ids = [attributes["id"]]
            self.api.ask("create_tags", "tagging an instance", acknowledged, Resources=ids, Tags=tag_list(tags))

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        """Return it; None once terminated. EC2 lists those too, so an unlisted one may be new: wait for it."""
        new = "launched" in attributes and self._may_be_new(attributes)
        for _ in polls(self.api.retrier.clock, _LATENESS):
            found = self._read(attributes["id"], lambda item: self._found(item, tags_of(item)))
            if found is not None or not new:
                return found if found is not None and found.state in _THERE else None
        return None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Terminate it. One just launched may not be visible yet: retry instead of assuming that it is gone."""

        def ask() -> None:
            self.api.ask("terminate_instances", "terminating an instance", acknowledged, InstanceIds=[attributes["id"]])

        with suppress(ResourceNotFoundError, NotYetError):
            if self._may_be_new(attributes):
                self.api.retrier.call(ask)
            else:
                ask()

    def _may_be_new(self, attributes: Mapping[str, str]) -> bool:
        """Return whether it may have been launched less than a minute ago, allowing for clock skew."""
        launched = moment_of(attributes.get("launched"))
        return launched is None or not is_past(launched, self.api.retrier.clock.now(), by_s=_NEW_S)

    def delete_many(self, many: Sequence[Mapping[str, str]]) -> frozenset[str]:
        """Terminate many. EC2 rejects the whole request if one is unknown or protected."""
        ids, ended = [attributes["id"] for attributes in many], set[str]()
        for start in range(0, len(ids), _BATCH):
            some = ids[start : start + _BATCH]
            with suppress(DeployError):
                self.api.ask("terminate_instances", "ending instances", acknowledged, InstanceIds=some)
                ended.update(some)
        return frozenset(ended)

    def stop(self, attributes: Mapping[str, str]) -> None:
        """Stop it. The OS has some minutes to shut down, as in a termination, and stops the engine first."""
        self._switch("stop_instances", "stopping the instance", attributes)

    def start(self, attributes: Mapping[str, str]) -> None:
        self._switch("start_instances", "starting the instance", attributes)

    def restart(self, attributes: Mapping[str, str]) -> bool:
        """Reboot it, keeping its address and its local disks. The reboot takes a moment to begin."""
        self._switch("reboot_instances", "rebooting the instance", attributes)
        return False

    def _switch(self, method: str, doing: str, attributes: Mapping[str, str]) -> None:
        self.api.ask(method, doing, acknowledged, InstanceIds=[attributes["id"]])

    def state(self, instance_id: str) -> MachineState:
        """Return its state; EC2 still describes terminated instances for a while."""
        return self._read(instance_id, _machine_state) or MachineState(state="missing")

    def _read(self, instance_id: str, read: Callable[[Reply], _T]) -> _T | None:
        """Return it, or None if unknown."""
        return next(iter(self._described("reading an instance", read, InstanceIds=[instance_id])), None)

    def _described(self, doing: str, read: Callable[[Reply], _T], **parameters: Any) -> tuple[_T, ...]:  # noqa: ANN401 -- the API's own
        return self.api.list(
            "describe_instances",
            doing,
            lambda page: [read(item) for group in page.parts("Reservations") for item in group.parts("Instances")],
            **parameters,
        )

    def _found(self, item: Reply, tags: Mapping[str, str]) -> Found:
        state = _state(item)
        why = _reason(item) if state not in _ALIVE else {}
        if state in _STOPPED:
            why[STARTABLE] = "its disk is kept"
        return Found(
            key=key_of(tags, machine_key(KIND, 1)),
            kind=KIND,
            place=self.api.region,
            attributes={**_attributes(item), **why},
            tags=dict(tags),
            state=state,
            alive=state in _ALIVE,
            is_machine=True,
        )


def _state(item: Reply) -> _State:
    return item.part("State").choice("Name", _STATES)


def _reason(item: Reply) -> dict[str, str]:
    reason = item.optional_part("StateReason")
    code = reason.optional_text("Code")
    named = {"reason_code": code, "reason": reason.optional_text("Message")}
    if code.startswith(_SPOT):
        named[RECLAIMED] = code
    return {name: text for name, text in named.items() if text}


def _machine_state(item: Reply) -> MachineState:
    why = _reason(item)
    return MachineState(
        state=_state(item),
        reason_code=why.get("reason_code"),
        reason=why.get("reason"),
        address=_address(item) or None,
        reclaimed=RECLAIMED in why,
    )


def _address(item: Reply) -> str:
    return item.address("PublicIpAddress") or item.address("PrivateIpAddress")


def _attributes(item: Reply) -> dict[str, str]:
    return {
        "id": item.text("InstanceId", prefix="i-"),
        "zone": item.optional_part("Placement").optional_text("AvailabilityZone"),
        "instance_type": item.optional_text("InstanceType"),
        "market": "spot" if item.optional_text("InstanceLifecycle") == "spot" else "on-demand",
        "launched": item.moment("LaunchTime"),
        "address": _address(item),
    }
