"""TGI 3.x's default for `--max-batch-prefill-tokens`, so that a plan can show what it overrides.

The launcher divides a GPU's 16-bit TFLOPS by the model's work per token, regardless of memory: 59,900 tokens on an H100
for Llama-3.1-8B, whose warm-up takes as much memory as the weights (TGI `launcher/src/main.rs`, read at 3.3.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.values.model import ModelSpec

# The launcher's table, by GPU family; others log "Unkown compute for card" and get the fallback. So do GPUs of known
# families whose full name in `nvidia-smi` differs from the launcher's: `tesla-t4` and `nvidia-geforce-rtx-4090` (it
# compares with `nvidia-t4` and `nvidia-4090`), and these.
_NOT_BY_THESE_NAMES: Final = frozenset({"A100-40GB-PCIe", "H100-80GB-PCIe", "H200-NVL"})
_TFLOPS: Final = {"L4": 121, "A10G": 125, "L40S": 363, "A100": 312, "H100": 900, "H200": 989}
_FALLBACK_TOKENS: Final = 4096
_FALLBACK_BY_MODEL_TYPE: Final = {"qwen2_vl": 10_000, "qwen2_5_vl": 10_000, "gemma3": 8000}
_LEAST_TOKENS: Final = 100
_VRAM_SHARE: Final = 0.95
_BYTES_16_BIT: Final = 2


def default_prefill_tokens(model: ModelSpec, accelerator: str, num_shard: int, total_bytes: int) -> int:
    """Return the launcher's default for a model on `num_shard` GPUs with `total_bytes` each."""
    tflops = None if accelerator in _NOT_BY_THESE_NAMES else _TFLOPS.get(accelerator.partition("-")[0])
    fallback = _FALLBACK_BY_MODEL_TYPE.get(model.model_type, _FALLBACK_TOKENS)
    if tflops is None or model.quantization is not None or model.vision_parameters:
        return min(fallback, model.max_position_embeddings)
    work = 2 * (_working_parameters(model) - model.vocab_size * model.hidden_size * (not model.tied_embeddings))
    by_compute = int(tflops * 1e12 * num_shard / work) if work else 0
    if by_compute <= _LEAST_TOKENS:
        by_compute = fallback
    free = _VRAM_SHARE * total_bytes * num_shard - model.parameters * _BYTES_16_BIT
    a_token = 2 * model.layers * model.kv_heads * model.head_dim + model.intermediate_size
    by_memory = int(free / (a_token * _BYTES_16_BIT))
    return min(by_compute, model.max_position_embeddings, by_memory if by_memory > 0 else fallback)


def _working_parameters(model: ModelSpec) -> int:
    """Return the parameters that a token uses."""
    if model.active_parameters:
        return model.active_parameters
    idle = max(0, model.experts - model.experts_per_token)
    return model.parameters - 3 * model.hidden_size * model.expert_intermediate_size * model.layers * idle
