"""`exec`: runs a command or a shell on the machine of a deployment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed

if TYPE_CHECKING:
    from tgi_deploy.api import Client


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
@cloud_options
def exec_command(*, client: Client, name: str, words: tuple[str, ...]) -> Result:
    """Run a command where the engine of a deployment runs, or open a shell there.

    With Docker, that is its container, through `docker exec`. On EC2 it is the machine, as root, through AWS Systems
    Manager: the deployment needs `--tunnel`, and AWS keeps the command in its history and returns the first 24,000
    characters of its output. The exit code is that of the command; `--json` captures its output.
    """
    captured = bool(click.get_current_context().find_root().obj.as_json)
    terminal = not captured and sys.stdin.isatty() and sys.stdout.isatty()
    return printed(client.exec(name, words, terminal=terminal, captured=captured))
