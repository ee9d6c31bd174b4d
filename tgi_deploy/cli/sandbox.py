"""`sandbox`: start, stop or inspect the local cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.frame import command, group
from tgi_deploy.cli.output import Result

if TYPE_CHECKING:
    from tgi_deploy.sandbox.control import SandboxInfo


@command("start", examples=("tgi-deploy sandbox start", 'eval "$(tgi-deploy sandbox start)"'))
def _start() -> Result:
    """Start the local cloud, unless it is running; print the variables that point other tools at it."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the sandbox

    info = wiring.sandbox_start()
    return Result(
        data={"sandbox": _document(info) | {"access_key": info.access_key}},
        text=f"export AWS_ENDPOINT_URL={info.endpoint_url}\n"
        f"export AWS_ACCESS_KEY_ID={info.access_key} AWS_SECRET_ACCESS_KEY=sandbox\n",
    )


@command("stop", examples=("tgi-deploy sandbox stop",))
def _stop() -> Result:
    """Stop the local cloud and everything in it; leave no process and no file behind."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the sandbox

    stopped = wiring.sandbox_stop()
    text = "the sandbox is stopped, nothing is left of it" if stopped else "no sandbox was running"
    return Result(data={"stopped": stopped}, text=text)


@command("status", examples=("tgi-deploy sandbox status --json",))
def _status() -> Result:
    """Show whether the local cloud is running, and where."""
    from tgi_deploy import wiring  # noqa: PLC0415 -- help is printed without the sandbox

    info = wiring.sandbox_status()
    text = "no sandbox is running" if info is None else f"running at {info.endpoint_url} (process {info.pid})"
    return Result(data={"sandbox": None if info is None else _document(info)}, text=text)


def _document(info: SandboxInfo) -> dict[str, Any]:
    return {"endpoint_url": info.endpoint_url, "pid": info.pid, "started": info.started}


sandbox_command = group(
    "sandbox",
    help_text="A cloud on this computer: the AWS API on loopback, machines that boot, a stub server as the engine.",
    commands=(_start, _stop, _status),
)
