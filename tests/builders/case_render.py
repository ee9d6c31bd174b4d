"""Render cases: `case.toml` describes a deployable, and the other files are its rendered artifacts.

Tables of a case: `deployable`, `profile` (and its model), `offer`, `instance_type`, `engine`, `storage`; what is left
out has the default of `plans.py`. `build_for` is the GPU whose access to the host the container has. `errors.txt` has
one line for each kind of artifact that is rejected.
"""

from __future__ import annotations

import base64
import re
import tomllib
from typing import TYPE_CHECKING, Any

from builders import plans

from tgi_deploy.engines.tgi.release import TgiRelease
from tgi_deploy.errors import DeployError
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import forms, open_catalog, render_artifact

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Artifact, Deployable


# The artifacts for machines of a managed service, which other cases don't have.
HOSTED = "sagemaker"
_BASE64 = re.compile(r"[A-Za-z0-9+/]{1000,}={0,2}")


def outputs(folder: Path) -> dict[str, str]:
    """Return the files that belong next to `case.toml`."""
    deployable = load(folder)
    files: dict[str, str] = {}
    errors: list[str] = []
    hosted = deployable.candidate.offer.instance_type.status == "hosted"
    for kind in forms():
        if hosted != (kind == HOSTED):
            continue
        try:
            artifact = render_artifact(kind, deployable)
        except DeployError as error:
            errors.append(f"{kind}: {error.code}: {error.message} ({error.hint})\n")
        else:
            files[artifact.file_name] = _readable(artifact, files)
    if errors:
        files["errors.txt"] = "".join(errors)
    return files


def load(folder: Path) -> Deployable:
    return deployable_of(tomllib.loads((folder / "case.toml").read_text(encoding="utf-8")))


def deployable_of(case: dict[str, Any]) -> Deployable:
    owned = case.get("owned")
    offer = plans.on_hardware(**owned) if owned else plans.offer(**_offer(case))
    engine = plans.engine(**case.get("engine", {}))
    if "build_for" in case:
        catalog = open_catalog()
        release = catalog.release(plans.VERSION)
        assert isinstance(release, TgiRelease)
        host = release.on(catalog.accelerator(case["build_for"])).host
        engine = replaced(engine, container=replaced(engine.container, host=host))
    storage = plans.storage(**case.get("storage", {}))
    return plans.deployable(
        candidate=plans.candidate(offer=offer, engine=engine, storage=storage),
        model=plans.profile(**case.get("profile", {})),
        **case.get("deployable", {}),
    )


def _offer(case: dict[str, Any]) -> dict[str, Any]:
    return {"instance_type": plans.instance_type(**case.get("instance_type", {})), **case.get("offer", {})}


def _readable(artifact: Artifact, files: dict[str, str]) -> str:
    """The text; the user data inside another artifact is named, not repeated, once it is proved to be the same."""
    if artifact.kind not in {"launch-template", "cloudformation", "terraform"}:
        return artifact.text
    (encoded,) = _BASE64.findall(artifact.text)
    assert base64.b64decode(encoded).decode() == files["user-data.yaml"]
    return artifact.text.replace(encoded, "BASE64(user-data.yaml)")
