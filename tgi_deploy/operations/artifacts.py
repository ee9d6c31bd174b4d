"""A deployable written down: one function for every kind of artefact."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from tgi_deploy import templating
from tgi_deploy.targets.container import MODEL_DIR, container_for
from tgi_deploy.targets.deployable import Deployable, check, check_name, default_name
from tgi_deploy.targets.ec2.launch_data import launch_template_data
from tgi_deploy.targets.kinds import KINDS, Kind
from tgi_deploy.targets.machine.user_data import render_user_data

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KINDS", "Artifact", "Deployable", "Kind", "check_name", "default_name", "launch_template_data", "render"]

_FILE_NAMES: Final = {
    "docker": "docker-run.sh",
    "compose": "compose.yaml",
    "user-data": "user-data.yaml",
    "launch-template": "launch-template.json",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """Text to run or to send, and its SHA-256 in hexadecimal."""

    kind: Kind
    file_name: str
    text: str
    sha256: str


def render(kind: Kind, deployable: Deployable, *, templates_dir: Path | None = None) -> Artifact:
    """Write the deployable down as `kind`. The same input gives the byte-same text.

    Templates in `templates_dir` go before the packaged ones. Raises InputError for what can't be written safely or
    could not work there, DeployError `user_data_too_large`.
    """
    check(deployable)
    text = _text(kind, deployable, templates_dir)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Artifact(kind=kind, file_name=_FILE_NAMES[kind], text=text, sha256=digest)


def _text(kind: Kind, deployable: Deployable, templates_dir: Path | None) -> str:
    match kind:
        case "docker":
            return _container_text("docker-run.sh.j2", deployable, templates_dir)
        case "compose":
            return _container_text("compose.yaml.j2", deployable, templates_dir)
        case "user-data":
            return render_user_data(deployable, templates_dir=templates_dir)
        case "launch-template":
            user_data = render_user_data(deployable, templates_dir=templates_dir)
            data = launch_template_data(deployable, user_data=user_data)
            return f"{templating.to_json(data, indent=2)}\n"
    assert_never(kind)


def _container_text(template: str, deployable: Deployable, templates_dir: Path | None) -> str:
    engine = container_for(deployable)
    values = {
        "name": deployable.name,
        "engine": engine,
        "container_port": engine.container_port,
        "model_dir": MODEL_DIR,
        "restarts": engine.restarts,
        "ready_deadline_s": deployable.ready_deadline_s,
    }
    return templating.render_text(template, values, templates_dir=templates_dir)
