"""`start`: starts a stopped machine and verifies it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import asking_cloud_options, name_argument, ready_option, yes_option
from tgi_deploy.cli.switching import switch

if TYPE_CHECKING:
    from tgi_deploy.api import Client, ReadyLevel
    from tgi_deploy.cli.output import Result
    from tgi_deploy.cli.progress import Progress


@command("start", examples=("tgi-deploy start llama3-13b", "tgi-deploy start llama3-13b --ready fast --yes"))
@name_argument
@ready_option
@asking_cloud_options
@yes_option
def start_command(*, client: Client, progress: Progress, name: str, ready: ReadyLevel, yes: bool) -> Result:
    """Start a machine stopped by `stop`, wait until it is healthy, and verify that it answers.

    The machine gets a new IP address unless it has a static one. If there is no capacity, it stays stopped, its disk is
    kept, and the exit code is 1.
    """
    return switch(client.start, progress, name, yes=yes, ready=ready)
