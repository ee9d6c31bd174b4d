"""Results of changing: up, rollback, down, gc, stop, start, restart, scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.errors import Healed, warning
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.results.watching import deployment_data, ends_data
from tgi_deploy.operations.watching.lookup import recorded_like
from tgi_deploy.readiness.proof_load import measured_document
from tgi_deploy.values.base import Result, as_value
from tgi_deploy.values.change_results import (
    DifferenceData,
    DownData,
    GcData,
    GroupData,
    GroupResourceData,
    MeasuredData,
    PhaseData,
    ProofData,
    ProofStepData,
    ReadyData,
    ReceiptData,
    ScaleData,
    SkippedData,
    StepData,
    SwitchData,
    UpData,
    UpdateData,
)
from tgi_deploy.values.ends import endless

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.heal import Fix
    from tgi_deploy.operations.deploying.pausing import SwitchOutcome
    from tgi_deploy.operations.deploying.rollout import Update
    from tgi_deploy.operations.deploying.scaling import ScaleOutcome
    from tgi_deploy.operations.deploying.service import Proof
    from tgi_deploy.operations.deploying.up import UpOutcome
    from tgi_deploy.operations.removing.down import DownOutcome
    from tgi_deploy.operations.removing.gc import GcOutcome, Group
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.readiness.waiting import ReadyReport
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import ChangeSet


def up_result(
    plan: Plan,
    found: UpOutcome,
    fixes: Sequence[Fix] = (),
    notices: tuple[Problem, ...] = (),
    region_notice: str | None = None,
) -> Result[UpData, UpOutcome]:
    """Return the result of an `up` or a rollback.

    `notices` are those that the target gave before planning; `region_notice` is set if the default region was used.
    """
    planned = (warning("notice", text) for text in plan.notices)
    region = (warning("default_region", region_notice),) if region_notice else ()
    warnings = (*notices, *planned, *region, *_warnings(found, fixes))
    return Result(data=up_data(found, fixes), outcome=found, warnings=warnings)


def _warnings(found: UpOutcome, fixes: Sequence[Fix]) -> Iterator[Problem]:
    yield from found.proof.warnings if found.proof else ()
    yield from found.proposal.warnings if found.proposal else ()
    yield from found.remarks
    deployment = found.deployment
    if found.proposal is None and (sentence := unencrypted(deployment)):
        yield warning("unencrypted", sentence)
    if found.changed:
        yield from endless(deployment.ends, deployment.billed_usd_per_hour)
    # With a fix, the deployment differs from the request.
    yield from (warning("plan_adjusted", f"after {fix.code}: {fix.what}") for fix in fixes)


def up_data(found: UpOutcome, fixes: Sequence[Fix] = ()) -> UpData:
    proposal = found.proposal
    return UpData(
        deployment=deployment_data(found.deployment),
        changed=found.changed,
        changes=_steps(proposal.changes) if proposal else (),
        endpoint=found.deployment.endpoint,
        update=None if proposal is None or proposal.update is None else _update(proposal.update),
        refused_s=None if found.refused_s is None else round(found.refused_s, 1),
        healed=tuple(Healed(code=fix.code, edit=fix.edit, what=fix.what) for fix in fixes),
        ready=_ready(found.ready),
        proof=None if found.proof is None else proof_data(found.proof),
    )


def _steps(changes: ChangeSet) -> tuple[StepData, ...]:
    return tuple(
        StepData(
            action=step.action,
            key=step.key,
            kind=step.kind,
            region=step.place,
            reason=step.reason,
            id=step.attributes.get("id"),
        )
        for step in changes.steps
    )


def _update(update: Update) -> UpdateData:
    return UpdateData(
        source=update.source,
        destination=update.destination,
        changes=tuple(DifferenceData(what=what, before=before, after=after) for what, before, after in update.rows),
        usd_per_hour_before=update.usd_per_hour_before,
        usd_per_hour_after=update.usd_per_hour_after,
        downtime_s=update.downtime_s,
        stable=update.stable,
        drain_s=update.drain_s,
        strategy=update.strategy,
        overlap_s=update.overlap_s,
        extra_usd=update.extra_usd,
        at_a_time=update.at_a_time,
    )


def _ready(ready: ReadyReport | None) -> ReadyData | None:
    if ready is None:
        return None
    phases = tuple(PhaseData(phase=item.phase, took_s=round(item.took_s, 1)) for item in ready.phases)
    return ReadyData(elapsed_s=round(ready.elapsed_s, 1), phases=phases)


def proof_data(proof: Proof) -> ProofData:
    return ProofData(
        level=proof.level,
        steps=tuple(ProofStepData(name=item.name, took_ms=item.took_ms) for item in proof.steps),
        answer=proof.served.answer,
        first_token_ms=proof.served.first_token_ms,
        measured=MeasuredData(**measured_document(proof.under_load.measured)) if proof.under_load else None,
    )


def scale_result(found: ScaleOutcome) -> Result[ScaleData, ScaleOutcome]:
    data = ScaleData(
        name=found.deployment.name,
        before=found.before.least,
        before_most=found.before.most if found.before.varies else None,
        replicas=found.replicas.least,
        most=found.replicas.most if found.replicas.varies else None,
        endpoint=found.deployment.endpoint,
        ready=_ready(found.ready),
    )
    return Result(data=data, outcome=found, warnings=found.remarks)


def switch_result(found: SwitchOutcome) -> Result[SwitchData, SwitchOutcome]:
    data = SwitchData(
        name=found.name,
        instance=found.machine_id,
        changed=found.changed,
        declined=found.declined,
        deployment=deployment_data(found.deployment) if found.deployment else None,
        usd_per_hour=found.usd_per_hour,
        endpoint=found.endpoint,
        ends=ends_data(found.ends),
        ready=_ready(found.ready),
        proof=None if found.proof is None else proof_data(found.proof),
    )
    return Result(data=data, outcome=found)


def down_result(context: Context, found: DownOutcome) -> Result[DownData, DownOutcome]:
    data = DownData(
        removed=found.removed,
        absent=found.absent,
        declined=found.declined,
        regions=context.regions,
        changes={item.name: _steps(item.changes) for item in found.removals if not item.nothing},
        **_receipts(found.receipts),
    )
    return Result(data=data, outcome=found, warnings=(*_unsearched(found.receipts), *_misspelled(context, found)))


def _unsearched(receipts: Sequence[Receipt]) -> Iterator[Problem]:
    """Yield a warning for each kind of resource that a removal could not search for."""
    for receipt in receipts:
        for item in receipt.unsearched:
            message = f"{receipt.name}: {item.kind}s in {item.region} could not be searched for: {item.why}"
            yield warning("search_incomplete", message)


def _misspelled(context: Context, found: DownOutcome) -> Iterator[Problem]:
    """Warn about a name without resources: it may be a typo, and the intended deployment would keep running."""
    for name in found.absent:
        near = recorded_like(context, name)
        if near:
            message = f"'{name}' has no resources to remove; recorded deployments are {' and '.join(near)}"
            yield warning("unknown_deployment", message)


def gc_result(found: GcOutcome) -> Result[GcData, GcOutcome]:
    data = GcData(
        orphans=tuple(map(_group, found.orphans)),
        kept=tuple(map(_group, found.kept)),
        removed=tuple(receipt.name for receipt in found.receipts),
        skipped=tuple(SkippedData(deployment=name, reason=reason) for name, reason in found.skipped),
        declined=found.declined,
        regions=found.regions,
        **_receipts(found.receipts),
    )
    unseen = tuple(warning("search_incomplete", f"{region}: {why}") for region, why in found.unseen)
    return Result(data=data, outcome=found, warnings=unseen)


def _group(group: Group) -> GroupData:
    return GroupData(
        deployment=group.name,
        id=group.id,
        recorded=group.recorded is not None,
        reason=group.reason,
        expires=group.expires,
        resources=tuple(GroupResourceData(kind=item.kind, id=item.id, region=item.place) for item in group.found),
    )


def _receipts(receipts: Sequence[Receipt]) -> dict[str, Any]:
    data = tuple(as_value(item.document(), ReceiptData) for item in receipts)
    return {
        "receipt": data[0] if len(data) == 1 else None,
        "receipts": data,
        "receipt_files": tuple(item.path for item in receipts),
    }
