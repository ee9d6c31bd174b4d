"""`start`: start a machine that was stopped, and prove it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, ready_option, region_option, sandbox_option, yes_option
from tgi_deploy.cli.switching import switch

if TYPE_CHECKING:
    from tgi_deploy.cli.output import Result
    from tgi_deploy.operations.deploying.service import ReadyLevel


@command("start", examples=("tgi-deploy start llama3-13b", "tgi-deploy start llama3-13b --ready fast --yes"))
@name_argument
@ready_option
@region_option
@sandbox_option
@yes_option
def start_command(*, name: str, ready: ReadyLevel, regions: tuple[str, ...], sandbox: bool, yes: bool) -> Result:
    """Start the machine that `stop` has stopped, wait until it is healthy, and prove that it answers.

    Its address is another one. Without capacity it stays stopped, its disk is kept, and the exit code is 1.
    """
    from tgi_deploy.operations.deploying.pausing import start  # noqa: PLC0415 -- help is printed without what acts

    return switch(start, name, regions=regions, sandbox=sandbox, yes=yes, ready=ready)
