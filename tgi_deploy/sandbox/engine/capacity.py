"""Whether the model fits, and how many tokens of KV cache remain: the order in which TGI takes memory, step by step.

Load the weights, prefill the largest batch, measure what is free, give all of the share that is left to the KV cache
(TGI `flash_causal_lm.py`, read at 3.3.7). Constants:

* 850 MiB of CUDA context and libraries. TGI 2.2 with Llama-3.1-8B on one A10G leaves 1,070 MiB unexplained by its log's
  19,056 tokens (text-generation-inference issue of September 2024); a part of that is the allocator's fragments, which
  differ from model to model;
* 450 MiB of NCCL buffers at two ranks, 64 MiB for each further one (engine logs: 0.4 to 0.5 GiB at two).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.sandbox.engine.weights import largest_layer_bytes, rank_bytes

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.weights import Weights
    from tgi_deploy.values.model import ModelSpec

Verdict = Literal["ok", "oom-load", "oom-warmup"]
_MIB: Final = 1024**2
_CONTEXT_BYTES: Final = 850 * _MIB
_COLLECTIVES_BYTES: Final = 450 * _MIB
_FURTHER_RANK_BYTES: Final = 64 * _MIB
_BYTES_16: Final = 2
# A prompt's logits are held in 16 bits, and in 32 as log-softmax.
_SCORED_LOGIT_BYTES: Final = 6
# A release without this flag scores every prompt.
_SCORES_FLAG: Final = "--enable-prefill-logprobs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What is put on each accelerator. `kv_bytes` is the size of one cached value; `fraction` the user's share."""

    model: ModelSpec
    weights: Weights
    num_shard: int
    attention: str
    prefill_tokens: int
    fraction: float = 1.0
    kv_bytes: int = 2
    replicated_kv: bool = False

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of every layer, for the heads that one rank has."""
        model = self.model
        heads = model.kv_heads if self.replicated_kv else max(1, model.kv_heads // self.num_shard)
        return 2 * model.layers * heads * model.head_dim * self.kv_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """`tokens` is what every rank can hold, in whole blocks."""

    verdict: Verdict
    tokens: int
    block_tokens: int

    @property
    def blocks(self) -> int:
        return self.tokens // self.block_tokens


def fits(load: Load, release: TgiRelease, host: Host) -> Capacity:
    block = release.block_tokens.get(load.attention, 1)
    weights = rank_bytes(load.model, load.weights, load.num_shard)
    beside = _CONTEXT_BYTES + _collectives_bytes(load.num_shard)
    prefill = _prefill_bytes(load, release)
    if weights + beside + largest_layer_bytes(load.model, load.weights, load.num_shard) > host.memory_bytes:
        return Capacity(verdict="oom-load", tokens=0, block_tokens=block)
    warm = weights + beside + release.workspace_bytes + prefill
    share = int(host.memory_bytes * release.memory_share * load.fraction)
    tokens = max(0, share - warm) // (load.kv_bytes_per_token * block) * block
    peak = warm + load.prefill_tokens * load.kv_bytes_per_token
    verdict: Verdict = "oom-warmup" if peak > host.memory_bytes or not tokens else "ok"
    return Capacity(verdict=verdict, tokens=tokens, block_tokens=block)


def _collectives_bytes(ranks: int) -> int:
    return 0 if ranks == 1 else _COLLECTIVES_BYTES + (ranks - 2) * _FURTHER_RANK_BYTES


def _prefill_bytes(load: Load, release: TgiRelease) -> int:
    """The peak of the warm-up prefill: a feed-forward block in flight, or the scores of every prompt token."""
    model = load.model
    width = max(model.intermediate_size, model.expert_intermediate_size * model.experts_per_token)
    layer = load.prefill_tokens * _BYTES_16 * (3 * model.hidden_size + 3 * width // load.num_shard)
    if _SCORES_FLAG in release.flags:
        return layer
    held = _BYTES_16 * 2 * model.hidden_size
    scores = load.prefill_tokens * (_SCORED_LOGIT_BYTES * model.vocab_size + held)
    return max(layer, scores)
