"""`data` of `--json` if a command fails. A key is present only if its value is known."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Literal

from msgspec import UnsetType

from tgi_deploy.errors import Healed
from tgi_deploy.values.base import UNSET, Document, Fact
from tgi_deploy.values.change_results import PhaseData, ReceiptData
from tgi_deploy.values.plan_document import FilesData, NearMissData
from tgi_deploy.values.request import RequestDocument
from tgi_deploy.values.results import CheckedData


class ErrorResource(Document, frozen=True, kw_only=True):
    """A resource. A recorded one has a `phase`; one that was left behind may have a command that removes it."""

    kind: str
    id: str | None
    region: str
    phase: str | UnsetType = UNSET
    command: str | UnsetType | None = UNSET


class StillBilled(Document, frozen=True, kw_only=True):
    """A machine that is running, or may be: its cost, and the command that removes it."""

    machine: str | None
    region: str
    usd_per_hour: Decimal | None
    ends_at: datetime | None
    ends_with: str


class ServingData(Document, frozen=True, kw_only=True):
    """The revision that serves after a failed update."""

    revision: int
    endpoint: str | None


class ErrorData(Document, frozen=True, kw_only=True):
    """Keys shared by several errors; a code may add its own.

    For a failed start: `phase`, the diagnosis from `finding` to `command`, the `outcome` for its machine, and what
    exists or is left. If no plan is feasible: `requirements`, `near_misses` and `rejections`.
    """

    deployment: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    step: str | UnsetType = UNSET
    phase_elapsed_s: float | UnsetType = UNSET
    elapsed_s: float | UnsetType = UNSET
    phases: tuple[PhaseData, ...] | UnsetType = UNSET
    finding: str | UnsetType | None = UNSET
    cause: str | UnsetType | None = UNSET
    evidence: str | UnsetType | None = UNSET
    line: int | UnsetType | None = UNSET
    remedy: str | UnsetType | None = UNSET
    command: str | UnsetType | None = UNSET
    outcome: Literal["kept", "removed", "not_removed", "nothing_created", "removing"] | UnsetType = UNSET
    still_billed: StillBilled | UnsetType | None = UNSET
    receipt: ReceiptData | UnsetType | None = UNSET
    receipts: tuple[ReceiptData, ...] | UnsetType = UNSET
    receipt_files: tuple[str | None, ...] | UnsetType = UNSET
    before: tuple[ErrorResource, ...] | UnsetType = UNSET
    exists: tuple[ErrorResource, ...] | UnsetType = UNSET
    not_removed: tuple[ErrorResource, ...] | UnsetType = UNSET
    healed: tuple[Healed, ...] | UnsetType = UNSET
    restored: ServingData | UnsetType | None = UNSET
    serving: ServingData | UnsetType = UNSET
    findings: tuple[CheckedData, ...] | UnsetType = UNSET
    requirements: RequestDocument | UnsetType = UNSET
    near_misses: tuple[NearMissData, ...] | UnsetType = UNSET
    rejections: tuple[Mapping[str, Fact], ...] | UnsetType = UNSET
    considered: int | UnsetType = UNSET
    catalog_date: str | UnsetType = UNSET
    files: FilesData | UnsetType = UNSET
    crash_file: str | UnsetType | None = UNSET
