"""`explain`: the page of a code."""

from __future__ import annotations

import click

from tgi_deploy import wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.diagnosis import codes_text, explanation_document, explanation_text
from tgi_deploy.operations.watching.explain import all_codes, explain


@command("explain", examples=("tgi-deploy explain oom_load", "tgi-deploy explain"))
@click.argument("code", required=False, metavar="[CODE]", shell_complete=complete.codes)
def explain_command(*, code: str | None) -> Result:
    """Explain the code of a diagnosis, an error or a rejection: cause, remedy, how to check, what it costs meanwhile.

    Without a code all of them are listed.
    """
    engine = wiring.engine_named().name
    if code is None:
        every = all_codes(engine)
        return Result(data={"codes": [explanation_document(item) for item in every]}, text=codes_text(every))
    found = explain(code, engine)
    return Result(data=explanation_document(found), text=explanation_text(found))
