"""The engine without a GPU: it warns, and serves from the CPU if the model allows that.

Recorded from 3.3.7 on a machine without a GPU on 2026-11-22: tests/cases/diagnosis/real-cpu-start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine.logs import BACKEND, GPU

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.sandbox.engine.host import Host
    from tgi_deploy.sandbox.engine.situation import Situation, Stage

# Weights are float32 on a CPU (server, models/causal_lm.py), so a token moves twice the bytes.
BANDWIDTH_GB_S: Final = 20.0
TFLOPS: Final = 1.0
_DEFAULT_BATCH_TOKENS: Final = 16_000
_NO_DRIVER: Final = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
    "driver from http://www.nvidia.com/Download/index.aspx"
)
_NO_ATTENTION: Final = "System cpu doesn't support flash/paged attention"


def warn_of_driver(host: Host, release: TgiRelease, stage: Stage) -> None:
    """Log the launcher's failed GPU query when it chooses the attention."""
    if host.on_cpu and release.default_attention:
        stage.log.launcher(f"Cannot determine GPU compute capability: {_NO_DRIVER}", level="WARN", target=GPU)


def warn_of_attention(situation: Situation, stage: Stage) -> None:
    if situation.host.on_cpu:
        for what, reason in (
            ("Flash Attention enabled models", _NO_ATTENTION),
            ("Mamba", "No module named 'mamba_ssm'"),
            ("Flash Transformers Backend", _NO_ATTENTION),
        ):
            stage.log.launcher(f"Could not import {what}: {reason}", level="WARN")


def refusal(situation: Situation) -> str | None:
    """Return the shard's error if it can't serve this from the CPU; None if it can."""
    if situation.num_shard > 1:
        model_type = situation.checkpoint.model.model_type
        return f"NotImplementedError: Sharded {model_type} requires Flash Attention enabled models."
    if situation.weights.rule is not None:
        return "ValueError: quantization is not available on CPU"
    return None


def assumed_batch_tokens(situation: Situation, stage: Stage) -> int:
    """Return the flag's value or a default, as nothing is measured (router, backends/v3/src/lib.rs)."""
    stage.log.router("Model does not support automatic max batch total tokens", level="WARN", source=BACKEND, line=79)
    given = situation.arguments.number("max-batch-total-tokens")
    if given is not None:
        return given
    return max(_DEFAULT_BATCH_TOKENS, situation.total_tokens(0), situation.prefill_tokens)
