"""TGI's startup phases from the container's start to the first answer. Typical figures are from public logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values.engine import StartupPhase

if TYPE_CHECKING:
    from tgi_deploy.values.engine import EngineSettings, Rates

_FILE_MB: Final = 5000.0  # checkpoints are split into 5 GB files; downloads report whole files
_SHARD_START_S: Final = 15.0
_PREFILL_S: Final = 20.0
_GRAPH_S: Final = 4.0
_TOKENIZER_S: Final = 5.0


def startup(settings: EngineSettings, rates: Rates) -> tuple[StartupPhase, ...]:
    """Return the phases in order. Longer silence than theirs means a hang: ranks wait for one another."""
    weights_mb = rates.weights_bytes / 1e6
    loading_s = _SHARD_START_S + rates.read_s
    warming_up_s = _PREFILL_S + _GRAPH_S * len(settings.cuda_graphs)
    return (
        # The hub's client retries five times.
        StartupPhase(
            phase="downloading", expected_s=rates.download_s, floor_s=600.0, silent_s=600.0,
            step_s=rates.download_s / max(1.0, weights_mb / _FILE_MB), amount_mb=weights_mb,
        ),
        StartupPhase(phase="loading", expected_s=loading_s, floor_s=300.0, silent_s=300.0, step_s=loading_s),
        StartupPhase(phase="warming_up", expected_s=warming_up_s, floor_s=300.0, silent_s=300.0, step_s=warming_up_s),
        StartupPhase(phase="ready", expected_s=_TOKENIZER_S, floor_s=60.0, silent_s=60.0),
    )  # fmt: skip
