"""`status`: what was recorded, what is there, the difference, and whether it answers."""

from __future__ import annotations

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting


@command("status", examples=("tgi-deploy status", "tgi-deploy status llama3-13b --json"))
@click.argument("name", required=False, shell_complete=complete.deployments)
@region_option
@sandbox_option
def status_command(*, name: str | None, regions: tuple[str, ...], sandbox: bool) -> Result:
    """Compare what was recorded with what is there, and ask the endpoint. Without NAME: every deployment.

    The exit code is 5 where NAME does not serve. Without a record here, it goes by the tags of what runs.
    """
    from tgi_deploy.cli.views.status import none_text, status_document, status_text  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.watching.status import not_serving, status, statuses  # noqa: PLC0415 -- likewise

    with acting(sandbox=sandbox, regions=regions) as context:
        found = [status(context, name)] if name else statuses(context)
    warnings = tuple(drift for item in found for drift in item.drift)
    documents = [status_document(item) for item in found]
    error = not_serving(found[0]) if name else None
    return Result(
        data={"deployments": documents, **({key: documents[0][key] for key in ("url", "replicas")} if name else {})},
        exit_code=error.exit_code if error else 0,
        errors=(error.problem,) if error else (),
        text="\n\n".join(status_text(item, alone=name is not None) for item in found) or none_text(context.regions),
        warnings=warnings,
        already_shown=frozenset(item.code for item in warnings),
    )
