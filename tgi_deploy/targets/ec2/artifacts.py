"""Renders user data and launch templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.deployable import check
from tgi_deploy.targets.ec2.launch_data import launch_template_data
from tgi_deploy.targets.machine.user_data import render_user_data
from tgi_deploy.targets.protocol import Artifact
from tgi_deploy.templating import to_json

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable

USER_DATA: Final = "user-data"


def written(form: str, deployable: Deployable, *, templates_dir: Path | None = None) -> Artifact:
    """Render the artifact; templates in `templates_dir` override the packaged ones. Raises InputError, DeployError."""
    check(deployable)
    user_data = render_user_data(deployable, templates_dir=templates_dir)
    if form == USER_DATA:
        return Artifact.of(form, "user-data.yaml", user_data)
    data = launch_template_data(deployable, user_data=user_data)
    return Artifact.of(form, "launch-template.json", f"{to_json(data, indent=2)}\n")
