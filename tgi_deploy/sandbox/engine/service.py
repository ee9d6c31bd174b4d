"""Shared by all routes: the served model, and the release's name and abilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine.checkpoint import made_up_hash
from tgi_deploy.sandbox.engine.situation import Fault

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.inference import Answer, Inference

_DEFAULT_MODEL: Final = "bigscience/bloom-560m"


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The service. `template`: whether the checkpoint has a chat template."""

    inference: Inference
    template: bool
    api_key: str | None

    @property
    def model_id(self) -> str:
        situation = self.inference.situation
        return _DEFAULT_MODEL if Fault.WRONG_MODEL in situation.faults else situation.checkpoint.model_id

    @property
    def version(self) -> str:
        release = self.inference.situation.release
        return release.reported_version or release.version

    @property
    def commit(self) -> str:
        return made_up_hash(f"text-generation-inference {self.inference.situation.release.version}")

    @property
    def docker_label(self) -> str:
        return f"sha-{self.commit[:7]}"

    @property
    def fingerprint(self) -> str:
        return f"{self.version}-{self.docker_label}"

    def has(self, flag: str) -> bool:
        """Return whether the release has a flag, which also identifies routes and fields of the same release."""
        return flag in self.inference.situation.arguments.flags

    def timing_headers(self, answer: Answer) -> dict[str, str]:
        """Return the timing headers in milliseconds, which the router sends with a whole answer."""
        timing, produced = answer.timing, len(answer.steps)
        return {
            "x-compute-type": self.compute_type,
            "x-compute-time": str(timing.total_s),
            "x-compute-characters": str(len(answer.prepared.asked.inputs)),
            "x-total-time": _ms(timing.total_s),
            "x-validation-time": _ms(timing.validated),
            "x-queue-time": "0",
            "x-inference-time": _ms(timing.inferred),
            "x-time-per-token": _ms(timing.inferred / max(1, produced)),
            "x-prompt-tokens": str(len(answer.prepared.pieces)),
            "x-generated-tokens": str(produced),
        }

    def stream_headers(self, inputs: str) -> dict[str, str]:
        return {
            "x-compute-type": self.compute_type,
            "x-compute-characters": str(len(inputs)),
            "x-accel-buffering": "no",
        }

    @property
    def compute_type(self) -> str:
        situation = self.inference.situation
        card = f"{situation.host.gpus}-nvidia-{situation.host.accelerator.name.lower()}"
        return situation.environ.get("COMPUTE_TYPE") or card


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
