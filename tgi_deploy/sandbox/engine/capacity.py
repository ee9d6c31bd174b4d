"""Whether the model fits, and how many tokens of KV cache remain, following TGI's memory allocations step by step.

It loads the weights, prefills the largest batch with its whole KV cache, reads the free memory from the driver, and
gives the cache a share of it (TGI `flash_causal_lm.py` `warmup`, `import_utils.py` `get_cuda_free_memory`, read at
every release). The memory used before any weights and the share are the release's data; NCCL takes 450 MiB of buffers
at two ranks, and 64 MiB for each further one (engine logs: 0.4 to 0.5 GiB at two).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.sandbox.engine.weights import largest_layer_bytes, rank_bytes

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.weights import Weights
    from tgi_deploy.values.model import ModelSpec

Verdict = Literal["ok", "oom-load", "oom-warmup"]
_MIB: Final = 1024**2
_COLLECTIVES_BYTES: Final = 450 * _MIB
_FURTHER_RANK_BYTES: Final = 64 * _MIB
_BYTES_16: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The content of each accelerator. `kv_bytes` is the size of one cached value; `fraction` the user's share.

    `prompt_tokens` and `total_tokens` limit a request of the warm-up batch; `scored`: it scores its prompts.
    """

    model: ModelSpec
    model_class: ModelClass
    weights: Weights
    num_shard: int
    attention: str
    prefill_tokens: int
    prompt_tokens: int
    total_tokens: int
    scored: bool
    fraction: float = 1.0
    kv_bytes: int = 2

    @property
    def kv_bytes_per_token(self) -> int:
        """Return the size of a token's keys and values in all layers, for one rank's heads."""
        model = self.model
        heads = model.kv_heads if self.model_class.replicated_kv else max(1, model.kv_heads // self.num_shard)
        return 2 * model.layers * heads * model.head_dim * self.kv_bytes

    @property
    def requests(self) -> int:
        """Return the requests of the warm-up batch: prompts are added until they fill the prefill batch."""
        return ceil(self.prefill_tokens / max(1, self.prompt_tokens))


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """The cache. `tokens` is the number that every rank can hold, in whole blocks."""

    verdict: Verdict
    tokens: int
    block_tokens: int

    @property
    def blocks(self) -> int:
        return self.tokens // self.block_tokens


def fits(load: Load, release: TgiRelease, host: Host) -> Capacity:
    block = release.block_tokens.get(load.attention, 1)
    block_bytes = block * load.kv_bytes_per_token
    weights = rank_bytes(load.model, load.weights, load.num_shard, load.model_class)
    beside = release.context_bytes + _collectives_bytes(load.num_shard)
    if weights + beside + largest_layer_bytes(load.model, load.weights, load.num_shard) > host.memory_bytes:
        return Capacity(verdict="oom-load", tokens=0, block_tokens=block)
    blocks = load.requests * ceil(max(load.total_tokens - 1, min(load.prompt_tokens, load.prefill_tokens)) / block)
    used = weights + beside + release.workspace_bytes + _prefill_bytes(load, release) + blocks * block_bytes
    if used > host.memory_bytes * load.fraction:
        return Capacity(verdict="oom-warmup", tokens=0, block_tokens=block)
    blocks += _free_bytes(used, load, release, host) // block_bytes
    return Capacity(verdict="ok" if blocks else "oom-warmup", tokens=blocks * block, block_tokens=block)


def _free_bytes(used: int, load: Load, release: TgiRelease, host: Host) -> int:
    """Return the part of the memory free after the prefill that becomes cache."""
    if release.share_of == "total":
        return max(0, int(host.memory_bytes * load.fraction * release.memory_share) - used)
    return int((host.memory_bytes * load.fraction - used) * release.memory_share)


def _collectives_bytes(ranks: int) -> int:
    return 0 if ranks == 1 else _COLLECTIVES_BYTES + (ranks - 2) * _FURTHER_RANK_BYTES


def _prefill_bytes(load: Load, release: TgiRelease) -> int:
    """Return the peak of the warm-up prefill: one layer, its image, its masks, and the scores of its prompts."""
    ranks, model, native = load.num_shard, load.model, load.model_class
    layer = load.prefill_tokens * _BYTES_16 * (5 * model.hidden_size + _feed_forward_values(load) // ranks)
    longest = min(load.prompt_tokens, load.prefill_tokens)
    heads = model.attention_heads / ranks
    a_pair = native.mask_bytes + native.mask_bytes_per_head * heads
    masks = int(load.requests * longest * longest * a_pair)
    scores = load.prefill_tokens * _score_bytes(load, release) if load.scored else 0
    return max(layer, native.image_bytes // ranks) + masks + scores


def _feed_forward_values(load: Load) -> int:
    """Return the size of gate and up projection, activation and product; for a mixture, of concurrent experts."""
    model, native = load.model, load.model_class
    if not model.experts:
        return 4 * model.intermediate_size
    if native.experts == "gathered":
        return model.experts * (3 * model.hidden_size * load.num_shard + 4 * model.expert_intermediate_size)
    rule = load.weights.rule
    fused = native.experts == "fused" and (rule is None or (rule.fused_moe and native.fused_quantized))
    at_once = model.experts_per_token if fused else 1
    return max(4 * model.intermediate_size, 3 * at_once * model.expert_intermediate_size)


def _score_bytes(load: Load, release: TgiRelease) -> int:
    """Return the size of a token's logits and their log-softmax; a gathered table is transposed."""
    row = load.model.vocab_size * _BYTES_16
    if load.num_shard == 1 or load.model.vocab_size % load.num_shard:
        return row * release.score_copies
    return 3 * row + row // load.num_shard
