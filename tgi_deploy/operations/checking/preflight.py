"""Checks before the user confirms the cost. An unknown result never stops a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, Problem
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_ID, TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.targets.protocol import Attempt, Launch
    from tgi_deploy.values.deployment import Deployment


def preflight(context: Context, launch: Launch, deployment: Deployment, attempt: Attempt) -> tuple[Problem, ...]:
    """Return the findings about an attempt, which are made with the tags of the real calls.

    Raises DeployError, with all findings in its data, if the attempt would fail.
    """
    findings = launch.preflight(attempt, {TAG_NAME: deployment.name, TAG_ID: deployment.id})
    raise_errors(findings)
    for finding in findings:
        if finding.severity == "warning":
            context.reporter.warn(replaced(finding, message=_with_remedy(finding)))
    return findings


def raise_errors(findings: tuple[Problem, ...]) -> None:
    """Raise the first error, if any, with the messages of all of them."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return
    first = errors[0]
    message = "; ".join(finding.message for finding in errors)
    others = tuple(dict.fromkeys(finding.hint for finding in errors if finding.hint))
    raise DeployError(
        first.code,
        f"nothing was created because the launch would fail: {message}",
        hint="; ".join((*others, "--no-preflight tries anyway")),
        data={"findings": [finding.document() for finding in findings]},
    )


def _with_remedy(finding: Problem) -> str:
    return f"{finding.message}; {finding.hint}" if finding.hint else finding.message
