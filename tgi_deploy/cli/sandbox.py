"""`sandbox`: starts, stops or inspects the local cloud."""

from __future__ import annotations

from tgi_deploy.api import Client
from tgi_deploy.cli.frame import command, group
from tgi_deploy.cli.output import Result, printed


@command("start", examples=("tgi-deploy sandbox start", 'eval "$(tgi-deploy sandbox start)"'))
def _start() -> Result:
    """Start the local cloud, unless it is running; print the variables that point other tools at it."""
    found = Client().sandbox_start()
    started = found.outcome
    text = (
        f"export AWS_ENDPOINT_URL={started.endpoint_url}\n"
        f"export AWS_ACCESS_KEY_ID={started.access_key} AWS_SECRET_ACCESS_KEY=sandbox\n"
    )
    return printed(found, text)


@command("stop", examples=("tgi-deploy sandbox stop",))
def _stop() -> Result:
    """Stop the local cloud, and delete everything in it: no process and no file is left."""
    found = Client().sandbox_stop()
    return printed(
        found, "the sandbox is stopped, and everything in it is deleted" if found.outcome else "no sandbox was running"
    )


@command("status", examples=("tgi-deploy sandbox status --json",))
def _status() -> Result:
    """Show whether the local cloud is running, and where."""
    found = Client().sandbox_status()
    if found.outcome is None:
        return printed(found, "no sandbox is running")
    return printed(found, f"running at {found.outcome.endpoint_url} (process {found.outcome.pid})")


sandbox_command = group(
    "sandbox",
    help_text="A cloud on this computer: the AWS API on loopback, machines that boot, a stub server as the engine.",
    commands=(_start, _stop, _status),
)
