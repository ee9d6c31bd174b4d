"""`restart`: the engine anew on the same machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, ready_option, region_option, sandbox_option, yes_option
from tgi_deploy.cli.switching import switch

if TYPE_CHECKING:
    from tgi_deploy.cli.output import Result
    from tgi_deploy.operations.deploying.service import ReadyLevel


@command("restart", examples=("tgi-deploy restart llama3-13b", "tgi-deploy restart llama3-13b --ready fast --yes"))
@name_argument
@ready_option
@region_option
@sandbox_option
@yes_option
def restart_command(*, name: str, ready: ReadyLevel, regions: tuple[str, ...], sandbox: bool, yes: bool) -> Result:
    """Reboot the machine, or restart the container, wait until it is healthy, and prove that it answers.

    Open requests are answered first. It keeps its address, and weights that were downloaded.
    """
    from tgi_deploy.operations.deploying.pausing import restart  # noqa: PLC0415 -- help is printed without what acts

    return switch(restart, name, regions=regions, sandbox=sandbox, yes=yes, ready=ready)
