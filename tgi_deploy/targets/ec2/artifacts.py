"""Renders user data, launch templates, and the machine for CloudFormation and Terraform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.targets.deployable import check, check_single
from tgi_deploy.targets.ec2.launch_data import IMAGE_PARAMETER, launch_template_data
from tgi_deploy.targets.machine.user_data import render_user_data
from tgi_deploy.targets.protocol import Artifact
from tgi_deploy.templating import render_text, to_json
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.ec2.options import Ec2Options
    from tgi_deploy.targets.protocol import Deployable

USER_DATA: Final = "user-data"
LAUNCH_TEMPLATE: Final = "launch-template"
# The files of the forms that have a separate template.
_FILES: Final = {"cloudformation": "cloudformation.yaml", "terraform": "terraform.tf"}


def render_artifact(form: str, deployable: Deployable, *, templates_dir: Path | None = None) -> Artifact:
    """Render the artifact; templates in `templates_dir` override the packaged ones. Raises InputError, DeployError."""
    deployable = _with_options(deployable)
    check(deployable)
    check_single(deployable, form)
    user_data = render_user_data(deployable, templates_dir=templates_dir)
    if form == USER_DATA:
        return Artifact.of(form, "user-data.yaml", user_data)
    data = launch_template_data(deployable, user_data=user_data)
    if form == LAUNCH_TEMPLATE:
        return Artifact.of(form, "launch-template.json", f"{to_json(data, indent=2)}\n")
    text = render_text(f"{_FILES[form]}.j2", _values(deployable, data), templates_dir=templates_dir)
    return Artifact.of(form, _FILES[form], text)


def _with_options(deployable: Deployable) -> Deployable:
    """Return it with the parameter and the profile that options name: `up` has them in the deployable already."""
    options: Ec2Options | None = deployable.options
    if options is None:
        return deployable
    return replaced(
        deployable, hub_token_parameter=options.hub_token_parameter, instance_profile=options.instance_profile
    )


def _values(deployable: Deployable, data: dict[str, Any]) -> dict[str, Any]:
    """Return the values for a tool that keeps state itself: the machine has none of this tool's tags."""
    named = [{"Key": "Name", "Value": f"tgi-deploy-{deployable.name}"}]
    tagged = [{**item, "Tags": named} for item in data["TagSpecifications"]]
    profile = deployable.instance_profile
    return {
        "name": deployable.name,
        "region": deployable.region,
        "port": deployable.candidate.engine.port,
        "scheme": "https" if deployable.tls_image else "http",
        "data": {**data, "TagSpecifications": tagged},
        "disk": data["BlockDeviceMappings"][0]["Ebs"],
        "image_parameter": None if deployable.image_id else IMAGE_PARAMETER,
        "instance_profile": profile and profile.rpartition("/")[2],
        "spot": data.get("InstanceMarketOptions", {}).get("SpotOptions"),
        "tags": {"Name": named[0]["Value"]},
    }
