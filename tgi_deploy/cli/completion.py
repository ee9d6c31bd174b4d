"""`completion`: prints a shell script that completes commands, options and catalog names."""

from __future__ import annotations

from typing import cast

import click

from tgi_deploy.cli.frame import COMPLETE_VARIABLE, PROGRAM, command
from tgi_deploy.cli.output import Result


@command(
    "completion",
    examples=(
        'eval "$(tgi-deploy completion bash)"',
        "tgi-deploy completion zsh > ~/.zfunc/_tgi-deploy",
        "tgi-deploy completion fish > ~/.config/fish/completions/tgi-deploy.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> Result:
    """Print a script that completes commands, options, models, deployments, instance types, regions and codes."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 -- needed only for this command

    root = click.get_current_context().find_root().command
    kind = cast("type[click.shell_completion.ShellComplete]", get_completion_class(shell))
    completer = kind(root, {}, PROGRAM, COMPLETE_VARIABLE)
    script = completer.source_template % completer.source_vars()
    return Result(data={"completion": {"shell": shell, "script": script}}, text=script)
