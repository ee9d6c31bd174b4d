"""`doctor`: what would make a launch fail, before it costs anything; and the policy that the tool needs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    offline_option,
    profiles_dir_option,
    sandbox_option,
    target_option,
    templates_dir_option,
    wish_options_or,
)
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.plan import no_plan_result
from tgi_deploy.errors import DeployError, InputError, Problem, warning
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.actions import Boundary
    from tgi_deploy.cli.progress import Progress
    from tgi_deploy.operations.launching.launch import LaunchSettings
    from tgi_deploy.operations.planning.wish import Wish
    from tgi_deploy.values.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What `doctor` takes beside the wish."""

    target: str
    sandbox: bool
    profiles_dir: Path | None
    templates_dir: Path | None
    offline: bool
    subnet: str | None
    ami: str | None
    hub_token_parameter: str | None
    policy: bool
    boundary: bool
    features: str | None
    all_features: bool


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
@wish_options_or("policy")
@target_option
@sandbox_option
@profiles_dir_option
@templates_dir_option
@offline_option
@click.option("--subnet", metavar="ID", help="A subnet of yours, as for 'up'.")
@click.option("--ami", metavar="ID", help="A machine image of yours, as for 'up'.")
@click.option("--hub-token-parameter", metavar="NAME", help="SSM parameter with the hub token, as for 'up'.")
@click.option("--policy", is_flag=True, help="Print the IAM policy that the tool needs, and look at nothing.")
@click.option("--boundary", is_flag=True, help="With --policy: what bounds the roles that 'up' makes, in its place.")
@click.option("--for", "features", metavar="FEATURES", help="With --policy: for these alone, with commas.")
@click.option("--all", "all_features", is_flag=True, help="With --policy: for every feature.")
def doctor_command(*, wish: Wish, **given: object) -> Result:
    """Say what would make a launch of MODEL fail, each with its remedy; without MODEL, look at account and computer."""
    from tgi_deploy.cli.progress import Progress  # noqa: PLC0415 -- help is printed without what acts

    options = Options(**given)  # type: ignore[arg-type]
    _check(options)
    if options.policy:
        return _policy(options)
    with Progress() as progress:
        return _examine(wish, options, progress)


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
    from tgi_deploy.catalog.actions import read_actions  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.checking.policy import makes_roles, policy  # noqa: PLC0415 -- see doctor_command

    actions = read_actions()
    if options.boundary:
        data = {"policy": None, "features": {}, "boundary": _boundary_document(actions.boundary)}
        return Result(data=data, text=json.dumps(actions.boundary.document(), indent=2))
    chosen = tuple(word.strip() for word in (options.features or "").split(",") if word.strip())
    features = tuple(actions.features) if options.all_features else chosen or actions.core
    bounded = makes_roles(actions, features)
    document = policy(actions, features)
    data = {
        "policy": document,
        "features": {name: actions.features[name] for name in features},
        "boundary": _boundary_document(actions.boundary) if bounded else None,
    }
    notices = (_boundary_notice(actions.boundary),) if bounded else ()
    return Result(data=data, text=json.dumps(document, indent=2), warnings=notices)


def _boundary_document(boundary: Boundary) -> dict[str, Any]:
    return {"name": boundary.name, "policy": boundary.document(), "command": boundary.creation}


def _boundary_notice(boundary: Boundary) -> Problem:
    told = f"roles that are made carry the policy {boundary.name!r}, which an administrator makes once"
    return warning("boundary_needed", f"{told}: {boundary.creation}")


def _examine(wish: Wish, options: Options, progress: Progress) -> Result:
    from tgi_deploy import wiring  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.checking.doctor import DoctorRequest, doctor  # noqa: PLC0415 -- see doctor_command

    plan = _plan(wish, options)
    if isinstance(plan, NoFeasiblePlan):
        return no_plan_result("doctor", wish, plan)
    setup = wiring.Setup(
        progress=progress,
        sandbox=options.sandbox,
        regions=plan.request.regions if plan and wish.regions else tuple(wish.regions or ()),
        profiles_dir=options.profiles_dir,
        templates_dir=options.templates_dir,
        offline=options.offline,
    )
    context, survey = wiring.surveyed(setup)
    request = DoctorRequest(
        context=context,
        survey=survey,
        workstation=wiring.workstation(sandbox=options.sandbox),
        target=options.target,
        settings=_settings(options),
        plan=plan,
    )
    findings = doctor(request)
    progress.stop()
    return _result(findings)


def _plan(wish: Wish, options: Options) -> Plan | NoFeasiblePlan | None:
    from tgi_deploy import wiring  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.planning.plan import plan as make  # noqa: PLC0415 -- see doctor_command

    if not wish.model:
        return None
    return make(wish, wiring.catalog(options.profiles_dir, offline=options.offline), os.environ)


def _settings(options: Options) -> LaunchSettings:
    """As `up` would have them. Who may connect and how long it lives is of no matter here."""
    from tgi_deploy.operations.launching.launch import LaunchSettings  # noqa: PLC0415 -- see doctor_command
    from tgi_deploy.operations.launching.secrets import hub_token_variable  # noqa: PLC0415 -- likewise
    from tgi_deploy.secret import reference  # noqa: PLC0415 -- likewise
    from tgi_deploy.targets.ec2.secrets import SecretWish, SecretWishes  # noqa: PLC0415 -- likewise

    named, variable = options.hub_token_parameter, hub_token_variable(os.environ)
    wished = SecretWish(parameter=named) if named else SecretWish(reference=reference(variable)) if variable else None
    return LaunchSettings(
        lifetime_s=lambda _usd_per_hour: None,
        cidrs=(),
        subnet=options.subnet,
        ami=options.ami,
        secrets=SecretWishes(hub_token=wished),
    )


def _result(findings: tuple[Problem, ...]) -> Result:
    from tgi_deploy.cli.views.doctor import findings_document, findings_text  # noqa: PLC0415 -- see doctor_command

    errors = [item for item in findings if item.severity == "error"]
    warnings = tuple(item for item in findings if item.severity == "warning")
    return Result(
        data=findings_document(findings),
        text=findings_text(findings),
        warnings=warnings,
        in_text=frozenset(item.code for item in warnings),
        errors=tuple(errors[:1]),
        exit_code=DeployError.exit_code if errors else 0,
    )
