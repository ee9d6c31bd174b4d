"""`logs`: the engine's log, from the machine's console."""

from __future__ import annotations

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.region_option import region_option


@command("logs", examples=("tgi-deploy logs llama3-13b", "tgi-deploy logs llama3-13b --tail 20"))
@name_argument
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines.")
@region_option
@sandbox_option
def logs_command(*, name: str, tail: int | None, regions: tuple[str, ...], sandbox: bool) -> Result:
    """Print what the machine and the engine have said, without secrets."""
    from tgi_deploy.app.logs import logs  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.cli import wiring  # noqa: PLC0415 -- likewise
    from tgi_deploy.cli.progress import Progress  # noqa: PLC0415 -- likewise

    with Progress() as progress:
        context = wiring.context(wiring.Setup(progress=progress, sandbox=sandbox, regions=regions))
        text = logs(context, name, tail=tail)
    return Result(data={"name": name, "lines": text.splitlines()}, text=text)
