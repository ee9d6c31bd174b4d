"""Results of commands: `data` of their `--json`, as values. Their JSON Schemas are published (docs/schemas.json).

Keys are a contract: they may be added, but never renamed or removed. Times are ISO 8601, money is in US dollars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from msgspec import UnsetType

from tgi_deploy.values.base import UNSET, Fact, Value
from tgi_deploy.values.deployment import DeploymentStatus, RecordState, RevisionState, Strategy
from tgi_deploy.values.plan_document import Choice
from tgi_deploy.values.resource import AutoscalerState


class EndData(Value, frozen=True, kw_only=True):
    """One limit of a machine. `at` is None for `idle`; `seconds` is the length of the lease or timeout."""

    reason: str
    at: datetime | None
    seconds: int | None


class RevisionData(Value, frozen=True, kw_only=True):
    number: int
    origin: str
    state: RevisionState
    created: datetime
    model: str | None
    release: str | None
    instance_type: str | None
    num_shard: int | None
    quantize: str | None


class RolloutData(Value, frozen=True, kw_only=True):
    """An update that is not finished."""

    source: int | None
    destination: int
    stage: str
    strategy: Strategy


class ResourceData(Value, frozen=True, kw_only=True):
    """A recorded resource. `phase` is its record's state; one that was requested but not confirmed has no id."""

    key: str
    kind: str
    region: str
    phase: RecordState
    id: str | None


class DeploymentData(Value, frozen=True, kw_only=True):
    """A recorded deployment. `phase` is its status, `chosen` the plan's choice."""

    name: str
    id: str
    target: str
    region: str
    phase: DeploymentStatus
    endpoint: str | None
    revision: int
    revisions: tuple[RevisionData, ...]
    rollout: RolloutData | None
    usd_per_hour: Decimal | None
    ttl_s: int | None
    expires: datetime | None
    idle_s: int | None
    lease_s: int | None
    lease_until: datetime | None
    plaintext: bool
    created: datetime
    updated: datetime
    resources: tuple[ResourceData, ...]
    model: str | None
    chosen: Choice | None


class Replica(Value, frozen=True, kw_only=True):
    """A machine of a deployment. `age_s` and `usd_per_hour` are None if unknown."""

    id: str
    revision: int | None
    location: str
    status: str
    age_s: int | None
    usd_per_hour: Decimal | None


class ExistingResourceData(Value, frozen=True, kw_only=True):
    """An existing resource; an `attached` one belongs to another and is deleted with it."""

    key: str
    kind: str
    region: str
    id: str
    state: str
    attached: bool


class DriftData(Value, frozen=True, kw_only=True):
    """A difference between record and reality, for the resource with this key."""

    key: str
    code: str
    message: str


class MachineData(Value, frozen=True, kw_only=True):
    """The machine's state as reported by its cloud."""

    state: str
    reason_code: str | None
    reason: str | None


class ProbeData(Value, frozen=True, kw_only=True):
    """The result of a health check: `status` with an HTTP status, or why there is none.

    `refused`, `reset`, `timeout`: nothing answers there. `distrusted`: another certificate than the machine reported.
    `no_tunnel`: no tunnel to its machine can be opened from here, and `why`.
    """

    outcome: str
    status: int | None
    why: str = ""


class Starting(Value, frozen=True, kw_only=True):
    """The progress of a start. `fraction` is from 0 to 1; `cause` is the code of the previous start's failure."""

    phase: str
    detail: str = ""
    fraction: float | None = None
    exit_code: int | None = None
    cause: str | None = None


class DeploymentStatusData(Value, frozen=True, kw_only=True):
    """The status of a deployment: its record, what exists, the differences, and whether it answers."""

    name: str
    healthy: bool
    url: str | None
    replicas: tuple[Replica, ...]
    recorded: DeploymentData | None
    owners: tuple[str, ...]
    resources: tuple[ExistingResourceData, ...]
    drift: tuple[DriftData, ...]
    ends: tuple[EndData, ...]
    spot_notice: str | None
    unencrypted: str | None
    machine: MachineData | None
    probe: ProbeData | None
    spent_usd: Decimal | None
    starting: Starting | None
    autoscaler: AutoscalerState | None = None


class StatusData(Value, frozen=True, kw_only=True):
    """`data` of `status`: every deployment."""

    deployments: tuple[DeploymentStatusData, ...]


class NamedStatusData(StatusData, frozen=True, kw_only=True):
    """`data` of `status NAME`: one deployment, with its URL and its machines."""

    url: str | None
    replicas: tuple[Replica, ...]


class RowData(Value, frozen=True, kw_only=True):
    """A summary of a deployment. `phase` is its record's, `machine` the current state, `now` the current status.

    `usd_per_hour` is `estimated` on the spot market; `price_dated` is its date, as `listed 2026-07-20`.
    """

    name: str
    recorded: bool
    phase: str
    region: str
    model: str | None
    instance_type: str | None
    machine: str | None
    now: str
    endpoint: str | None
    probe: ProbeData | None
    usd_per_hour: Decimal | None
    expires: str | None
    ends: tuple[EndData, ...]
    owners: tuple[str, ...]
    estimated: bool = False
    price_dated: str = ""


class ListData(Value, frozen=True, kw_only=True):
    """`data` of `list`; `regions` were searched."""

    deployments: tuple[RowData, ...]
    regions: tuple[str, ...]


class AmountsData(Value, frozen=True, kw_only=True):
    """US dollars. None: the price is unknown, or nothing is billed by the hour. `estimated`: includes a spot price."""

    accrued_usd: Decimal | None
    usd_per_hour: Decimal | None
    usd_per_month: Decimal | None
    estimated: bool


class DeploymentCostData(AmountsData, frozen=True, kw_only=True):
    """The cost of a deployment. `recorded`: from its whole history on this computer; else only live machines count.

    `price_dated` is the date of its hourly price, as `listed 2026-07-20`.
    """

    name: str
    owner: str
    location: str
    machines: int
    recorded: bool
    price_dated: str = ""


class OwnerCostData(AmountsData, frozen=True, kw_only=True):
    owner: str
    deployments: int


class RemovedData(Value, frozen=True, kw_only=True):
    """The total of deployments removed from here, by their receipts; not included in the others."""

    accrued_usd: Decimal
    deployments: int
    since: datetime | None


class CostsData(Value, frozen=True, kw_only=True):
    """`data` of `costs`. `total` includes removed deployments; `regions` were searched."""

    deployments: tuple[DeploymentCostData, ...]
    owners: tuple[OwnerCostData, ...]
    removed: RemovedData
    total: AmountsData
    regions: tuple[str, ...]


class AccessData(Value, frozen=True, kw_only=True):
    """`data` of `open`: commands to paste, with the name of the API key's variable.

    `tunnel` is a command that makes a remote port available here; empty if not needed. `unencrypted` describes
    unencrypted traffic. `certificate` is the SHA-256 of the only certificate to accept there; empty before its machine
    has reported it, None without one. `first` is a command that the others need before them; empty if none.
    """

    name: str
    url: str
    curl: str
    python: str
    tunnel: str
    unencrypted: str | None = None
    certificate: str | None = None
    first: str = ""


class AnswerData(Value, frozen=True, kw_only=True):
    """`data` of `ask`. `tokens_per_s` counts from the first token on; None if there are too few."""

    name: str
    answer: str
    chat: bool
    tokens: int
    first_token_ms: float | None
    tokens_per_s: float | None


class ExecData(Value, frozen=True, kw_only=True):
    """`data` of `exec`. Output is None if it went to this program's streams."""

    name: str
    command: tuple[str, ...]
    stdout: str | None
    stderr: str | None


class LogData(Value, frozen=True, kw_only=True):
    """`data` of `logs`."""

    name: str
    lines: tuple[str, ...]


class Finding(Value, frozen=True, kw_only=True):
    """A cause, and the log line that shows it (0: none). Unlike a `Problem`, it may be wrong.

    `confidence` is from 0 to 1. `commands` apply the `remedy`. `distinguish_by` is how to distinguish this cause from
    another one that matches the same line.
    """

    code: str
    startup_phase: str
    confidence: float
    evidence: str
    line: int
    cause: str
    remedy: str
    commands: tuple[str, ...] = ()
    distinguish_by: str = ""

    @property
    def remedy_line(self) -> str:
        """The remedy with its first command, as errors print it."""
        return COMMAND.join((self.remedy, *self.commands[:1]))


# Between a remedy's sentence and its command.
COMMAND: Final = " Command: "


def sentence_of(remedy: str) -> str:
    """Return a finding's remedy without its command."""
    return remedy.partition(COMMAND)[0]


def command_of(remedy: str) -> str | None:
    """Return the command of a finding's remedy, or None."""
    return remedy.partition(COMMAND)[2] or None


class UnexplainedData(Value, frozen=True, kw_only=True):
    """The first error of a log without a known cause."""

    evidence: str
    line: int


class DiagnosisData(Value, frozen=True, kw_only=True):
    """`data` of `diagnose`: findings, the most likely first. `phase` is the start's current phase.

    For a deployment, `machine` is its machine's state.
    """

    source: str
    findings: tuple[Finding, ...]
    phase: str | None
    failed: bool
    attempts: int
    unexplained: UnexplainedData | None
    machine: MachineData | UnsetType = UNSET


class ExplanationData(Value, frozen=True, kw_only=True):
    """Everything about a code: a diagnosis has a page, an error, warning or rejection a meaning."""

    code: str
    kind: str
    meaning: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    check: tuple[str, ...] | UnsetType = UNSET
    costs: str | UnsetType = UNSET
    prevent: str | UnsetType = UNSET
    versions: str | UnsetType = UNSET
    since: str | UnsetType = UNSET
    sources: tuple[str, ...] | UnsetType = UNSET
    remedy: str
    commands: tuple[str, ...] | UnsetType = UNSET
    plan_edit: str | UnsetType = UNSET


class CodesData(Value, frozen=True, kw_only=True):
    """`data` of `explain` without a code."""

    codes: tuple[ExplanationData, ...]


class ExtensionData(Value, frozen=True, kw_only=True):
    """`data` of `extend`: all current limits, the earliest first."""

    name: str
    instance: str
    lease_until: datetime | None
    ends: tuple[EndData, ...]


class SandboxInfo(Value, frozen=True, kw_only=True):
    """A running sandbox. `started` is ISO 8601; its API accepts `access_key` with any secret.

    `speed` is the factor by which its clock is accelerated.
    """

    endpoint_url: str
    pid: int
    started: str
    speed: float
    access_key: str | UnsetType = UNSET


class SandboxData(Value, frozen=True, kw_only=True):
    """`data` of `sandbox start` and `sandbox status`: None if no sandbox is running."""

    sandbox: SandboxInfo | None


class SandboxStopData(Value, frozen=True, kw_only=True):
    """`data` of `sandbox stop`: whether one ran."""

    stopped: bool


class RunbookData(Value, frozen=True, kw_only=True):
    """`data` of `runbook`. `out` is the file that the page was written to."""

    name: str
    markdown: str
    out: str | None = None


class CheckedData(Value, frozen=True, kw_only=True):
    """A finding of a check. `data` has the values behind it, keys with units."""

    severity: Literal["ok", "warning", "error"]
    code: str
    message: str
    remedy: str | None
    data: Mapping[str, Fact]


class SummaryData(Value, frozen=True, kw_only=True):
    """The numbers of findings by severity."""

    ok: int
    warning: int
    error: int


class DoctorData(Value, frozen=True, kw_only=True):
    """`data` of `doctor`."""

    findings: tuple[CheckedData, ...]
    summary: SummaryData


# A document of IAM, whose keys are IAM's.
_Words = str | Sequence[str]
_Statement = Mapping[str, _Words | Mapping[str, Mapping[str, _Words]]]
IamPolicy = Mapping[str, str | Sequence[_Statement]]


class BoundaryData(Value, frozen=True, kw_only=True):
    """The policy that bounds created roles, and the command with which an administrator creates it once."""

    name: str
    policy: IamPolicy
    command: str


class PolicyData(Value, frozen=True, kw_only=True):
    """`data` of `doctor --policy`. `features`: name → purpose; `boundary` limits the roles that the tool creates."""

    policy: IamPolicy | None
    features: Mapping[str, str]
    boundary: BoundaryData | None
