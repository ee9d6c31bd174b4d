"""Which target a plan goes to: the settings say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.operations.launching.extras import makes_extras, marks
from tgi_deploy.operations.launching.launch import Launcher, LaunchSettings
from tgi_deploy.operations.launching.launch_docker import DockerLauncher, DockerSettings
from tgi_deploy.operations.launching.pools import PoolMemory
from tgi_deploy.reconcile.ends import Spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.launching.attempt import Launchpad
    from tgi_deploy.reconcile.model import Deployment
    from tgi_deploy.values.plan import Plan

Settings = LaunchSettings | DockerSettings


def reaches_aside(settings: Settings) -> bool:
    """Whether the deployment has things that only some have, with other services."""
    return isinstance(settings, LaunchSettings) and makes_extras(settings)


def wish_marks(settings: Settings) -> dict[str, Any]:
    """What the settings add to the wish itself."""
    return marks(settings) if isinstance(settings, LaunchSettings) else {}


def token_parameter(settings: Settings) -> str | None:
    """The parameter that the machine reads the hub's token from, where one is named."""
    return settings.hub_token_parameter if isinstance(settings, LaunchSettings) else None


def launchpad(
    context: Context,
    plan: Plan,
    settings: Settings,
    *,
    spent: Callable[[Deployment], Spent] = lambda _deployment: Spent(),
) -> Launchpad:
    """Return the target's way to a machine. `spent` gives what a name's machines have cost so far."""
    if isinstance(settings, DockerSettings):
        return DockerLauncher(context=context, plan=plan, settings=settings)
    pools = PoolMemory(context.clock, context.store)
    return Launcher(context=context, plan=plan, settings=settings, pools=pools, spent=spent)
