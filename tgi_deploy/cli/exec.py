"""`exec`: a command, or a shell, on the machine of a deployment."""

from __future__ import annotations

import sys

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting


@command(
    "exec",
    examples=(
        "tgi-deploy exec llama3-8b",
        "tgi-deploy exec llama3-8b -- nvidia-smi",
        "tgi-deploy exec llama3-8b -- sh -c 'df -h /data' > disk.txt",
    ),
)
@name_argument
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARGUMENT]...]")
@region_option
@sandbox_option
def exec_command(*, name: str, words: tuple[str, ...], regions: tuple[str, ...], sandbox: bool) -> Result:
    """Run a command where the engine of a deployment runs, or open a shell there.

    On Docker that is its container, through `docker exec`. The exit code is the command's; `--json` captures what it
    prints. Machines on EC2 take no commands.
    """
    from tgi_deploy.operations.watching.shell import run_there  # noqa: PLC0415 -- help is printed without what acts

    captured = bool(click.get_current_context().find_root().obj.as_json)
    terminal = not captured and sys.stdin.isatty() and sys.stdout.isatty()
    with acting(sandbox=sandbox, regions=regions) as context:
        ended = run_there(context, name, words, terminal=terminal, captured=captured)
    data = {"name": name, "command": words, "stdout": ended.stdout, "stderr": ended.stderr}
    return Result(data=data, exit_code=ended.exit_code)
