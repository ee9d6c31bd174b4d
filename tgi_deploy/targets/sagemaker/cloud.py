"""SageMaker in one region as a location for the executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.observe import search
from tgi_deploy.targets.sagemaker.alarms import ALARM, Alarms
from tgi_deploy.targets.sagemaker.endpoints import ENDPOINT, Endpoints
from tgi_deploy.targets.sagemaker.limits import ROLE, SCHEDULE, roles, schedules
from tgi_deploy.targets.sagemaker.logs import output, outputs, streams
from tgi_deploy.targets.sagemaker.models import MODEL, Models
from tgi_deploy.targets.sagemaker.names import endpoint_of, log_group_of, place_of
from tgi_deploy.targets.sagemaker.scaling import TARGET, ScalableTargets
from tgi_deploy.values.resource import TAG_ID, MachineState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.reconcile.ports import Handler
    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.sagemaker.logs import Stream
    from tgi_deploy.targets.sagemaker.state import EndpointState
    from tgi_deploy.values.resource import Found

# In order of creation; deletion runs in reverse. The schedule ends the endpoint from before it exists until it is gone.
KINDS: Final = (ROLE, SCHEDULE, MODEL, ALARM, ENDPOINT, TARGET)
_HANDLERS: Final[Mapping[str, Callable[[Api], Handler]]] = {
    ROLE: roles,
    SCHEDULE: schedules,
    ALARM: Alarms,
    ENDPOINT: Endpoints,
    TARGET: ScalableTargets,
}
# A rarely needed service may be forbidden or unreachable.
_UNREADABLE_CODES: Final = frozenset({"permission_denied", "cloud_unreachable"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SageMakerCloud:
    """`secret_of` returns the secret that a reference names. `unsearched` collects (place, kind) → why."""

    api: Api
    secret_of: Callable[[str], Secret]
    unsearched: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def region(self) -> str:
        return place_of(self.api.region)

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(self.api)

    def handler(self, kind: str) -> Handler:
        if kind == MODEL:
            return Models(self.api, self.secret_of)
        return _HANDLERS[kind](self.api)

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        wanted = {TAG_ID: "", **tags}
        return tuple(
            found
            for kind in KINDS
            for found in search(
                self.handler(kind), wanted, self.unsearched, key=(self.region, kind), codes=_UNREADABLE_CODES
            )
        )

    def machine(self, instance_id: str) -> MachineState:
        """Return the state of the endpoint with a configuration."""
        name = endpoint_of(instance_id)
        state = self.endpoints.endpoint(name)
        if state is None:
            return MachineState(state="missing")
        started = state.of(instance_id)[0] == "pending" and bool(self._streams(instance_id))
        return state.machine(instance_id, self.endpoints.address(name), started=started)

    def console(self, instance_id: str) -> str:
        """Return the log of the machine that began last."""
        found = self._streams(instance_id)
        return output(self.api, log_group_of(endpoint_of(instance_id)), found[-1]) if found else ""

    def consoles(self, instance_id: str) -> Mapping[str, str]:
        """Return the log of each machine, by its id."""
        return outputs(self.api, log_group_of(endpoint_of(instance_id)), self._streams(instance_id))

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Nothing: the schedule moves with the endpoint's own limits."""

    def state(self, endpoint: str) -> EndpointState | None:
        return self.endpoints.endpoint(endpoint)

    def _streams(self, configuration: str) -> tuple[Stream, ...]:
        """Return the log streams of a revision's containers."""
        found = self.endpoints.configuration(configuration)
        since = found.created if found is not None else ""
        return streams(self.api, log_group_of(endpoint_of(configuration)), since)
