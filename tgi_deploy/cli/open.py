"""`open`: how to reach a deployment."""

from __future__ import annotations

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting


@command("open", examples=("tgi-deploy open llama3-13b", "tgi-deploy open llama3-13b --json"))
@name_argument
@region_option
@sandbox_option
def open_command(*, name: str, regions: tuple[str, ...], sandbox: bool) -> Result:
    """Say how to reach a deployment: its URL, a curl line, a Python line, and what travels unencrypted."""
    from tgi_deploy.cli.views.status import access_document, access_text  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.watching.access import access  # noqa: PLC0415 -- likewise

    with acting(sandbox=sandbox, regions=regions) as context:
        found = access(context, name)
    return Result(data=access_document(found), text=access_text(found))
