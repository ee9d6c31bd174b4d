"""`restart`: restarts the engine on the same machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import asking_cloud_options, name_argument, ready_option, yes_option
from tgi_deploy.cli.switching import switch

if TYPE_CHECKING:
    from tgi_deploy.api import Client, ReadyLevel
    from tgi_deploy.cli.output import Result
    from tgi_deploy.cli.progress import Progress


@command("restart", examples=("tgi-deploy restart llama3-13b", "tgi-deploy restart llama3-13b --ready fast --yes"))
@name_argument
@ready_option
@asking_cloud_options
@yes_option
def restart_command(*, client: Client, progress: Progress, name: str, ready: ReadyLevel, yes: bool) -> Result:
    """Reboot the machine, or restart the container, wait until it is healthy, and verify that it answers.

    In-flight requests finish first. The address and the downloaded weights are kept.
    """
    return switch(client.restart, progress, name, yes=yes, ready=ready)
