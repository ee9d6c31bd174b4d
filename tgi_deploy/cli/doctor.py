"""`doctor`: check for anything that would make a launch fail; print the policy that the tool needs."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    offline_option,
    plan_options_or,
    profiles_dir_option,
    sandbox_option,
    target_option,
    target_options,
    templates_dir_option,
)
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import Progress, command_line
from tgi_deploy.cli.views.text import wrapped
from tgi_deploy.errors import DeployError, InputError, Problem, warning
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.text import one_line, plural
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tgi_deploy.errors import Problem, Severity
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.plan import Plan

_COLORS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "warning", "error")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of `doctor` besides the request. `own`: the options of the target."""

    target: Target
    own: Value
    sandbox: bool
    profiles_dir: Path | None
    templates_dir: Path | None
    offline: bool
    policy: bool
    boundary: bool
    features: str | None
    all_features: bool


_KEPT: Final = tuple(item.name for item in fields(Options) if item.name not in {"target", "own"})


@command(
    "doctor",
    examples=(
        "tgi-deploy doctor",
        "tgi-deploy doctor llama3-13b --budget 5 --region eu-west-1",
        "tgi-deploy doctor llama3-8b --sandbox --json",
        "tgi-deploy doctor --policy --for launch,watch,remove",
        "tgi-deploy doctor --policy --boundary",
    ),
)
@plan_options_or("policy")
@target_option
@sandbox_option
@profiles_dir_option
@templates_dir_option
@offline_option
@target_options("doctor")
@click.option("--policy", is_flag=True, help="Print the policy that the tool needs, and check nothing.")
@click.option(
    "--boundary",
    is_flag=True,
    help="With --policy: print the permissions boundary of the roles that 'up' creates instead.",
)
@click.option(
    "--for", "features", metavar="FEATURES", help="With --policy: only for these features, separated by commas."
)
@click.option("--all", "all_features", is_flag=True, help="With --policy: for every feature.")
def doctor_command(*, texts: OptionTexts, target: str, **given: Any) -> Result:  # noqa: ANN401 -- the options, each with its own type
    """Check for anything that would make a launch of MODEL fail; without MODEL, check the account and this computer."""
    from tgi_deploy.operations.launching.target_options import own_options  # noqa: PLC0415 -- startup time

    chosen = wiring.target_named(target)
    own = own_options(chosen, wiring.targets(), given)
    options = Options(target=chosen, own=own, **{name: given[name] for name in _KEPT})
    _check(options)
    if options.policy:
        return _policy(options)
    with Progress() as progress:
        return _examine(texts, options, progress)


def _check(options: Options) -> None:
    chosen = [
        name
        for name, given in (
            ("--for", options.features),
            ("--all", options.all_features),
            ("--boundary", options.boundary),
        )
        if given
    ]
    if chosen and not options.policy:
        raise InputError("conflicting_options", f"{chosen[0]} chooses what --policy prints", hint="add --policy")
    if len(chosen) > 1:
        raise InputError("conflicting_options", f"{' and '.join(chosen)} contradict each other", hint="leave one out")


def _policy(options: Options) -> Result:
    from tgi_deploy.targets.protocol import Account  # noqa: PLC0415 -- see doctor_command

    account = options.target
    if not isinstance(account, Account):
        raise InputError(
            "conflicting_options",
            f"--target {account.name} uses no cloud account, so it needs no policy",
            hint="leave out --policy, or name another --target",
        )
    if options.boundary:
        found = account.boundary()
    else:
        names = tuple(word.strip() for word in (options.features or "").split(",") if word.strip())
        found = account.policy(names, everything=options.all_features)
    printed = found.document if found.document is not None or found.boundary is None else found.boundary["policy"]
    return Result(
        data={"policy": found.document, "features": found.features, "boundary": found.boundary},
        text=json.dumps(printed, indent=2),
        warnings=(warning("boundary_needed", found.notice),) if found.notice else (),
    )


def _examine(texts: OptionTexts, options: Options, progress: Progress) -> Result:
    from tgi_deploy.operations.checking.doctor import DoctorRequest, doctor  # noqa: PLC0415 -- see doctor_command

    plan = _plan(texts, options)
    if isinstance(plan, NoFeasiblePlan):
        raise without_plan("doctor", texts, plan)
    setup = wiring.Setup(
        progress=progress,
        command=command_line(),
        sandbox=options.sandbox,
        regions=options.target.locations(tuple(texts.regions or ())),
        profiles_dir=options.profiles_dir,
        templates_dir=options.templates_dir,
        offline=options.offline,
    )
    context = wiring.context(setup)
    request = DoctorRequest(
        context=context,
        workstation=wiring.workstation(sandbox=options.sandbox),
        target=options.target.name,
        options=options.own,
        plan=plan,
    )
    findings = doctor(request)
    progress.stop()
    return _result(findings)


def _plan(texts: OptionTexts, options: Options) -> Plan | NoFeasiblePlan | None:
    from tgi_deploy.operations.planning.plan import plan as make  # noqa: PLC0415 -- see doctor_command

    if not texts.model:
        return None
    return make(texts, wiring.catalog(options.profiles_dir, offline=options.offline), os.environ)


def _result(findings: tuple[Problem, ...]) -> Result:

    errors = [item for item in findings if item.severity == "error"]
    warnings = tuple(item for item in findings if item.severity == "warning")
    return Result(
        data=findings_document(findings),
        text=findings_text(findings),
        warnings=warnings,
        already_shown=frozenset(item.code for item in warnings),
        errors=tuple(errors[:1]),
        exit_code=DeployError.exit_code if errors else 0,
    )


def findings_document(findings: Sequence[Problem]) -> dict[str, Any]:
    counted = Counter(item.severity for item in findings)
    return {
        "findings": [item.document() for item in findings],
        "summary": {severity: counted[severity] for severity in SEVERITIES},
    }


def findings_text(findings: Sequence[Problem]) -> str:
    wide = max((len(item.code) for item in findings), default=0)
    lines = [line for item in findings for line in _lines(item, wide)]
    counted = Counter(item.severity for item in findings)
    totals = (plural(counted["error"], "error"), plural(counted["warning"], "warning"), f"{counted['ok']} ok")
    return "\n".join([*lines, ", ".join(totals)])


def _lines(item: Problem, wide: int) -> list[str]:
    """Return the lines of a problem; its remedy gets one uncut line, so a command in it can be copied."""
    margin = " " * (len("warning  ") + wide + 2)
    mark = click.style(item.severity.ljust(7), fg=_COLORS[item.severity])
    message = wrapped(one_line(item.message), first=margin, rest=margin).removeprefix(margin)
    lines = [f"{mark}  {item.code.ljust(wide)}  {message}"]
    if item.hint and item.severity != "ok":
        lines.append(f"{margin}→ {one_line(item.hint)}")
    return lines
