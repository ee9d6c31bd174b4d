"""`scale`: change the number of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.text import plural
from tgi_deploy.values.plan_options import MOST_REPLICAS

if TYPE_CHECKING:
    from tgi_deploy.api import Client


@command("scale", examples=("tgi-deploy scale llama3-13b 3", "tgi-deploy scale llama3-13b 1 --no-wait"))
@name_argument
@click.argument("replicas", type=click.IntRange(1, MOST_REPLICAS))
@click.option("--wait/--no-wait", default=True, help="Wait until all replicas are ready.  [default: wait]")
@cloud_options
def scale_command(*, client: Client, name: str, replicas: int, wait: bool) -> Result:
    """Change the number of replicas; those that stay are not restarted, and in-flight requests finish.

    Only on Kubernetes. During an update it exits with 4.
    """
    found = client.scale(name, replicas, wait=wait)
    before = found.data.before
    what = "nothing to do" if before == replicas else f"{plural(before, 'replica')} before"
    state = " ready" if wait else ""
    return printed(found, f"{name} has {plural(replicas, 'replica')}{state}: {what}")
