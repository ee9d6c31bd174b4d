"""A start of the container: its image, machine, arguments and checkpoint, and what follows from them before any phase.

The catalog replaces the hub.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tgi_deploy.catalog.config import model_spec
from tgi_deploy.errors import InputError
from tgi_deploy.sandbox.engine.flags import Arguments, ExitError
from tgi_deploy.sandbox.engine.logs import Log, reason
from tgi_deploy.sandbox.engine.memory import Weights, checkpoint_bytes, stored_weights
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.hardware import Accelerator
from tgi_deploy.values.model import CheckpointQuantization, ModelSpec, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TextIO

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease


Fault = StrEnum("Fault", {
    "OOM_LOAD": "oom-load", "OOM_WARMUP": "oom-warmup", "BAD_FLAG": "bad-flag", "GATED": "gated",
    "DISK_FULL": "disk-full", "NETWORK": "network", "SHM_TOO_SMALL": "shm-too-small", "NCCL_HANG": "nccl-hang",
    "HANG_SHARD": "hang-shard", "OOM_SERVING": "oom-serving", "CRASH_AFTER_READY": "crash-after-ready",
    "SLOW_DOWNLOAD": "slow-download", "WRONG_MODEL": "wrong-model", "NO_CHAT_TEMPLATE": "no-chat-template",
    "OVERLOADED": "overloaded",
})  # fmt: skip


class Host(Frozen, frozen=True, kw_only=True):
    """The machine. `memory_bytes` is per accelerator; `data` is the folder mounted at `/data`, or None."""

    accelerator: Accelerator
    gpus: int
    memory_bytes: int
    data: Path | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether no GPU is visible; the engine starts anyway."""
        return self.gpus == 0 or self.accelerator.compute_capability is None


# A machine without a GPU.
NO_ACCELERATOR: Final = Accelerator(
    name="none", vendor="none", architecture="none", compute_capability=None, memory_bytes=0, bandwidth_gb_s=0.0,
    fp16_tflops=None, fp8_tflops=None, int8_tops=None, bf16=False, interconnect="none",
)  # fmt: skip


class Pace(Frozen, frozen=True, kw_only=True):
    speed: float
    stopping: threading.Event = msgspec.field(default_factory=threading.Event)

    def pause(self, real_s: float) -> None:
        """Wait seconds of the real engine's time; infinity waits for the stop signal, which raises ExitError."""
        if self.stopping.wait(None if math.isinf(real_s) else real_s / self.speed):
            raise ExitError(0)


class TokenLimits(Frozen, frozen=True, kw_only=True):
    """The router's final limits, as shown by `/info`."""

    max_input_tokens: int = 0
    max_total_tokens: int = 0
    max_batch_total_tokens: int = 0


class Checkpoint(Frozen, frozen=True, kw_only=True):
    """The checkpoint of `--model-id`. `weights`: the stored format; `exists`: the hub, or this computer, has it.

    `commit` is a stable fake if the catalog has none. `begins`: prompts begin with a special token, which is
    unknown for hub models. `broken` is the error of a shard that loads this folder, as recorded from 3.3.7.
    """

    model_id: str
    model: ModelSpec
    chat: bool
    weights: Weights
    stored_bytes: int
    commit: str
    is_local: bool
    begins: bool
    exists: bool
    broken: str | None

    def files(self) -> tuple[str, ...]:
        count = max(1, math.ceil(self.stored_bytes / _FILE_BYTES))
        if count == 1:
            return ("model.safetensors",)
        return tuple(f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1))


_FILE_BYTES: Final = 5_000_000_000
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
# The shape of a model without a usable config, which is never loaded.
_SOME_SHAPE: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 600,
    "max_position_embeddings": 4096, "torch_dtype": "float32", "tie_word_embeddings": False,
}  # fmt: skip


def fake_hash(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def find_checkpoint(models: Catalog, release: TgiRelease, model_id: str) -> Checkpoint:
    folder, local = Path(model_id), Path(model_id).is_dir()
    found, broken = _local(models, folder) if local else (_published(models, model_id), None)
    profile = Profile(name="", summary="", model=model_spec(_SOME_SHAPE, "")) if found is None else found
    weights, tokenizer = stored_weights(profile.model, release), folder / "tokenizer_config.json"
    begins = local and tokenizer.exists() and json.loads(tokenizer.read_text("utf-8")).get("add_bos_token") is True
    return Checkpoint(
        model_id=model_id, model=profile.model, chat=profile.chat, weights=weights, exists=found is not None,
        stored_bytes=checkpoint_bytes(profile.model, weights), commit=profile.model.revision or fake_hash(model_id),
        is_local=local, begins=begins, broken=broken,
    )  # fmt: skip


def _local(models: Catalog, folder: Path) -> tuple[Profile, str | None]:
    """Return the profile of a folder, and the error that loading it raises. Only shards read the weights."""
    config, broken = folder / "config.json", None
    try:
        profile = models.resolve(str(folder))
    except InputError:
        broken = reason("cut_off")
        shape: Mapping[str, Any] = json.loads(config.read_text("utf-8")) if config.exists() else _SOME_SHAPE
        profile = Profile(name="", summary="", model=model_spec(shape, "", local_path=str(folder)))
    if not config.exists():
        broken = reason("no_config", folder=folder)
    elif not any((folder / name).exists() for name in _TOKENIZERS):
        broken = reason("no_tokenizer", folder=folder)
    return profile, broken


def _published(models: Catalog, model_id: str) -> Profile | None:
    """Return the profile of a repository, or of a quantized copy of one; None if the hub would not have it."""
    if "/" not in model_id or model_id.startswith("/"):
        return None
    try:
        return models.resolve(model_id)
    except InputError:
        every = map(models.resolve, models.profile_names())
    for profile in every:
        for copy in profile.quantized:
            if copy.hub_id == model_id:
                model = profile.model
                width = copy.intermediate_size or model.intermediate_size
                wider = 3 * model.layers * model.hidden_size * (width - model.intermediate_size)
                model = replaced(
                    model, intermediate_size=width, parameters=model.parameters + wider,
                    hub_id=model_id, stored_bytes=None, revision=None, gated=False,
                    quantization=CheckpointQuantization(method=copy.method, bits=copy.bits, group_size=copy.group_size),
                )  # fmt: skip
                return replaced(profile, model=model, quantized=())
    return None


# 16-bit TFLOPS by the launcher's form of nvidia-smi's names. Its names for the T4 and the RTX 4090 differ from
# nvidia-smi's, so they get the fallback, like every unknown GPU.
_TFLOPS: Final = {
    "A10G": 125, "A100-40GB": 312, "A100-80GB": 312, "A100-80GB-PCIe": 312, "H100-80GB": 900, "H100-NVL": 900,
    "H200-141GB": 989, "L4": 121, "L40S": 363,
}  # fmt: skip
_FALLBACK: Final = 4096
_FALLBACK_OF_VISION_MODELS: Final = {"qwen2_vl": 10_000, "qwen2_5_vl": 10_000, "gemma3": 8_000}
_LEAST: Final = 100
_OLD_DEFAULT_TOTAL_TOKENS: Final = 4096
_OLD_PREFILL_MARGIN: Final = 50


class Container(msgspec.Struct, kw_only=True):
    """A container to start: its release, machine, environment and faults. `models` replaces the hub."""

    release: TgiRelease
    host: Host
    environ: Mapping[str, str]
    faults: frozenset[Fault]
    models: Catalog
    listen: tuple[str, int]
    pace: Pace
    out: TextIO
    err: TextIO
    port_held: bool = False


class Situation(Container, kw_only=True):
    """A starting container. `weights`: their format in memory; `limits` are set by the warm-up."""

    arguments: Arguments
    checkpoint: Checkpoint
    model_class: ModelClass
    weights: Weights
    log: Log
    num_shard: int = 1
    limits: TokenLimits = msgspec.field(default_factory=TokenLimits)

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
            and not self.arguments.get("speculate")
        )

    @property
    def prefill_tokens(self) -> int:
        given: int | None = self.arguments.get("max-batch-prefill-tokens")
        if given is not None:
            return given
        if not self.release.chunked_prefill:
            return self.input_tokens(self.total_tokens(0)) + _OLD_PREFILL_MARGIN
        return self._default_prefill_tokens()

    @property
    def warm_up_request(self) -> tuple[int, int]:
        """Return the tokens of a prompt in the warm-up batch, and of prompt and answer together."""
        if not self.release.chunked_prefill:
            total = self.total_tokens(0)
            return self.input_tokens(total), total
        given = self.arguments.input_limit
        prompt = self.prefill_tokens if given is None else given
        return prompt, self.arguments.get("max-total-tokens", min(prompt, self.prefill_tokens) + 1)

    def total_tokens(self, capacity_tokens: int) -> int:
        given: int | None = self.arguments.get("max-total-tokens")
        if given is not None:
            return given
        limit = _OLD_DEFAULT_TOTAL_TOKENS
        if self.release.chunked_prefill:
            limit = capacity_tokens if self.chunks_prefill else self.prefill_tokens
        return min(self.checkpoint.model.max_position_embeddings, limit)

    def input_tokens(self, total_tokens: int) -> int:
        given = self.arguments.input_limit
        return total_tokens - 1 if given is None else given

    def _default_prefill_tokens(self) -> int:
        """Return as many as the cards compute in a second, within the model's length and the memory."""
        model, card, ranks = self.checkpoint.model, self.host.accelerator.name, self.num_shard
        fallback = _FALLBACK_OF_VISION_MODELS.get(model.model_type, _FALLBACK)
        if card not in _TFLOPS or model.quantization is not None or model.vision_parameters:
            return min(fallback, model.max_position_embeddings)
        # A token is multiplied with all parameters but the embedding table and unselected experts.
        unused = max(0, model.experts - model.experts_per_token) * model.layers
        active = model.parameters - 3 * model.hidden_size * model.expert_intermediate_size * unused
        table = 0 if model.tied_embeddings else model.vocab_size * model.hidden_size
        by_compute = int(_TFLOPS[card] * 10**12 * ranks / (2 * ((model.active_parameters or active) - table)))
        room = 0.95 * self.host.memory_bytes * ranks - 2 * model.parameters
        by_memory = int(room / (2 * (2 * model.layers * model.kv_heads * model.head_dim + model.intermediate_size)))
        return min(
            by_compute if by_compute > _LEAST else fallback,
            model.max_position_embeddings,
            by_memory if by_memory > 0 else fallback,
        )
