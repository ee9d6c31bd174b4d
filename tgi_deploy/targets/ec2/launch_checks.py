"""Checks of a planned launch: image, disk, user data, and access to the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, Problem, error, ok, warning
from tgi_deploy.targets.aws.session_manager import plugin_missing
from tgi_deploy.targets.machine.user_data import MAX_BYTES, sent
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from tgi_deploy.targets.ec2.region import MachineImage
    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.values.model import ModelSpec
    from tgi_deploy.values.plan import Candidate

_CROWDED: Final = 0.9


def image_finding(image: MachineImage, region: str) -> Problem:
    return ok("machine_image", f"{image.id} in {region} ({image.source})", image=image.id, source=image.source)


def tunnel_finding(problem: str | DeployError) -> Problem:
    """Check that this computer can open tunnels; `problem` is why not, or empty."""
    if problem:
        return plugin_missing(str(problem)).problem
    return ok("session_plugin", "the Session Manager plugin is installed")


def disk_finding(candidate: Candidate, size_gib: int, snapshot_gib: int | None) -> Problem:
    """Check that the root volume fits the image's content, the engine, and, without instance store, the weights.

    `snapshot_gib` None: the image was not read.
    """
    storage = candidate.storage
    on_root_bytes = storage.image_bytes + (0 if storage.weights_on_nvme else storage.weights_bytes)
    wanted_gib = math.ceil(on_root_bytes / GIB)
    numbers = {"root_volume_gib": size_gib, "snapshot_gib": snapshot_gib, "engine_and_weights_gib": wanted_gib}
    beside = f"a snapshot of {snapshot_gib} GiB and " if snapshot_gib is not None else ""
    message = f"root volume of {size_gib} GiB for {beside}{wanted_gib} GiB of engine and weights"
    if size_gib < wanted_gib:
        return error(
            "disk_short", message, "choose an instance type with instance store, or a smaller model", **numbers
        )
    if size_gib < (snapshot_gib or 0) + wanted_gib:
        return warning(
            "disk_tight", message, "it fits only if the snapshot is not full: choose a smaller --ami", **numbers
        )
    return ok("disk", message, **numbers)


def user_data_finding(text: str) -> Problem:
    size_bytes = len(sent(text))
    message = f"{size_bytes:,} of {MAX_BYTES:,} bytes"
    if size_bytes > MAX_BYTES * _CROWDED:
        remedy = "shorten the engine's flags or environment, or your own templates"
        return warning("user_data_near_limit", message, remedy, size_bytes=size_bytes, max_bytes=MAX_BYTES)
    return ok("user_data", message, size_bytes=size_bytes, max_bytes=MAX_BYTES)


def hub_finding(survey: Survey, model: ModelSpec, *, token_parameter: str | None) -> Problem:
    """Check whether the machine can download the model. A token in a parameter is never read here."""
    if model.local_path is not None or not model.gated:
        return ok("hub_access", f"{model.hub_id} is not gated" if model.local_path is None else "no download needed")
    if not survey.hub_token:
        return _without_token(model, token_parameter)
    if survey.hub_access is None:
        return warning("not_checked", f"{model.hub_id} is gated: {survey.hub_skipped_reason}", None)
    try:
        survey.hub_access(model.hub_id, model.revision or "main")
    except DeployError as problem:
        return _no_access(problem)
    return ok("hub_access", f"the token in use may read {model.hub_id}")


def _without_token(model: ModelSpec, token_parameter: str | None) -> Problem:
    page = f"https://huggingface.co/{model.hub_id}"
    if token_parameter is not None:
        message = f"{model.hub_id} is gated: only the machine can read the token in {token_parameter}"
        return warning("not_checked", message, f"make sure that its owner has accepted the terms on {page}")
    message = f"{model.hub_id} is gated, and no token is set"
    return error("hub_token_missing", message, f"accept the terms on {page}, then set HF_TOKEN")


def _no_access(problem: DeployError) -> Problem:
    if problem.code in {"hub_gated", "hub_not_found"}:
        return problem.problem
    return warning("not_checked", problem.message, problem.hint)
