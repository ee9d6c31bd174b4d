"""What the machine has printed on its serial console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.errors import BadRequestError, GoneError, NotYetError

if TYPE_CHECKING:
    from tgi_deploy.adapters.aws.api import Api


def console_output(api: Api, instance_id: str) -> str:
    """The newest text; where the type can't give that, what was kept last. Empty when there is none."""
    try:
        answer = api.ask("get_console_output", "reading the console", InstanceId=instance_id, Latest=True)
    except BadRequestError:
        answer = api.ask("get_console_output", "reading the console", InstanceId=instance_id)
    except (GoneError, NotYetError):
        return ""
    return str(answer.get("Output", ""))
