"""The launcher's default for `--max-batch-prefill-tokens` (TGI `launcher/src/main.rs`, read at 3.3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.values.model import ModelSpec

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
