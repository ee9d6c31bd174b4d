"""`scale`: changes the number of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.text import plural

if TYPE_CHECKING:
    from tgi_deploy.api import Client
    from tgi_deploy.values.request import Replicas


@command("scale", examples=("tgi-deploy scale llama3-13b 3", "tgi-deploy scale llama3-13b 1..4 --no-wait"))
@name_argument
@click.argument("replicas", metavar="N|MIN..MAX")
@click.option("--wait/--no-wait", default=True, help="Wait until all replicas are ready.  [default: wait]")
@cloud_options
def scale_command(*, client: Client, name: str, replicas: str, wait: bool) -> Result:
    """Change the number of replicas. Remaining ones are not restarted, and in-flight requests finish.

    Within a range such as 1..4, the number follows the load. Only on Kubernetes, and on SageMaker, where 'up' sets
    the range, and where a smaller number may cut off long answers. During an update it exits with 4.
    """
    found = client.scale(name, replicas, wait=wait)
    before, now = found.outcome.before, found.outcome.replicas
    what = "nothing to do" if before == now else f"{_words(before)} before"
    state = " ready" if wait else ""
    return printed(found, f"{name} has {_words(now)}{state}: {what}", already_shown=found.warnings)


def _words(replicas: Replicas) -> str:
    return f"{replicas.words} replicas" if replicas.varies else plural(replicas.least, "replica")
