"""Results of commands that change something: `data` of `up`, `down`, `gc`, `stop`, `smoke`, `rehearse` and others."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from msgspec import UnsetType

from tgi_deploy.errors import Healed, LeftResource
from tgi_deploy.values.base import UNSET, Scalar, Value
from tgi_deploy.values.deployment import Strategy
from tgi_deploy.values.request import Market
from tgi_deploy.values.resource import Action
from tgi_deploy.values.results import DeploymentData, EndData


class StepData(Value, frozen=True, kw_only=True):
    """One step of a change. A resource that does not exist yet has no id."""

    action: Action
    key: str
    kind: str
    region: str
    reason: str
    id: str | None


class DifferenceData(Value, frozen=True, kw_only=True):
    """A change made by an update, as text."""

    what: str
    before: str
    after: str


class UpdateData(Value, frozen=True, kw_only=True):
    """What an update changes, before it begins.

    `downtime_s` is the expected time without an answer, `drain_s` how long open requests may take. For at most
    `overlap_s` two machines run, which costs an additional `extra_usd`. `stable`: the URL stays. `at_a_time`: how many
    replicas are replaced at a time, 0 for all.
    """

    source: int
    destination: int
    changes: tuple[DifferenceData, ...]
    usd_per_hour_before: Decimal | None
    usd_per_hour_after: Decimal | None
    downtime_s: int
    stable: bool
    drain_s: int
    strategy: Strategy
    overlap_s: int
    extra_usd: Decimal | None
    at_a_time: int


class PhaseData(Value, frozen=True, kw_only=True):
    phase: str
    took_s: float


class ReadyData(Value, frozen=True, kw_only=True):
    """How long it took until the engine answered. Phases that began and ended between two polls are not listed."""

    elapsed_s: float
    phases: tuple[PhaseData, ...]


class ProofStepData(Value, frozen=True, kw_only=True):
    name: str
    took_ms: float


class MeasuredData(Value, frozen=True, kw_only=True):
    """Measurements next to the plan's figures: medians over `requests` concurrent requests."""

    first_token_ms: float | None
    output_tokens_per_s: float | None
    requests: int
    kv_capacity_tokens: int | None
    kv_capacity_planned_tokens: int | None
    kv_difference: float | None


class ProofData(Value, frozen=True, kw_only=True):
    """The proof that it serves. `measured` is None if only a short answer was requested (level `fast`)."""

    level: str
    steps: tuple[ProofStepData, ...]
    answer: str
    first_token_ms: float | None
    measured: MeasuredData | None


class UpData(Value, frozen=True, kw_only=True):
    """`data` of `up` and `rollback`. `changed` is False if there was nothing to do, or it was declined.

    `refused_s` is how long an update refused new requests.
    """

    deployment: DeploymentData
    changed: bool
    changes: tuple[StepData, ...]
    endpoint: str | None
    update: UpdateData | None
    refused_s: float | None
    healed: tuple[Healed, ...]
    ready: ReadyData | None
    proof: ProofData | None


class SwitchData(Value, frozen=True, kw_only=True):
    """`data` of `stop`, `start` and `restart`. Without a record, nothing waits for the engine or proves it."""

    name: str
    instance: str
    changed: bool
    declined: bool
    deployment: DeploymentData | None
    usd_per_hour: Decimal | None
    endpoint: str | None
    ends: tuple[EndData, ...]
    ready: ReadyData | None
    proof: ProofData | None


class ScaleData(Value, frozen=True, kw_only=True):
    """`data` of `scale`. `before` is the number on record; `ready` is null with --no-wait.

    Of a range, `replicas` is the least and `most` the largest number; `most` is null for one number.
    """

    name: str
    before: int
    before_most: int | None = None
    replicas: int
    most: int | None = None
    endpoint: str | None
    ready: ReadyData | None


class ReceiptLineData(Value, frozen=True, kw_only=True):
    """A removed resource. `removed_is`: whether `removed` was observed or is an upper bound."""

    kind: str
    id: str
    region: str
    created: str | None
    removed: str | None
    removed_is: str
    seconds: int | None
    usd_per_hour: str | None
    usd: str | None


class LeftData(Value, frozen=True, kw_only=True):
    """A resource that a removal left behind, with the command that removes it by hand, if there is one."""

    kind: str
    id: str
    region: str
    phase: str | UnsetType = UNSET
    command: str | UnsetType | None = UNSET


class KeptData(Value, frozen=True, kw_only=True):
    """A resource that stays on purpose."""

    kind: str
    id: str
    region: str
    what: str
    bytes: str


class UnsearchedData(Value, frozen=True, kw_only=True):
    """A kind of resource that could not be searched in a region."""

    region: str
    kind: str
    why: str


class BillData(Value, frozen=True, kw_only=True):
    seconds: int | None
    usd: str | None
    bound: str


class ReceiptData(Value, frozen=True, kw_only=True):
    """Proof of a removal. Times and money are strings, so that the hash is the same everywhere."""

    schema: int
    deployment: str
    id: str
    version: str
    at: str
    status: str
    given_up: bool
    regions: tuple[str, ...]
    resources: tuple[ReceiptLineData, ...]
    left: tuple[LeftData, ...]
    kept: tuple[KeptData, ...]
    unsearched: tuple[UnsearchedData, ...]
    cost: BillData
    sha256: str


class ReceiptsData(Value, frozen=True, kw_only=True):
    """`receipt` is the only one, or null; `receipts` are all."""

    receipt: ReceiptData | None
    receipts: tuple[ReceiptData, ...]
    receipt_files: tuple[str, ...]


class DownData(ReceiptsData, frozen=True, kw_only=True):
    """`data` of `down`: removed names, and names without resources; `changes` by name."""

    removed: tuple[str, ...]
    absent: tuple[str, ...]
    declined: bool
    regions: tuple[str, ...]
    changes: Mapping[str, tuple[StepData, ...]]


class GroupResourceData(Value, frozen=True, kw_only=True):
    kind: str
    id: str
    region: str


class GroupData(Value, frozen=True, kw_only=True):
    """The resources of one deployment, and why they are removed or kept."""

    deployment: str
    id: str
    recorded: bool
    reason: str
    expires: datetime | None
    resources: tuple[GroupResourceData, ...]


class SkippedData(Value, frozen=True, kw_only=True):
    deployment: str
    reason: str


class GcData(ReceiptsData, frozen=True, kw_only=True):
    """`data` of `gc`. `skipped` became owned or busy between showing and removing."""

    orphans: tuple[GroupData, ...]
    kept: tuple[GroupData, ...]
    removed: tuple[str, ...]
    skipped: tuple[SkippedData, ...]
    declined: bool
    regions: tuple[str, ...]


class UpFileData(Value, frozen=True, kw_only=True):
    """`data` of `up -f`: each deployment of the file, and those that `--prune` deleted."""

    deployments: tuple[UpData, ...]
    pruned: DownData | None


class RehearsedMachine(Value, frozen=True, kw_only=True):
    instance_type: str
    region: str
    market: Market


class FaultData(Value, frozen=True, kw_only=True):
    name: str
    description: str


class MomentData(Value, frozen=True, kw_only=True):
    """`at_s`: simulated seconds since the start."""

    at_s: float
    code: str
    text: str


class EndingData(Value, frozen=True, kw_only=True):
    """The result of a command in the rehearsal."""

    command: str
    exit_code: int
    code: str | None = None
    message: str | None = None
    hint: str | None = None


class LeftoverData(Value, frozen=True, kw_only=True):
    """Something left in the sandbox."""

    kind: str
    id: str


class RehearsalData(Value, frozen=True, kw_only=True):
    """`data` of `rehearse`. `usd` counts simulated time; it is `safe` if nothing is left."""

    name: str
    model: str
    machine: RehearsedMachine
    seed: int
    faults: tuple[FaultData, ...]
    timeline: tuple[MomentData, ...]
    calls: Mapping[str, int]
    machine_seconds: int
    usd: Decimal
    endings: tuple[EndingData, ...]
    left: tuple[LeftoverData, ...]
    safe: bool


class FailedCaseData(Value, frozen=True, kw_only=True):
    """A failure. `text` has the hint, evidence and diagnosis."""

    code: str
    message: str
    text: str


class CaseData(Value, frozen=True, kw_only=True):
    """One phase, or one probe of the engine."""

    name: str
    took_s: float
    skipped: bool
    failure: FailedCaseData | None


class SmokedData(Value, frozen=True, kw_only=True):
    """The outcome for one model. `chosen` is the plan's choice; `usd` is None if the price is unknown."""

    model: str
    name: str
    exit_code: int
    took_s: float
    usd: float | None
    chosen: Mapping[str, Scalar]
    cases: tuple[CaseData, ...]
    not_removed: tuple[LeftResource, ...]


class SmokeData(Value, frozen=True, kw_only=True):
    """`data` of `smoke` for models."""

    results: tuple[SmokedData, ...]


class ProofsData(Value, frozen=True, kw_only=True):
    """`data` of `smoke` for deployments: the proof of each one that passed."""

    proofs: Mapping[str, ProofData]
