"""Which target a plan goes to: the settings say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.app.launch import Launcher, LaunchSettings
from tgi_deploy.app.launch_docker import DockerLauncher, DockerSettings
from tgi_deploy.app.pools import PoolMemory

if TYPE_CHECKING:
    from tgi_deploy.app.attempt import Launchpad
    from tgi_deploy.app.context import Context
    from tgi_deploy.planner.types import Plan

Settings = LaunchSettings | DockerSettings


def launchpad(context: Context, plan: Plan, settings: Settings) -> Launchpad:
    if isinstance(settings, DockerSettings):
        return DockerLauncher(context=context, plan=plan, settings=settings)
    return Launcher(context=context, plan=plan, settings=settings, pools=PoolMemory(context.clock))
