"""`stop`: end the bill of the machine, keep its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, region_option, sandbox_option, yes_option
from tgi_deploy.cli.switching import switch

if TYPE_CHECKING:
    from tgi_deploy.cli.output import Result


@command("stop", examples=("tgi-deploy stop llama3-13b", "tgi-deploy stop llama3-13b --yes"))
@name_argument
@region_option
@sandbox_option
@yes_option
def stop_command(*, name: str, regions: tuple[str, ...], sandbox: bool, yes: bool) -> Result:
    """Stop the machine once open requests have been answered. Its disk is kept and billed; `start` starts it again.

    Its end by --ttl or --max-spend stays: after it `gc` removes the disk, and so does a schedule of --external-ttl.
    """
    from tgi_deploy.operations.deploying.pausing import stop  # noqa: PLC0415 -- help is printed without what acts

    return switch(stop, name, regions=regions, sandbox=sandbox, yes=yes)
