"""Renders a container as a `docker run` script or a Compose file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.container import container_for
from tgi_deploy.targets.deployable import check, check_single
from tgi_deploy.targets.protocol import Artifact
from tgi_deploy.templating import render_text
from tgi_deploy.values.container import MODEL_DIR

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.targets.protocol import Deployable

RUN: Final = "docker"
_FILES: Final = {RUN: "docker-run.sh", "compose": "compose.yaml"}


def render_artifact(form: str, deployable: Deployable, *, templates_dir: Path | None = None) -> Artifact:
    """Render the artifact; `templates_dir` overrides packaged templates. Raises InputError for unsafe values."""
    check(deployable)
    check_single(deployable, form)
    engine = container_for(deployable)
    values = {
        "name": deployable.name,
        "engine": engine,
        "container_port": engine.container_port,
        "model_dir": MODEL_DIR,
        "restarts": engine.restarts,
        "ready_deadline_s": deployable.ready_deadline_s,
    }
    return Artifact.of(form, _FILES[form], render_text(f"{_FILES[form]}.j2", values, templates_dir=templates_dir))
