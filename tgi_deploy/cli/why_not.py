"""`why-not`: an instance type or a card, explained for a wish."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from tgi_deploy import wiring
from tgi_deploy.cli import complete
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import offline_option, profiles_dir_option, wish_options
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.why_not import why_not_text
from tgi_deploy.operations.planning.why_not import why_not, why_not_document

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.operations.planning.wish import Wish


@command(
    "why-not",
    examples=(
        "tgi-deploy why-not llama3-13b g5.xlarge --budget 5",
        "tgi-deploy why-not llama3-8b T4",
        "tgi-deploy why-not llama3-70b RTX-4090 --json",
    ),
)
@wish_options
@click.argument("hardware_name", metavar="TYPE|CARD", shell_complete=complete.instance_types)
@profiles_dir_option
@offline_option
def why_not_command(*, wish: Wish, hardware_name: str, profiles_dir: Path | None, offline: bool) -> Result:
    """Explain an instance type or a card for this wish, with the arithmetic.

    Shows for each number of shards and each quantization the memory by parts, every reason against it, and the
    price line by line; or that it works, and what puts it behind the choice. A card that EC2 does not rent is
    explained as machines of your own.
    """
    found = why_not(wish, hardware_name, wiring.catalog(profiles_dir, offline=offline), os.environ)
    return Result(data={"why_not": why_not_document(found)}, text=why_not_text(found))
