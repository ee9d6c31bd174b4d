"""The use case `doctor`: finds problems before any money is spent, each with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.operations.checking.local_checks import extras_findings, python_finding, state_finding
from tgi_deploy.targets.protocol import AccountRequest, DoctorChecks, LocalHost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.checking.local_checks import Workstation
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorRequest:
    """The request. `options` are the target's. Without `plan`, only the account is checked, in the first location.

    `environ` has the variables that a launch would read.
    """

    context: Context
    workstation: Workstation
    target: str
    options: Any
    environ: Mapping[str, str]
    plan: Plan | None = None


def doctor(request: DoctorRequest) -> tuple[Problem, ...]:
    """Return all findings, starting with those about this computer. Never raises: failures are findings."""
    context, here = request.context, request.workstation
    chosen = context.target(request.target)
    findings = [python_finding(here), state_finding(here), *extras_findings(here, context.targets, request.target)]
    if isinstance(chosen, LocalHost):
        findings.extend(chosen.examine_host())
    if isinstance(chosen, DoctorChecks):
        asked = AccountRequest(
            options=request.options,
            plan=request.plan,
            place=request.plan.chosen.offer.region if request.plan else context.regions[0],
            environ=request.environ,
        )
        findings.extend(chosen.examine(context, asked))
    return tuple(findings)
