"""`smoke`: verifies a deployment; or brings models up, verifies them and deletes them, for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.ci_reports import Reports
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    profiles_dir_option,
    ready_option,
    sandbox_option,
    target_option,
    target_options,
    with_request,
    yes_option,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import connected, need_answer
from tgi_deploy.cli.stopping import stoppable
from tgi_deploy.errors import InputError
from tgi_deploy.text import one_line
from tgi_deploy.values.base import plain, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import Client, Smoked, Stops
    from tgi_deploy.values.base import Result as ApiResult


@command(
    "smoke",
    examples=(
        "tgi-deploy smoke llama3-8b phi3-mini --budget 2 --ttl 30m --yes -j 2 --junit smoke.xml",
        "tgi-deploy smoke tinyllama-1.1b --sandbox --yes",
        "tgi-deploy smoke my-deployment",
    ),
)
@click.argument(
    "names", metavar="NAME|MODEL...", nargs=-1, required=True, shell_complete=complete.deployments_or_models
)
@with_request
@target_option
@target_options("smoke")
@ready_option
@click.option(
    "-j", "--jobs", "at_once", type=click.IntRange(1, 32), default=1, metavar="N", help="Test N models in parallel."
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--github", is_flag=True, help="Write annotations to stderr and a table to $GITHUB_STEP_SUMMARY.")
@profiles_dir_option
@sandbox_option
@yes_option
def smoke_command(  # noqa: PLR0913 -- the options of the command line itself
    *,
    names: tuple[str, ...],
    request: dict[str, Any],
    target: str,
    ready: Literal["fast", "full"],
    at_once: int,
    junit: Path | None,
    github: bool,
    profiles_dir: Path | None,
    sandbox: bool,
    yes: bool,
    **own: Any,  # noqa: ANN401 -- the targets' options, each with its own type
) -> Result:
    """Verify that a deployment answers; or bring up a MODEL, verify it and delete it, whatever happens.

    A deployment is found by its record or its tags; a running one is never brought up a second time.
    """
    reports = Reports.of(junit=junit, github=github)
    reports.check()
    where = {"target": target, "region": request.get("regions", ()), "sandbox": sandbox, "profiles_dir": profiles_dir}
    with connected(**where) as (client, _), stoppable() as stops:
        there = client.deployed(*names)
        models = tuple(name for name in dict.fromkeys(names) if name not in there)
        if there and models:
            raise InputError(
                "bad_usage",
                f"verifying {', '.join(there)}, and bringing up {', '.join(models)}: one run can't do both",
                hint="name only deployments ('tgi-deploy list' shows them), or only models",
            )
        if there:
            return _prove(client, there, ready, stops, reports)
        with reports.grouped(f"smoke {one_line(' '.join(models))}"):
            found = client.smoke(
                *models,
                at_once=at_once,
                ready=ready,
                confirm=lambda models: yes or _confirm(models),
                stops=stops,
                **request,
                **own,
            )
    from tgi_deploy.cli.views.smoke import smoked_text  # noqa: PLC0415 -- not needed for --help

    return _reported(found, smoked_text(found.outcome), found.outcome, reports)


def _confirm(models: tuple[str, ...]) -> bool:
    need_answer("bringing models up", dry_run=False)
    return click.confirm(f"Bring up, verify and remove {', '.join(models)}?", abort=True, err=True)


def _prove(
    client: Client, names: tuple[str, ...], ready: Literal["fast", "full"], stops: Stops, reports: Reports
) -> Result:
    from tgi_deploy.cli.views.smoke import proofs_text  # noqa: PLC0415 -- not needed for --help

    found = client.prove(*names, ready=ready, stops=stops)
    proofs = {item.smoked.job.name: item.proof for item in found.outcome if item.proof}
    result = _reported(found, proofs_text(proofs), [item.smoked for item in found.outcome], reports)
    broken = next((item.error for item in found.outcome if item.error), None)
    return result if broken is None else replaced(result, data={**plain(broken.data), **found.to_dict()})


def _reported(found: ApiResult[Any, Any], text: str, results: Sequence[Smoked], reports: Reports) -> Result:
    """Write the reports and return the command's result. A report that can't be written is an error."""
    unwritten, result = reports.write(results), printed(found, text)
    exit_code = result.exit_code or (InputError.exit_code if unwritten else 0)
    return replaced(result, exit_code=exit_code, errors=(*result.errors, *unwritten))
