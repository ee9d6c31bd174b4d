"""The options that say where to look for what no record names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import standing_in
from tgi_deploy.cli.options import DOCKER, TARGETS
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.cli.output import Result

    CommandFunction = Callable[..., Result]

_REGION: Final = click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    shell_complete=complete.regions,
    help="Where to look beside the recorded regions; repeatable, or 'all'.  [default: the configured one]",
)
_TARGET: Final = click.option(
    "--target",
    type=click.Choice(TARGETS),
    default=TARGETS[0],
    envvar="TGI_DEPLOY_TARGET",
    show_default=True,
    help="Look in regions of EC2, or on the current Docker host.",
)


def region_option(function: CommandFunction) -> CommandFunction:
    """Add both; the function gets one argument, `regions`: names of regions, or the Docker host's place."""

    def with_places(*, target: str, regions: tuple[str, ...], **given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        return function(regions=_docker_place(regions) if target == DOCKER else regions, **given)

    return _REGION(_TARGET(standing_in(with_places, function)))


def _docker_place(regions: tuple[str, ...]) -> tuple[str, ...]:
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without what acts

    if regions:
        raise InputError(
            "conflicting_options", "--region and --target docker exclude each other", hint="leave one of them out"
        )
    return (wiring.docker_endpoint().place,)
