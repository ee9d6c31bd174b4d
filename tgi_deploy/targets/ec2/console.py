"""The output of an instance's serial console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.errors import BadRequestError, NotYetError, ResourceNotFoundError

if TYPE_CHECKING:
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply


def console_output(api: Api, instance_id: str) -> str:
    """Return the latest output, or, if the type doesn't support that, the last buffered one; empty if none."""
    try:
        return api.ask("get_console_output", "reading the console", _output, InstanceId=instance_id, Latest=True)
    except BadRequestError:
        return api.ask("get_console_output", "reading the console", _output, InstanceId=instance_id)
    except (ResourceNotFoundError, NotYetError):
        return ""


def _output(reply: Reply) -> str:
    reply.text("InstanceId", prefix="i-")
    return reply.optional_text("Output")
