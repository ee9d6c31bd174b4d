"""`explain`: prints the page about a code."""

from __future__ import annotations

import click

from tgi_deploy.api import Client
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.views.diagnosis import codes_text, explanation_text


@command("explain", examples=("tgi-deploy explain oom_load", "tgi-deploy explain"))
@click.argument("code", required=False, metavar="[CODE]", shell_complete=complete.codes)
def explain_command(*, code: str | None) -> Result:
    """Explain the code of a diagnosis, an error or a rejection: cause, remedy, how to check, cost in the meantime.

    Without a code, list them all.
    """
    if code is None:
        every = Client().codes()
        return printed(every, codes_text(every.data.codes))
    found = Client().explain(code)
    return printed(found, explanation_text(found.outcome))
