"""Whether the model fits, by the engine's own arithmetic, and how many tokens of KV cache remain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.engines.tgi.memory import Layout, memory_budget, scores_prompts
from tgi_deploy.values.engine import Load as Promised

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.values.engine import Scheme
    from tgi_deploy.values.model import ModelSpec

Verdict = Literal["ok", "oom-load", "oom-warmup"]
_WARMUP_ROWS: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What is put on each accelerator. `kv_bytes` is the size of one cached value; `fraction` the user's share."""

    model: ModelSpec
    scheme: Scheme
    num_shard: int
    attention: str
    prefill_tokens: int
    fraction: float = 1.0
    kv_bytes: int = 2
    replicated_kv: bool = False


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
    """Load the weights, then prefill the largest batch, then give what remains of the share to the KV cache."""
    block = release.block_tokens.get(load.attention, 1)
    layout = Layout(
        num_shard=load.num_shard,
        share=release.memory_share * load.fraction,
        workspace_bytes=release.workspace_bytes,
        block_tokens=block,
        kv_bytes=load.kv_bytes,
        replicated_kv=load.replicated_kv,
        prompt_logprobs=scores_prompts(release, {}),
    )
    warm_up = Promised(input_tokens=0, output_tokens=0, concurrency=_WARMUP_ROWS, context_tokens=0)
    budget = memory_budget(
        load.model,
        load.scheme,
        layout,
        warm_up,
        total_bytes=host.memory_bytes,
        prefill_tokens=load.prefill_tokens,
    )
    resident = max(budget.load_peak_bytes, budget.weights_bytes + budget.overhead_bytes)
    peak = resident + budget.activation_bytes + load.prefill_tokens * budget.kv_bytes_per_token
    verdict: Verdict = "ok"
    if resident > host.memory_bytes:
        verdict = "oom-load"
    elif peak > host.memory_bytes or budget.kv_capacity_tokens == 0:
        verdict = "oom-warmup"
    return Capacity(verdict=verdict, tokens=budget.kv_capacity_tokens, block_tokens=block)
