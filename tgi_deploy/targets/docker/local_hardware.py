"""Chooses the hardware to plan for from this computer's GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError, Problem, warning
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.hardware import Accelerator, LocalGpu

_MIB: Final = 2**20
# A desktop uses about this much; more means that other processes use the GPU.
_IDLE_BYTES: Final = 1024 * _MIB
_SAME_SIZE: Final = 0.03


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalHardware:
    """`hardware` in the form of --hardware; `devices`: UUIDs, the freest first; `notices`: warnings."""

    hardware: str
    devices: tuple[str, ...]
    notices: tuple[Problem, ...] = ()


def local_hardware(gpus: Sequence[LocalGpu], catalog: Catalog, *, release: str) -> LocalHardware:
    """Return the GPUs to plan for.

    Raises InputError `no_gpu`, `mig_enabled`, `unknown_card`.
    """
    if not gpus:
        raise _no_gpu(catalog, release)
    whole = [gpu for gpu in gpus if not gpu.mig]
    if not whole:
        raise InputError(
            "mig_enabled",
            f"{_named(gpus)}: MIG is on, and plans need whole GPUs",
            hint="disable it with 'sudo nvidia-smi -mig 0', or plan for another machine with --hardware NxGPU",
        )
    group = _largest_group(whole)
    card = _card(group[0], catalog)
    return LocalHardware(
        hardware=f"{len(group)}x{card.name}",
        devices=tuple(gpu.uuid for gpu in sorted(group, key=lambda gpu: gpu.used_bytes or 0)),
        notices=tuple(_notices(gpus, group, card)),
    )


def _largest_group(gpus: Sequence[LocalGpu]) -> tuple[LocalGpu, ...]:
    """Return the largest group of identical GPUs, which shards require; of equal groups, the one with more memory."""
    groups: dict[tuple[str, int], list[LocalGpu]] = {}
    for gpu in gpus:
        groups.setdefault((gpu.name, gpu.memory_bytes), []).append(gpu)
    best = max(groups.values(), key=lambda group: (len(group), group[0].memory_bytes), default=[])
    return tuple(best)


def _card(gpu: LocalGpu, catalog: Catalog) -> Accelerator:
    """Return the accelerator by the driver's name, with the driver's memory size if the name is ambiguous."""
    for name in (gpu.name, f"{gpu.name} {round(gpu.memory_bytes / GIB)}GB"):
        try:
            return catalog.accelerator(name)
        except InputError:
            continue
    capability = f"compute capability {gpu.compute_capability}, " if gpu.compute_capability else ""
    raise InputError(
        "unknown_card",
        f"this computer's {gpu.name!r} ({capability}{gpu.memory_bytes // _MIB} MiB) is not in the catalog",
        hint="name the most similar one of 'tgi-deploy catalog list accelerators' with --hardware NxGPU: the same "
        "compute capability, no more memory",
    )


def _notices(gpus: Sequence[LocalGpu], group: Sequence[LocalGpu], card: Accelerator) -> Iterator[Problem]:
    left_out = [gpu for gpu in gpus if gpu not in group]
    if left_out:
        chosen = f"{len(group)}x{card.name}"
        yield warning(
            "mixed_gpus", f"planning for the largest group of identical GPUs, {chosen}, without {_named(left_out)}"
        )
    for gpu in group:
        if gpu.used_bytes is not None and gpu.used_bytes > _IDLE_BYTES:
            used = f"{gpu.used_bytes // _MIB} of {gpu.memory_bytes // _MIB} MiB"
            message = f"other processes use {used} of GPU {gpu.index}, but plans assume that all of it is free"
            yield warning("gpu_in_use", message)
    has_mib, planned_mib = group[0].memory_bytes // _MIB, card.memory_bytes // _MIB
    if has_mib < planned_mib * (1 - _SAME_SIZE):
        message = f"the driver reports {has_mib} MiB per GPU, the catalog {planned_mib} MiB"
        yield warning("less_memory", message)


def _named(gpus: Sequence[LocalGpu]) -> str:
    return ", ".join(f"GPU {gpu.index} ({gpu.name}{', MIG' if gpu.mig else ''})" for gpu in gpus)


def _no_gpu(catalog: Catalog, release: str) -> InputError:
    return InputError(
        "no_gpu",
        f"the driver finds no NVIDIA GPU here; {catalog.cpu_image(release)} could serve on the CPU, ten to a hundred "
        "times slower (every token reads all weights once; host memory reads 50 to 400 GB/s, GPU memory 600 to "
        "8,000), but is never started automatically",
        hint="'nvidia-smi' shows what the driver sees; plan for another machine with --hardware NxGPU, or rent one "
        "without --target docker",
    )
