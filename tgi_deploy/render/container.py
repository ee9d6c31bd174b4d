"""The engine's container as every artefact describes it: the same values, written four ways."""

from __future__ import annotations

import csv
import io
import os.path
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.render.deployable import HUB_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tgi_deploy.planner.types import Candidate
    from tgi_deploy.render.deployable import Deployable

CONTAINER_PORT: Final = 80  # the image sets PORT=80
MODEL_DIR: Final = "/model"
# Docker can't tell a wrong flag (exit 2) from a crash, so restarts are bounded; the systemd unit of the user data
# is the precise one.
RESTARTS: Final = 3
_SIZES: Final = (("g", 1024**3), ("m", 1024**2), ("b", 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """Finished values. `devices` is None when every GPU of the host is used; `model_dir` is a folder of the host."""

    image: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    secret_env: tuple[str, ...]
    gpus: int
    devices: tuple[str, ...] | None
    shm_size: str | None
    port: int
    stop_timeout_s: int
    model_dir: str | None

    @property
    def gpus_option(self) -> str:
        """The value of `docker run --gpus`, which docker reads as CSV: a list of devices needs its own quotes."""
        return "all" if self.devices is None else f'"device={",".join(self.devices)}"'

    @property
    def model_mount(self) -> str | None:
        """The value of `docker run --mount` for a local model."""
        return None if self.model_dir is None else mount_of(self.model_dir)

    @property
    def arg_lines(self) -> tuple[tuple[str, ...], ...]:
        return tuple(grouped(self.args))


def mount_of(model_dir: str) -> str:
    """The value of `docker run --mount` for a folder: CSV, so a path may hold commas and colons."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        ["type=bind", f"source={model_dir}", f"target={MODEL_DIR}", "readonly"]
    )
    return line.getvalue()


def container_for(deployable: Deployable) -> Container:
    engine = deployable.candidate.engine
    local = _absolute(deployable.model.model.local_path)
    return Container(
        image=engine.image,
        args=engine.args if local is None else tuple(with_mounted_model(engine.args)),
        env=tuple(sorted({**_offline(local), **engine.env}.items())),
        secret_env=secret_names(deployable),
        gpus=engine.gpus,
        devices=_devices(deployable.candidate),
        shm_size=_size(engine.shm_bytes) if deployable.candidate.num_shard > 1 else None,
        port=engine.port,
        stop_timeout_s=engine.stop_timeout_s,
        model_dir=local,
    )


def served_as(model_id: str) -> str:
    """What an engine in a container calls its model: a folder of the host is mounted at one place."""
    return MODEL_DIR if is_folder(model_id) else model_id


def is_folder(model_id: str) -> bool:
    """Whether a model that an engine is told to serve is a folder: hub ids begin with a name."""
    return model_id.startswith("/")


def secret_names(deployable: Deployable) -> tuple[str, ...]:
    """Variables whose values come from outside the artefact; a gated model can't be downloaded without its token."""
    model = deployable.model.model
    names = set(deployable.candidate.engine.secret_env)
    if model.gated and model.local_path is None:
        names.add(HUB_TOKEN)
    return tuple(sorted(names))


def _devices(candidate: Candidate) -> tuple[str, ...] | None:
    """GPUs by index, unless the deployment uses all of a rented host (an owned one may hold more than was said)."""
    offer = candidate.offer
    if candidate.engine.gpus == offer.instance_type.accelerator_count and offer.market != "owned":
        return None
    return tuple(map(str, range(candidate.engine.gpus)))


def _absolute(path: str | None) -> str | None:
    """Docker takes a relative path for the name of a volume."""
    return None if path is None else os.path.abspath(path)  # noqa: PTH100 -- resolves `..`, not symbolic links


def _offline(local_path: str | None) -> dict[str, str]:
    return {} if local_path is None else {"HF_HUB_OFFLINE": "1"}


def with_mounted_model(args: Iterable[str]) -> Iterator[str]:
    """The arguments with the mounted folder as the model. A folder has no revision."""
    rest = iter(args)
    for arg in rest:
        if arg == "--revision":
            next(rest, None)
        elif arg == "--model-id":
            next(rest, None)
            yield from (arg, MODEL_DIR)
        else:
            yield arg


def grouped(args: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Arguments as a reader groups them: a flag with its value."""
    rest = list(args)
    while rest:
        size = 2 if rest[0].startswith("--") and len(rest) > 1 and not rest[1].startswith("--") else 1
        yield tuple(rest[:size])
        del rest[:size]


def _size(size_bytes: int) -> str:
    """A size as docker and compose read it, in the largest unit that divides it."""
    letter, unit = next((letter, unit) for letter, unit in _SIZES if size_bytes % unit == 0)
    return f"{size_bytes // unit}{letter}"
