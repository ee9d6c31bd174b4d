"""`render`: writes one artifact of a plan to stdout or to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tgi_deploy.api import Client, forms
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import (
    name_option,
    out_option,
    profiles_dir_option,
    request_options,
    target_options,
    templates_dir_option,
)
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.files import write_file
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan_results import RenderData

if TYPE_CHECKING:
    from pathlib import Path


@command(
    "render",
    examples=(
        "tgi-deploy render llama3-8b --as docker --hardware 1xRTX-4090",
        "tgi-deploy render llama3-13b --budget 5 --as compose > compose.yaml",
        "tgi-deploy render llama3-13b --budget 5 --as user-data --ttl 2h --out user-data.yaml",
    ),
)
@request_options
@click.option("--as", "kind", type=click.Choice(forms()), required=True, help="What to render.")
@out_option
@name_option
@target_options("render")
@profiles_dir_option
@templates_dir_option
def render_command(
    *,
    model: str,
    request: dict[str, Any],
    kind: str,
    out: Path | None,
    name: str | None,
    profiles_dir: Path | None,
    templates_dir: Path | None,
    **own: Any,  # noqa: ANN401 -- the targets' options, each with its own type
) -> Result:
    """Plan MODEL and print one artifact of the plan; nothing else goes to stdout."""
    client = Client(profiles_dir=profiles_dir, templates_dir=templates_dir)
    found = client.render(model, kind, name=name, **request, **own)
    if out is None:
        return printed(found, found.outcome.text)
    write_file(out, found.outcome.text, what="the artifact")
    return replaced(printed(found), data=RenderData(artifact=replaced(found.data.artifact, out=str(out))))
