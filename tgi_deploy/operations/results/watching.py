"""Results of read-only commands and extend: status, list, open, ask, logs, diagnose, explain."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from tgi_deploy.diagnosis.reader import read
from tgi_deploy.errors import warning
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.asking import ask
from tgi_deploy.operations.watching.costs import costs
from tgi_deploy.operations.watching.diagnose import diagnose_deployment
from tgi_deploy.operations.watching.explain import all_codes, explain
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.logs import logs
from tgi_deploy.operations.watching.shell import run_there
from tgi_deploy.operations.watching.status import status, statuses
from tgi_deploy.values.base import UNSET, Result, replaced
from tgi_deploy.values.results import (
    AccessData,
    AnswerData,
    CodesData,
    CostsData,
    DeploymentData,
    DeploymentStatusData,
    DiagnosisData,
    DriftData,
    EndData,
    ExecData,
    ExistingResourceData,
    ExplanationData,
    ExtensionData,
    ListData,
    LogData,
    MachineData,
    NamedStatusData,
    ProbeData,
    ResourceData,
    RevisionData,
    RolloutData,
    RowData,
    StatusData,
    UnexplainedData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.in_place import Extension
    from tgi_deploy.operations.watching.asking import Answer, Prompt
    from tgi_deploy.operations.watching.diagnose import DeploymentDiagnosis
    from tgi_deploy.operations.watching.explain import Explanation
    from tgi_deploy.operations.watching.listing import Listing, Row
    from tgi_deploy.operations.watching.status import Status
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.values.deployment import Deployment, Revision
    from tgi_deploy.values.ends import WantedEnds
    from tgi_deploy.values.resource import MachineState


def status_result(context: Context, name: str) -> Result[NamedStatusData, Status]:
    """Return the status of one deployment. If it does not serve, that is an error of the result, with exit code 5."""
    found = status(context, name)
    shown, failure = status_data(found), found.failure
    return Result(
        data=NamedStatusData(deployments=(shown,), url=shown.url, replicas=shown.replicas),
        outcome=found,
        warnings=found.drift,
        errors=(failure.problem,) if failure else (),
        exit_code=failure.exit_code if failure else 0,
    )


def statuses_result(context: Context) -> Result[StatusData, tuple[Status, ...]]:
    found = tuple(statuses(context))
    drift = tuple(problem for item in found for problem in item.drift)
    return Result(data=StatusData(deployments=tuple(map(status_data, found))), outcome=found, warnings=drift)


def list_result(context: Context) -> Result[ListData, Listing]:
    found = list_deployments(context)
    rows = tuple(map(_row, found.rows))
    return Result(data=ListData(deployments=rows, regions=context.regions), outcome=found, warnings=found.warnings)


def costs_result(context: Context) -> Result[CostsData, CostsData]:
    data, warnings = costs(context)
    return Result(data=data, outcome=data, warnings=warnings)


def access_result(context: Context, name: str) -> Result[AccessData, AccessData]:
    found = access(context, name)
    return Result(data=found, outcome=found)


def answer_result(
    context: Context, name: str, prompt: Prompt, on_piece: Callable[[str], None]
) -> Result[AnswerData, Answer]:
    found = ask(context, name, prompt, on_piece)
    data = AnswerData(
        name=name,
        answer=found.text,
        chat=found.chat,
        tokens=found.tokens,
        first_token_ms=found.first_token_ms,
        tokens_per_s=found.tokens_per_s,
    )
    return Result(data=data, outcome=found)


def exec_result(
    context: Context, name: str, words: tuple[str, ...], *, terminal: bool, captured: bool
) -> Result[ExecData, None]:
    found = run_there(context, name, words, terminal=terminal, captured=captured)
    data = ExecData(name=name, command=words, stdout=found.stdout, stderr=found.stderr)
    return Result(data=data, outcome=None, exit_code=found.exit_code)


def logs_result(context: Context, name: str, *, tail: int | None, raw: bool) -> Result[LogData, str]:
    text = logs(context, name, tail=tail, raw=raw)
    return Result(data=LogData(name=name, lines=tuple(text.splitlines())), outcome=text)


def diagnosis_result(context: Context, name: str) -> Result[DiagnosisData, DeploymentDiagnosis]:
    found = diagnose_deployment(context, name)
    shown = replaced(_diagnosis(name, found.reading, 0), machine=_machine(found.machine))
    return Result(data=shown, outcome=found)


def log_diagnosis_result(text: str, grammar: LogGrammar, *, source: str, before: int) -> Result[DiagnosisData, Reading]:
    """Return the diagnosis of a log. `before` is the number of log lines before `text`."""
    found = read(text, grammar)
    return Result(data=_diagnosis(source, found, before), outcome=found)


def explanation_result(code: str, engine: str) -> Result[ExplanationData, Explanation]:
    found = explain(code, engine)
    return Result(data=_explanation(found), outcome=found)


def codes_result(engine: str) -> Result[CodesData, tuple[Explanation, ...]]:
    found = all_codes(engine)
    return Result(data=CodesData(codes=tuple(map(_explanation, found))), outcome=found)


def extension_result(context: Context, name: str, wanted: WantedEnds) -> Result[ExtensionData, Extension]:
    found = extend(context, name, wanted)
    lease = found.lease
    data = ExtensionData(
        name=found.name,
        instance=found.machine_id,
        lease_until=ends_data((lease,))[0].at if lease else None,
        ends=ends_data(found.ends),
    )
    return Result(data=data, outcome=found, warnings=_ends_sooner(found))


def _ends_sooner(extension: Extension) -> tuple[Problem, ...]:
    lease, ends = extension.lease, extension.ends
    if lease is None or not ends or ends[0].reason != "ttl" or ends[0].at is None:
        return ()
    at = ends[0].at.isoformat(timespec="seconds")
    remedy = f"'tgi-deploy extend {extension.name} --ttl TIME'"
    message = f"its --ttl or --max-spend terminates it before its lease expires, at {at}: {remedy}"
    return (warning("earlier_limit", message),)


def deployment_data(deployment: Deployment) -> DeploymentData:
    plan, ends, rollout = deployment.plan, deployment.ends, deployment.rollout
    return DeploymentData(
        name=deployment.name,
        id=deployment.id,
        target=deployment.target,
        region=deployment.region,
        phase=deployment.status,
        endpoint=deployment.endpoint,
        revision=deployment.current.number,
        revisions=tuple(map(_revision, deployment.revisions)),
        rollout=RolloutData(
            source=rollout.source, destination=rollout.destination, stage=rollout.stage, strategy=rollout.strategy
        )
        if rollout
        else None,
        usd_per_hour=deployment.billed_usd_per_hour,
        ttl_s=ends.ttl_s,
        expires=ends.expires_at,
        idle_s=ends.idle_s,
        lease_s=ends.lease_s,
        lease_until=ends.lease_until,
        plaintext=deployment.plaintext,
        created=deployment.created_at,
        updated=deployment.updated_at,
        resources=tuple(
            ResourceData(
                key=item.key, kind=item.kind, region=item.place, phase=item.state, id=item.attributes.get("id")
            )
            for item in deployment.resources
        ),
        model=plan.model.id if plan else None,
        chosen=plan.chosen if plan else None,
    )


def _revision(revision: Revision) -> RevisionData:
    plan = revision.plan
    chosen = plan.chosen if plan else None
    return RevisionData(
        number=revision.number,
        origin=revision.origin,
        state=revision.state,
        created=revision.created_at,
        model=plan.model.id if plan else None,
        release=plan.engine.version if plan else None,
        instance_type=chosen.instance_type if chosen else None,
        num_shard=chosen.num_shard if chosen else None,
        quantize=chosen.quantize if chosen else None,
    )


def status_data(status: Status) -> DeploymentStatusData:
    return DeploymentStatusData(
        name=status.name,
        healthy=status.healthy,
        url=status.url,
        replicas=status.replicas,
        recorded=deployment_data(status.recorded) if status.recorded else None,
        owners=status.owners,
        resources=tuple(
            ExistingResourceData(
                key=item.key, kind=item.kind, region=item.place, id=item.id, state=item.state, attached=item.attached
            )
            for item in status.seen
        ),
        drift=tuple(DriftData(key=item.data["key"], code=item.code, message=item.message) for item in status.drift),
        ends=ends_data(status.ends),
        spot_notice=status.spot_notice,
        unencrypted=status.unencrypted,
        machine=None if status.machine is None else _machine(status.machine),
        probe=_probe(status.probe),
        spent_usd=None if status.spent is None else status.spent.usd,
        starting=status.starting,
        autoscaler=status.autoscaler,
    )


def _machine(machine: MachineState) -> MachineData:
    return MachineData(state=machine.state, reason_code=machine.reason_code, reason=machine.reason)


def _probe(probe: Probe | None) -> ProbeData | None:
    return None if probe is None else ProbeData(outcome=probe.outcome, status=probe.status, why=probe.why)


def ends_data(ends: Sequence[End]) -> tuple[EndData, ...]:
    return tuple(
        EndData(
            reason=end.reason,
            at=None if end.at is None else end.at.astimezone(UTC).replace(microsecond=0),
            seconds=end.seconds,
        )
        for end in ends
    )


def _row(row: Row) -> RowData:
    return RowData(
        name=row.name,
        recorded=row.recorded,
        phase=row.phase,
        region=row.region,
        model=row.model,
        instance_type=row.instance_type,
        machine=row.machine,
        now=row.now,
        endpoint=row.endpoint,
        probe=_probe(row.probe),
        usd_per_hour=row.usd_per_hour,
        expires=row.expires,
        ends=ends_data(row.ends),
        owners=row.owners,
        estimated=row.estimated,
        price_dated=row.price_dated,
    )


def _diagnosis(source: str, found: Reading, before: int) -> DiagnosisData:
    error = found.unexplained
    return DiagnosisData(
        source=source,
        findings=tuple(replaced(item, line=item.line + before) if item.line else item for item in found.findings),
        phase=found.startup_phase if found.phase_seen else None,
        failed=found.failed,
        attempts=found.starts,
        unexplained=None if error is None else UnexplainedData(evidence=error.text, line=error.number + before),
    )


def _explanation(item: Explanation) -> ExplanationData:
    page, tool = item.page, item.tool
    meaning = tool.meaning if tool else UNSET
    if page is None:
        kind, remedy = (tool.kind, tool.remedy) if tool else ("", "")
        return ExplanationData(code=item.code, kind=kind, meaning=meaning, remedy=remedy)
    return ExplanationData(
        code=item.code,
        kind="diagnosis",
        meaning=meaning,
        phase=page.phase,
        title=page.title,
        cause=page.cause,
        check=page.check,
        costs=page.costs,
        prevent=page.prevent,
        versions=page.versions,
        since=page.since,
        sources=page.sources,
        remedy=page.remedy.text,
        commands=page.remedy.commands,
        plan_edit=item.plan_edit,
    )
