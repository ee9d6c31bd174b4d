"""Results of smoke and rehearse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import LeftBehindError, Problem, warning
from tgi_deploy.operations.deploying.smoke import overall
from tgi_deploy.operations.results.changing import proof_data
from tgi_deploy.values.base import Result, replaced
from tgi_deploy.values.change_results import (
    CaseData,
    FailedCaseData,
    ProofsData,
    SmokeData,
    SmokedData,
)

if TYPE_CHECKING:
    from tgi_deploy.operations.deploying.smoke import Case, Proved, Smoked
    from tgi_deploy.values.change_results import RehearsalData


def smoke_result(found: tuple[Smoked, ...]) -> Result[SmokeData, tuple[Smoked, ...]]:
    """Return the outcome of each model. Failures are errors of the result, with the most severe exit code."""
    errors = (
        replaced(problem, message=f"{item.job.model}: {problem.message}")
        for item in found
        for _, problem in item.failures
    )
    data = SmokeData(results=tuple(map(_smoked, found)))
    return Result(data=data, outcome=found, errors=tuple(errors), exit_code=overall(found))


def _smoked(found: Smoked) -> SmokedData:
    return SmokedData(
        model=found.job.model,
        name=found.job.name,
        exit_code=found.exit_code,
        took_s=found.took_s,
        usd=found.usd,
        chosen=found.chosen,
        cases=tuple(map(_case, found.cases)),
        not_removed=found.left,
    )


def _case(case: Case) -> CaseData:
    problem = case.problem
    failure = None if problem is None else FailedCaseData(code=problem.code, message=problem.message, text=case.text)
    return CaseData(name=case.name, took_s=case.took_s, skipped=case.skipped, failure=failure)


def proofs_result(found: tuple[Proved, ...]) -> Result[ProofsData, tuple[Proved, ...]]:
    """Return the proof of each deployment. A failed one is an error of the result, with the worst exit code."""
    proofs = {item.smoked.job.name: item.proof for item in found if item.proof}
    unencrypted = (warning("unencrypted", item.unencrypted) for item in found if item.unencrypted)
    return Result(
        data=ProofsData(proofs={name: proof_data(proof) for name, proof in proofs.items()}),
        outcome=found,
        warnings=(*unencrypted, *(item for proof in proofs.values() for item in proof.warnings)),
        errors=tuple(item.error.problem for item in found if item.error),
        exit_code=overall([item.smoked for item in found]),
    )


def rehearsal_result(found: RehearsalData) -> Result[RehearsalData, RehearsalData]:
    """Return the rehearsal. If something is left at the end, that is an error of the result, with exit code 6."""
    if found.safe:
        return Result(data=found, outcome=found)
    left = ", ".join(f"{item.kind} {item.id}" for item in found.left)
    error = Problem(
        code="left_behind",
        message=f"after the rehearsal these resources still existed: {left}",
        hint="in a cloud this would cost money: please report it with the same --fault and --seed",
    )
    return Result(data=found, outcome=found, errors=(error,), exit_code=LeftBehindError.exit_code)
