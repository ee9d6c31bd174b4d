"""`render`: one artifact of the plan, on stdout or in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tgi_deploy import wiring
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_option, plan_options, profiles_dir_option, templates_dir_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.plan import decide
from tgi_deploy.errors import warning
from tgi_deploy.files import write_file
from tgi_deploy.operations.planning.artifacts import deployable
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.values.base import as_dict
from tgi_deploy.values.plan import NoFeasiblePlan

if TYPE_CHECKING:
    from tgi_deploy.operations.planning.option_texts import OptionTexts


@command(
    "render",
    examples=(
        "tgi-deploy render llama3-8b --as docker --hardware 1xRTX-4090",
        "tgi-deploy render llama3-13b --budget 5 --as compose > compose.yaml",
        "tgi-deploy render llama3-13b --budget 5 --as user-data --ttl 2h --out user-data.yaml",
    ),
)
@plan_options
@click.option("--as", "kind", type=click.Choice(wiring.forms()), required=True, help="What to render.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE instead of stdout.")
@name_option
@profiles_dir_option
@templates_dir_option
def render_command(
    *,
    texts: OptionTexts,
    kind: str,
    out: Path | None,
    name: str | None,
    profiles_dir: Path | None,
    templates_dir: Path | None,
) -> Result:
    """Plan MODEL and print one artifact of the plan; nothing else goes to stdout."""
    plan = decide(texts, profiles_dir)
    if isinstance(plan, NoFeasiblePlan):
        raise without_plan(f"render --as {kind}", texts, plan)
    subject = deployable(plan, texts, os.environ, name=name, profiles_dir=profiles_dir)
    artifact = wiring.written(kind, subject, templates_dir)
    if out is not None:
        write_file(out, artifact.text, what="the artifact")
    return Result(
        data={"artifact": {**as_dict(artifact), "out": out}},
        text="" if out else artifact.text,
        warnings=tuple(warning("notice", text) for text in plan.notices),
    )
