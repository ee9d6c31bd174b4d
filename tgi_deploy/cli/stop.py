"""`stop`: end the bill of the machine, keep its disk."""

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
    """Stop the machine once open requests have been answered. Its disk is kept and billed; `start` starts it again.

    Its end by --ttl or --max-spend stays: after it `gc` removes the disk, and so does a schedule of --external-ttl.
    """
    return switch(client.stop, progress, name, yes=yes)
