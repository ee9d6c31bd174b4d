"""`renew`: put off the end of a lease."""

from __future__ import annotations

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting
from tgi_deploy.errors import InputError, Problem, warning


@command("renew", examples=("tgi-deploy renew llama3-13b", "tgi-deploy renew llama3-13b --for 4h"))
@name_argument
@click.option("--for", "for_", metavar="TIME", help="How long from now.  [default: what --lease was]")
@click.option("--ttl", metavar="TIME", hidden=True, help="Fixed at launch; a lease is what can be renewed.")
@region_option
@sandbox_option
def renew_command(*, name: str, for_: str | None, ttl: str | None, regions: tuple[str, ...], sandbox: bool) -> Result:
    """Put off the end of a deployment that was launched with --lease."""
    from tgi_deploy.cli.views.ends import renewal_document, renewal_text  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.watching.renew import renew  # noqa: PLC0415 -- likewise

    if ttl is not None:
        raise InputError(
            "ttl_fixed",
            "--ttl is fixed when the machine first boots: nothing puts it off",
            hint="launch with --lease what may have to last longer, and renew that",
        )
    for_s = _seconds(for_)
    with acting(sandbox=sandbox, regions=regions) as context:
        renewal = renew(context, name, for_s=for_s)
    warnings: tuple[Problem, ...] = ()
    if renewal.sooner is not None and renewal.sooner.at is not None:
        ends = renewal.sooner.at.isoformat(timespec="seconds")
        warnings = (warning("ends_sooner", f"its --ttl or --max-spend ends it before that, at {ends}"),)
    return Result(data=renewal_document(renewal), text=renewal_text(renewal), warnings=warnings)


def _seconds(text: str | None) -> int | None:
    from tgi_deploy.operations.planning.option_texts import Setting, duration_s  # noqa: PLC0415 -- help is printed without what acts

    return None if text is None else duration_s(Setting(value=text, source="flag"), "--for")
