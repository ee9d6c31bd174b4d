"""`doctor`: checks for anything that would make a launch fail, or prints the policy that the tool needs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    offline_option,
    profiles_dir_option,
    request_options_or_file,
    sandbox_option,
    target_option,
    target_options,
    templates_dir_option,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import connected
from tgi_deploy.cli.views.text import wrapped
from tgi_deploy.errors import InputError
from tgi_deploy.text import hint_line, one_line, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.errors import Problem
    from tgi_deploy.values.results import PolicyData

_COLORS: Final = {"ok": "green", "warning": "yellow", "error": "red"}


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
@request_options_or_file
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
def doctor_command(  # noqa: PLR0913 -- the options of the command line itself
    *,
    model: str | None,
    request: dict[str, Any],
    target: str,
    sandbox: bool,
    profiles_dir: Path | None,
    templates_dir: Path | None,
    offline: bool,
    policy: bool,
    boundary: bool,
    features: str | None,
    all_features: bool,
    **own: Any,  # noqa: ANN401 -- the targets' options, each with its own type
) -> Result:
    """Check for anything that would make a launch of MODEL fail; without MODEL, check the account and this computer."""
    _check(policy=policy, chosen={"--for": features, "--all": all_features, "--boundary": boundary})
    where = {"target": target, "sandbox": sandbox, "profiles_dir": profiles_dir, "templates_dir": templates_dir}
    with connected(**where, offline=offline) as (client, _):
        if policy:
            names = tuple(word.strip() for word in (features or "").split(",") if word.strip())
            found = client.policy(*names, everything=all_features, boundary=boundary)
            return printed(found, _policy_text(found.data))
        checked = client.doctor(model or "", **request, **own)
    return printed(checked, findings_text(checked.outcome), already_shown=checked.warnings)


def _check(*, policy: bool, chosen: Mapping[str, object]) -> None:
    given = [name for name, value in chosen.items() if value]
    if given and not policy:
        raise InputError("conflicting_options", f"{given[0]} chooses what --policy prints", hint="add --policy")
    if len(given) > 1:
        raise InputError("conflicting_options", f"{' and '.join(given)} contradict each other", hint="leave one out")


def _policy_text(data: PolicyData) -> str:
    if data.policy is None and data.boundary is not None:
        return json.dumps(data.boundary.policy, indent=2)
    return json.dumps(data.policy, indent=2)


def findings_text(findings: Sequence[Problem]) -> str:
    wide = max((len(item.code) for item in findings), default=0)
    lines = [line for item in findings for line in _lines(item, wide)]
    counted = Counter(item.severity for item in findings)
    totals = (plural(counted["error"], "error"), plural(counted["warning"], "warning"), f"{counted['ok']} ok")
    return "\n".join([*lines, ", ".join(totals)])


def _lines(item: Problem, wide: int) -> list[str]:
    """Return the lines of a problem. Its remedy is one line, never wrapped, so that a command in it can be copied."""
    margin = " " * (len("warning  ") + wide + 2)
    mark = click.style(item.severity.ljust(7), fg=_COLORS[item.severity])
    message = wrapped(one_line(item.message), first=margin, rest=margin).removeprefix(margin)
    lines = [f"{mark}  {item.code.ljust(wide)}  {message}"]
    if item.hint and item.severity != "ok":
        lines.append(f"{margin}→ {hint_line(item.hint)}")
    return lines
