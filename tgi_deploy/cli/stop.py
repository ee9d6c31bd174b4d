"""`stop`: stops the machine, so that only its disk is billed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import asking_cloud_options, name_argument, yes_option
from tgi_deploy.cli.switching import switch

if TYPE_CHECKING:
    from tgi_deploy.api import Client
    from tgi_deploy.cli.output import Result
    from tgi_deploy.cli.progress import Progress


@command("stop", examples=("tgi-deploy stop llama3-13b", "tgi-deploy stop llama3-13b --yes"))
@name_argument
@asking_cloud_options
@yes_option
def stop_command(*, client: Client, progress: Progress, name: str, yes: bool) -> Result:
    """Stop the machine once in-flight requests have finished. Its disk is kept and billed; `start` starts it again.

    Its --ttl and --max-spend stay in force: once they pass, `gc` or the schedule of --external-ttl deletes the disk.
    """
    return switch(client.stop, progress, name, yes=yes)
