"""`extend`: set, move or lift the limits of a deployment that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import name_argument, region_option, sandbox_option
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import acting
from tgi_deploy.errors import Problem, warning

if TYPE_CHECKING:
    from tgi_deploy.operations.watching.extend import Extension
    from tgi_deploy.values.ends import WantedEnds


@command(
    "extend",
    examples=(
        "tgi-deploy extend llama3-13b",
        "tgi-deploy extend llama3-13b --ttl 4h",
        "tgi-deploy extend llama3-13b --idle-timeout 30m --max-spend none",
    ),
)
@name_argument
@click.option("--ttl", metavar="TIME", help="How long it runs from now, or none.")
@click.option("--max-spend", metavar="USD", help="What all machines of the name may cost, or none.")
@click.option("--idle-timeout", metavar="TIME", help="How long it runs without a request, or none.")
@click.option("--lease", metavar="TIME", help="How long its lease lasts from now and from each renewal, or none.")
@region_option
@sandbox_option
def extend_command(*, name: str, regions: tuple[str, ...], sandbox: bool, **limits: str | None) -> Result:
    """Set, move or lift limits of a machine that runs; renew its lease where none is named."""
    from tgi_deploy.cli.views.ends import extension_document, extension_text  # noqa: PLC0415 -- help is printed without what acts
    from tgi_deploy.operations.watching.extend import extend  # noqa: PLC0415 -- likewise

    wanted = _wanted(limits)
    with acting(sandbox=sandbox, regions=regions) as context:
        extension = extend(context, name, wanted)
    return Result(data=extension_document(extension), text=extension_text(extension), warnings=_warnings(extension))


def _wanted(limits: dict[str, str | None]) -> WantedEnds:
    from tgi_deploy.operations.planning.option_texts import moved_limits  # noqa: PLC0415 -- help is printed without what acts

    return moved_limits(limits)


def _warnings(extension: Extension) -> tuple[Problem, ...]:
    lease, ends = extension.lease, extension.ends
    if lease is None or not ends or ends[0].reason != "ttl" or ends[0].at is None:
        return ()
    at = ends[0].at.isoformat(timespec="seconds")
    told = (
        f"its --ttl or --max-spend ends it before its lease, at {at}: 'tgi-deploy extend {extension.name} --ttl TIME'"
    )
    return (warning("ends_sooner", told),)
