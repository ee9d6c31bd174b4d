"""Selects the AMI: the given one, or the first existing public parameter of `profiles/aws/amis.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import BadRequestError
from tgi_deploy.targets.aws.api import each
from tgi_deploy.targets.ec2.region import MachineImage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply

_BATCH: Final = 10  # the maximum of GetParameters
_OF_REGION: Final = "images are regional: name one of this region, or omit --ami"


def resolve_image(
    api: Api, parameters: Sequence[Mapping[str, str]], *, architecture: str, wanted: str | None
) -> MachineImage:
    """Return the image. Raises `no_machine_image`: InputError if `wanted` does not exist, else DeployError."""
    if wanted is not None:
        return _given(api, wanted)
    names = [item["name"] for item in parameters if item["arch"] == architecture][:_BATCH]
    values = _values(api, names) if names else {}
    name = next((name for name in names if name in values), None)
    if name is None:
        raise DeployError(
            "no_machine_image",
            f"looking for a machine image in {api.region}: none of the {len(names)} public parameters exists there",
            hint="name an image with NVIDIA's driver and Docker: --ami ami-…",
        )
    return _described(api, values[name], name)


def _values(api: Api, names: Sequence[str]) -> dict[str, str]:
    def read(reply: Reply) -> dict[str, str]:
        return {item.text("Name"): item.text("Value", prefix="ami-") for item in reply.parts("Parameters")}

    return api.ask("get_parameters", "looking for a machine image", read, service="ssm", Names=list(names))


def _given(api: Api, image_id: str) -> MachineImage:
    try:
        return _described(api, image_id, "--ami")
    except BadRequestError as error:
        raise InputError("no_machine_image", error.message, hint=_OF_REGION) from error


def _described(api: Api, image_id: str, source: str) -> MachineImage:
    def read(image: Reply) -> MachineImage:
        device = image.optional_text("RootDeviceName") or "/dev/sda1"
        return MachineImage(id=image_id, root_device=device, minimum_gib=_root_gib(image, device), source=source)

    doing = f"reading the machine image {image_id}"
    found = api.ask("describe_images", doing, each("Images", read), ImageIds=[image_id])
    if not found:
        raise DeployError(
            "no_machine_image",
            f"the machine image {image_id} does not exist in {api.region}",
            hint=_OF_REGION,
        )
    return found[0]


def _root_gib(image: Reply, device: str) -> int:
    disks = [item for item in image.optional_parts("BlockDeviceMappings") if item.optional_text("DeviceName") == device]
    return disks[0].optional_part("Ebs").integer("VolumeSize") if disks else 0
