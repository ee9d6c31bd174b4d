"""`runbook`: writes a page for on-call engineers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    name_option,
    out_option,
    profiles_dir_option,
    request_options,
    sandbox_option,
    templates_dir_option,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.progress import connected
from tgi_deploy.files import write_file
from tgi_deploy.values.base import replaced
from tgi_deploy.values.pasted import Pasted

if TYPE_CHECKING:
    from pathlib import Path


@command(
    "runbook",
    examples=(
        "tgi-deploy runbook my-deployment > RUNBOOK.md",
        "tgi-deploy runbook llama3-13b --budget 5 --out RUNBOOK.md",
    ),
)
@request_options
@out_option
@name_option
@sandbox_option
@profiles_dir_option
@templates_dir_option
def runbook_command(
    *,
    model: str,
    request: dict[str, Any],
    out: Path | None,
    name: str | None,
    sandbox: bool,
    profiles_dir: Path | None,
    templates_dir: Path | None,
) -> Result:
    """Write the runbook of a deployment, or of MODEL as it would be deployed."""
    where = {"sandbox": sandbox, "profiles_dir": profiles_dir, "templates_dir": templates_dir}
    with connected(**where) as (client, _):
        found = client.runbook(model, name=name, **request)
    text = Pasted(sandbox=sandbox, profiles_dir=str(profiles_dir or "")).text(found.data.markdown)
    if out is None:
        return printed(found, text)
    write_file(out, text, what="the runbook")
    return replaced(printed(found), data=replaced(found.data, out=str(out)))
