"""The options that say where to look for what no record names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy import wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import standing_in

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
    type=click.Choice(wiring.TARGETS),
    default=wiring.TARGETS[0],
    envvar="TGI_DEPLOY_TARGET",
    show_default=True,
    help="Look in regions of EC2, or on the current Docker host.",
)


def region_option(function: CommandFunction) -> CommandFunction:
    """Add both; the function gets one argument, `regions`: the locations of the target."""

    def with_places(*, target: str, regions: tuple[str, ...], **given: Any) -> Result:  # noqa: ANN401 -- the command's own parameters
        return function(regions=wiring.target_named(target).locations(regions), **given)

    return _REGION(_TARGET(standing_in(with_places, function)))
