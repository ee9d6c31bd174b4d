"""The option that says where to look for what no record names."""

from __future__ import annotations

from typing import Final

import click

from tgi_deploy.cli import complete

region_option: Final = click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    shell_complete=complete.regions,
    help="Where to look beside the recorded regions; repeatable, or 'all'.  [default: the configured one]",
)
