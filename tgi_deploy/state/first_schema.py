"""Upgrades records of schema 1, which the first release wrote: one machine for one request.

Their machines stay as they are: values held in tags and on the machine are never recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from tgi_deploy.values.base import Document, Moment, Seconds, as_value
from tgi_deploy.values.deployment import (
    Deployment,
    DeploymentStatus,
    Pool,
    RecordState,
    ResourceRecord,
    Revision,
    RevisionState,
)
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.plan_document import PlanDocument
from tgi_deploy.values.resource import machine_key, revision_key

# The kinds of machines, before records had `is_machine`; and the resources that options added to the request.
MACHINES: Final = frozenset({"instance", "container"})
_API_KEY_NOTE: Final = "api_key_parameter"
_SCHEDULE: Final = "schedule"
_TEMPLATE: Final = "launch-template"
_RENAMED: Final = {"catalogue_date": "catalog_date", "dearer": "more_expensive", "utilisation": "utilization"}
_STATES: Final[Mapping[DeploymentStatus, RevisionState]] = {
    "creating": "pending",
    "running": "pending",
    "ready": "serving",
    "failed": "failed",
    "deleting": "retired",
}


def _key(first: str) -> str:
    """Return the current key, in which resources of a revision carry its number; there was only one."""
    if first in MACHINES:
        return machine_key(first, 1)
    return revision_key(first, 1) if first == _TEMPLATE else first


class FirstResource(Document, frozen=True, kw_only=True):
    key: str
    kind: str
    place: str
    phase: RecordState
    spec: str
    attempt: int
    attributes: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}
    is_machine: bool | None = None

    @property
    def record(self) -> ResourceRecord:
        return ResourceRecord(
            key=_key(self.key),
            kind=self.kind,
            place=self.place,
            state=self.phase,
            spec=self.spec,
            request_number=self.attempt,
            attributes=self.attributes,
            notes=self.notes,
            is_machine=self.kind in MACHINES if self.is_machine is None else self.is_machine,
        )


class FirstRecord(Document, frozen=True, kw_only=True):
    """Fields with a default are missing from the oldest records."""

    name: str
    id: str
    target: str
    region: str
    phase: DeploymentStatus
    created: Moment
    updated: Moment
    plan: PlanDocument | None = None
    resources: tuple[FirstResource, ...] = ()
    endpoint: str | None = None
    usd_per_hour: Decimal | None = None
    ttl_s: Seconds | None = None
    expires: Moment | None = None
    idle_s: Seconds | None = None
    lease_s: Seconds | None = None
    lease_until: Moment | None = None
    attempt: int = 0
    serial: int = 0
    owner: str = ""
    plaintext: bool = False
    spent_usd: Decimal | None = None
    given_up: bool = False

    @property
    def revision(self) -> Revision:
        chosen = self.plan.chosen if self.plan else None
        pool = Pool(
            place=self.region,
            instance_type=chosen.instance_type if chosen else None,
            market=chosen.market if chosen else None,
            machine_usd_per_hour=self.usd_per_hour,
        )
        return Revision(
            number=1,
            origin="schema-1",
            state=_STATES[self.phase],
            created_at=self.created,
            pools=(pool,),
            plan=self.plan,
            marks=self.marks,
        )

    @property
    def marks(self) -> Mapping[str, Any]:
        """Return what the options added to the request, derived from the created resources."""
        extras = {
            "api_key": any(_API_KEY_NOTE in item.notes for item in self.resources),
            "external_ttl": any(item.kind == _SCHEDULE for item in self.resources),
        }
        return {"extras": extras} if any(extras.values()) else {}


def with_current_keys(part: object) -> object:
    """Return a part of a plan with its current keys. Some records of schema 2 have former ones, too."""
    if isinstance(part, Mapping):
        return {_RENAMED.get(key, key): with_current_keys(value) for key, value in part.items()}
    return [with_current_keys(item) for item in part] if isinstance(part, list) else part


def upgraded(document: Mapping[str, Any]) -> Deployment:
    """Return a record of schema 1 in the current schema. Raises ValueError with the reason."""
    plan = document.get("plan") or None  # an empty plan used to mean none
    first = as_value({**document, "plan": plan}, FirstRecord)
    return Deployment(
        name=first.name,
        id=first.id,
        target=first.target,
        status=first.phase,
        created_at=first.created,
        updated_at=first.updated,
        owner=first.owner,
        revisions=(first.revision,),
        active=1 if first.phase == "ready" else None,
        resources=tuple(item.record for item in first.resources),
        endpoint=first.endpoint,
        plaintext=first.plaintext,
        ends=Ends(
            ttl_s=first.ttl_s,
            expires_at=first.expires,
            spent_before_usd=first.spent_usd,
            idle_s=first.idle_s,
            lease_s=first.lease_s,
            lease_until=first.lease_until,
        ),
        request_number=first.attempt,
        serial=first.serial,
        given_up=first.given_up,
    )
