"""Results of doctor: the findings, and the required policy."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, InputError, warning
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.watching.lookup import own_words
from tgi_deploy.targets.protocol import Account
from tgi_deploy.values.base import Result, changed_fields, plain
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.results import BoundaryData, CheckedData, DoctorData, PolicyData, SummaryData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.plan import Plan


def plan_to_check(
    texts: OptionTexts, catalog: Catalog, environ: Mapping[str, str], target: Target, own: Value
) -> Plan | None:
    """Return the plan whose launch is checked; None without a MODEL. `own` are the target's options.

    Raises NoPlanError.
    """
    if not texts.model:
        return None
    made = plan(texts, catalog, environ)
    if isinstance(made, NoFeasiblePlan):
        words = shlex.join(("doctor", *own_words(changed_fields(own))))
        raise without_plan(words, texts, made, target=target)
    return made


def doctor_result(findings: tuple[Problem, ...]) -> Result[DoctorData, tuple[Problem, ...]]:
    """Return the findings. One that would make a launch fail is an error of the result, with exit code 1."""
    counted = Counter(item.severity for item in findings)
    errors = tuple(item for item in findings if item.severity == "error")
    shown = (
        CheckedData(
            severity=item.severity, code=item.code, message=item.message, remedy=item.hint, data=plain(item.data)
        )
        for item in findings
    )
    summary = SummaryData(ok=counted["ok"], warning=counted["warning"], error=counted["error"])
    return Result(
        data=DoctorData(findings=tuple(shown), summary=summary),
        outcome=findings,
        warnings=tuple(item for item in findings if item.severity == "warning"),
        errors=errors[:1],
        exit_code=DeployError.exit_code if errors else 0,
    )


def policy_result(
    target: Target, features: tuple[str, ...], *, everything: bool, boundary: bool
) -> Result[PolicyData, PolicyData]:
    """Return the required permissions. Raises InputError for a target without an account."""
    if not isinstance(target, Account):
        raise InputError(
            "conflicting_options",
            f"--target {target.name} uses no cloud account, so it needs no policy",
            hint="leave out --policy, or name another --target",
        )
    found = target.boundary() if boundary else target.policy(features, everything=everything)
    bounding = None if found.boundary is None else BoundaryData(**found.boundary)
    data = PolicyData(policy=found.document, features=found.features, boundary=bounding)
    notices = (warning("boundary_needed", found.notice),) if found.notice else ()
    return Result(data=data, outcome=data, warnings=notices)
