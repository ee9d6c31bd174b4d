"""The configuration of a start, determined before its phases run."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine.capacity import Load
from tgi_deploy.sandbox.engine.checkpoint import Checkpoint, served_weights
from tgi_deploy.sandbox.engine.failures import StoppedError
from tgi_deploy.sandbox.engine.validation import input_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease
    from tgi_deploy.sandbox.engine.flags import Arguments
    from tgi_deploy.sandbox.engine.host import Fault, Host
    from tgi_deploy.sandbox.engine.logs import Log
    from tgi_deploy.sandbox.engine.weights import Weights
    from tgi_deploy.values.model import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    speed: float
    stopping: threading.Event = field(default_factory=threading.Event)

    def pause(self, real_s: float) -> None:
        """Wait `real_s` seconds of the real engine's time; infinity waits for the stop signal.

        Raises:
            StoppedError: if the stop signal arrived before or during the wait.
        """
        if self.stopping.wait(None if math.isinf(real_s) else real_s / self.speed):
            raise StoppedError


# 16-bit TFLOPS by the launcher's form of nvidia-smi's names. Its names for the T4 and the RTX 4090 differ from
# nvidia-smi's, so they get the fallback, like every unknown GPU.
_TFLOPS: Final = {
    "A10G": 125, "A100-40GB": 312, "A100-80GB": 312, "A100-80GB-PCIe": 312, "H100-80GB": 900, "H100-NVL": 900,
    "H200-141GB": 989, "L4": 121, "L40S": 363,
}  # fmt: skip
FALLBACK: Final = 4096
_FALLBACK_OF_VISION_MODELS: Final = {"qwen2_vl": 10_000, "qwen2_5_vl": 10_000, "gemma3": 8_000}
_LEAST: Final = 100


def default_prefill_tokens(model: ModelSpec, card: str, ranks: int, memory_bytes: int) -> int:
    fallback = _FALLBACK_OF_VISION_MODELS.get(model.model_type, FALLBACK)
    if card not in _TFLOPS or model.quantization is not None or model.vision_parameters:
        return min(fallback, model.max_position_embeddings)
    by_compute = int(_TFLOPS[card] * 10**12 * ranks / (2 * _multiplied(model)))
    room = 0.95 * memory_bytes * ranks - 2 * model.parameters
    a_token = 2 * (2 * model.layers * model.kv_heads * model.head_dim + model.intermediate_size)
    by_memory = int(room / a_token)
    return min(
        by_compute if by_compute > _LEAST else fallback,
        model.max_position_embeddings,
        by_memory if by_memory > 0 else fallback,
    )


def _multiplied(model: ModelSpec) -> int:
    """Return the parameters that a token is multiplied with: all but the embedding table and unselected experts."""
    table = 0 if model.tied_embeddings else model.vocab_size * model.hidden_size
    if model.active_parameters:
        return model.active_parameters - table
    unused = max(0, model.experts - model.experts_per_token)
    return model.parameters - table - 3 * model.hidden_size * model.expert_intermediate_size * model.layers * unused


_OLD_DEFAULT_TOTAL_TOKENS: Final = 4096
_OLD_PREFILL_MARGIN: Final = 50
_SCORES_FLAG: Final = "--enable-prefill-logprobs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """The output and speed of the phases. `ranks` are the started shards."""

    log: Log
    pace: Pace
    ranks: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    arguments: Arguments
    environ: Mapping[str, str]
    release: TgiRelease
    host: Host
    num_shard: int
    checkpoint: Checkpoint
    faults: frozenset[Fault]

    @property
    def model_class(self) -> ModelClass:
        return self.release.model_class(self.checkpoint.model.model_type)

    @property
    def weights(self) -> Weights:
        return served_weights(self.checkpoint, self.release, self.arguments.text("quantize"))

    @property
    def attention(self) -> str:
        """`ATTENTION` of the environment, or the launcher's choice for this model and card."""
        asked = self.environ.get("ATTENTION")
        if asked is not None:
            return asked
        odd_heads = self.checkpoint.model.head_dim not in self.release.flash_head_dims
        if not (odd_heads or self.model_class.paged_only):
            return self.release.default_attention or "paged"
        capability = self.host.accelerator.compute_capability
        return "paged" if capability is None or capability < (8, 0) else "flashdecoding"

    @property
    def chunks_prefill(self) -> bool:
        return (
            self.release.chunked_prefill
            and self.model_class.prefill_chunking
            and self.model_class.flash
            and self.attention in {"flashinfer", "flashdecoding"}
            and not self.host.on_cpu
            and self.arguments.number("speculate") in {None, 0}
        )

    @property
    def prefill_tokens(self) -> int:
        given = self.arguments.number("max-batch-prefill-tokens")
        if given is not None:
            return given
        if not self.release.chunked_prefill:
            return _old_input_limit(self) + _OLD_PREFILL_MARGIN
        card, model = self.host.accelerator, self.checkpoint.model
        return default_prefill_tokens(model, card.name, self.num_shard, self.host.memory_bytes)

    @property
    def load(self) -> Load:
        fp8_cache = self.arguments.text("kv-cache-dtype") is not None
        prompt, total = self._warm_up_request
        return Load(
            model=self.checkpoint.model,
            model_class=self.model_class,
            weights=self.weights,
            num_shard=self.num_shard,
            attention=self.attention,
            prefill_tokens=self.prefill_tokens,
            prompt_tokens=prompt,
            total_tokens=total,
            scored=self._scores_prompts,
            fraction=self.arguments.fraction("cuda-memory-fraction", 1.0),
            kv_bytes=1 if fp8_cache else 2,
        )

    @property
    def _warm_up_request(self) -> tuple[int, int]:
        """Return the tokens of a prompt in the warm-up batch, and of prompt and answer together."""
        prompt = input_limit(self.arguments)
        total = self.arguments.number("max-total-tokens")
        if not self.release.chunked_prefill:
            return _old_input_limit(self), self.total_tokens(0)
        prompt = self.prefill_tokens if prompt is None else prompt
        return prompt, min(prompt, self.prefill_tokens) + 1 if total is None else total

    @property
    def _scores_prompts(self) -> bool:
        """Return whether prompts are scored: always without the flag, and in classes without flash attention."""
        if not self.model_class.flash or _SCORES_FLAG not in self.release.flags:
            return True
        return self.arguments.values.get(_SCORES_FLAG.removeprefix("--")) is True

    def total_tokens(self, capacity_tokens: int) -> int:
        given = self.arguments.number("max-total-tokens")
        if given is not None:
            return given
        limit = _OLD_DEFAULT_TOTAL_TOKENS
        if self.release.chunked_prefill:
            limit = capacity_tokens if self.chunks_prefill else self.prefill_tokens
        return min(self.checkpoint.model.max_position_embeddings, limit)

    def input_tokens(self, total_tokens: int) -> int:
        given = input_limit(self.arguments)
        return total_tokens - 1 if given is None else given


def _old_input_limit(situation: Situation) -> int:
    given = input_limit(situation.arguments)
    return situation.total_tokens(0) - 1 if given is None else given
