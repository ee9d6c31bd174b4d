"""vLLM's container, with only flags of the exact release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values.container import Container, Health, Image, Mount, Redaction, Restart, SecretRef, Stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.vllm.release import VllmRelease
    from tgi_deploy.values.engine import EngineSettings, Fit

PORT: Final = 8000
CACHE_PATH: Final = "/data"
_COMPILE_CACHE_VARIABLE: Final = "VLLM_CACHE_ROOT"
# The hub's layout below this variable is engine-independent, so engines can share a volume.
_WEIGHTS_LAYOUT: Final = "HF_HOME"
_HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 -- the variable's name, not a token
_SHM_BYTES: Final = 1024**3  # ranks share tensors through /dev/shm; Docker's own is 64 MB
HEALTH: Final = Health(path="/health", every_s=20, failures=5, refuses_while_starting=True)
# It exits with 0 if its engine process died.
_RESTART: Final = Restart(policy="always", never_after=(2,), most=3)
_DRAIN_FLAG: Final = "--shutdown-timeout"
_DRAIN_S: Final = 90
_MARGIN_S: Final = 30
# Up to 0.28 the arguments are logged unredacted.
_REDACTIONS: Final = tuple(Redaction(text=name) for name in ("api_key", "api-key", "hf_token", "hf-token"))


def container(fit: Fit, release: VllmRelease) -> Container:
    """Return the container of a configuration. Arguments reach the entry point unchanged, JSON included."""
    pins, settings = fit.case.pins, fit.settings
    return Container(
        image=Image(reference=release.image, bytes=release.image_bytes),
        args=tuple(_args(release, settings, pins.flags)),
        env=tuple(sorted({**release.env, **pins.env}.items())),
        secrets=(SecretRef(variable=_HUB_TOKEN),) if fit.case.model.gated else (),
        port=PORT,
        accelerators=settings.num_shard,
        shm_bytes=_SHM_BYTES if settings.num_shard > 1 else 0,
        mounts=tuple(_mounts(release)),
        health=HEALTH,
        restart=_RESTART,
        stop=_stop(release),
        redactions=_REDACTIONS,
    )


def _args(release: VllmRelease, settings: EngineSettings, pins: Mapping[str, str]) -> Iterator[str]:
    yield from ("--model", settings.model_id) if release.model_by_flag else (settings.model_id,)
    for name, values in _wanted(settings):
        if name in release.flags and name not in pins and values is not None:
            yield from (name,) if release.flags[name].switch else (name, *values)
    for name, value in sorted(pins.items()):
        yield from _pinned(release, name, value)


def _wanted(settings: EngineSettings) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Yield the settings: the flag and its values; None: omit it."""
    graphs = tuple(batch for batch in settings.cuda_graphs if batch)
    yield "--revision", _word(settings.revision)
    yield "--tensor-parallel-size", (str(settings.num_shard),)
    yield "--quantization", _word(settings.quantize)
    yield "--dtype", _word(settings.dtype)
    yield "--max-model-len", (str(settings.max_total_tokens),)
    yield "--max-num-batched-tokens", (str(settings.max_batch_prefill_tokens),)
    yield "--max-num-seqs", (str(settings.max_concurrent_requests),)
    yield "--cudagraph-capture-sizes", tuple(map(str, graphs)) or None
    yield "--enforce-eager", None if graphs else ()
    yield _DRAIN_FLAG, (str(_DRAIN_S),)


def _word(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else (value,)


def _pinned(release: VllmRelease, name: str, value: str) -> tuple[str, ...]:
    if not release.flags[name].switch:
        return name, value
    return (name,) if value == "true" else ()


def _mounts(release: VllmRelease) -> Iterator[Mount]:
    yield Mount(path=CACHE_PATH, purpose="weights", layout=_WEIGHTS_LAYOUT)
    compiled = release.env.get(_COMPILE_CACHE_VARIABLE)
    if compiled is not None:
        yield Mount(path=compiled, purpose="compile-cache", layout=f"{release.name}-{release.version}")


def _stop(release: VllmRelease) -> Stop:
    """Return how to stop it. Releases without the flag abort requests. While draining, its health check stays green."""
    drains_s = _DRAIN_S if _DRAIN_FLAG in release.flags else 0
    return Stop(signal="SIGTERM", grace_s=drains_s + _MARGIN_S, accepts_while_draining=drains_s > 0)
