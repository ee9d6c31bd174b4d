"""`open`: prints how to reach a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed

if TYPE_CHECKING:
    from tgi_deploy.api import Client


@command("open", examples=("tgi-deploy open llama3-13b", "tgi-deploy open llama3-13b --json"))
@name_argument
@cloud_options
def open_command(*, client: Client, name: str) -> Result:
    """Print how to reach a deployment: its URL, a curl line, a Python line, and what is sent unencrypted."""
    from tgi_deploy.cli.views.status import access_text  # noqa: PLC0415 -- not needed for --help

    found = client.open(name)
    return printed(found, access_text(found.data))
