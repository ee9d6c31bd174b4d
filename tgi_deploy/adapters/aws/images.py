"""Which disk image to boot: the one given, or the first public parameter (`profiles/aws/amis.json`) that exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import BadRequestError
from tgi_deploy.reconcile.model import MachineImage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.adapters.aws.api import Api

_BATCH: Final = 10  # GetParameters takes no more names
_OF_REGION: Final = "images belong to a region: name one of this region, or leave --ami out"


def resolve_image(
    api: Api, parameters: Sequence[Mapping[str, str]], *, architecture: str, wanted: str | None
) -> MachineImage:
    """Raises DeployError `no_machine_image`, an InputError for a `wanted` image that does not exist."""
    if wanted is not None:
        return _given(api, wanted)
    names = [item["name"] for item in parameters if item["arch"] == architecture][:_BATCH]
    values = _values(api, names) if names else {}
    name = next((name for name in names if name in values), None)
    if name is None:
        raise DeployError(
            "no_machine_image",
            f"looking for a machine image in {api.region}: none of {len(names)} public parameters exists there",
            hint="name an image with NVIDIA's driver and docker: --ami ami-…",
        )
    return _described(api, values[name], name)


def _values(api: Api, names: Sequence[str]) -> dict[str, str]:
    answer = api.ask("get_parameters", "looking for a machine image", service="ssm", Names=list(names))
    return {item["Name"]: item["Value"] for item in answer["Parameters"]}


def _given(api: Api, image_id: str) -> MachineImage:
    try:
        return _described(api, image_id, "--ami")
    except BadRequestError as error:
        raise InputError("no_machine_image", error.message, hint=_OF_REGION) from error


def _described(api: Api, image_id: str, source: str) -> MachineImage:
    answer = api.ask("describe_images", f"reading the machine image {image_id}", ImageIds=[image_id])
    if not answer["Images"]:
        raise DeployError(
            "no_machine_image",
            f"the machine image {image_id} does not exist in {api.region}",
            hint=_OF_REGION,
        )
    image = answer["Images"][0]
    device = image.get("RootDeviceName", "/dev/sda1")
    return MachineImage(id=image_id, root_device=device, minimum_gib=_root_gib(image, device), source=source)


def _root_gib(image: Mapping[str, Any], device: str) -> int:
    disks = [item for item in image.get("BlockDeviceMappings", ()) if item.get("DeviceName") == device]
    return int(disks[0].get("Ebs", {}).get("VolumeSize", 0)) if disks else 0
