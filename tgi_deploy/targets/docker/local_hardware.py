"""From the GPUs that this computer has to the hardware to plan for."""

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
# What a display and its desktop take; more belongs to somebody's work.
_IDLE_BYTES: Final = 1024 * _MIB
_SAME_SIZE: Final = 0.03


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalHardware:
    """`hardware` as --hardware takes it; `devices`: the UUIDs, freest first; `notices`: what else to know."""

    hardware: str
    devices: tuple[str, ...]
    notices: tuple[Problem, ...] = ()


def local_hardware(gpus: Sequence[LocalGpu], catalog: Catalog, *, release: str) -> LocalHardware:
    """The cards to plan for.

    Raises InputError `no_gpu`, `mig_enabled`, `unknown_card`.
    """
    if not gpus:
        raise _no_gpu(catalog, release)
    whole = [gpu for gpu in gpus if not gpu.mig]
    if not whole:
        raise InputError(
            "mig_enabled",
            f"{_named(gpus)}: MIG is on, and plans are made for whole cards",
            hint="switch it off with 'sudo nvidia-smi -mig 0', or plan for another machine with --hardware NxCARD",
        )
    group = _largest_group(whole)
    card = _card(group[0], catalog)
    return LocalHardware(
        hardware=f"{len(group)}x{card.name}",
        devices=tuple(gpu.uuid for gpu in sorted(group, key=lambda gpu: gpu.used_bytes or 0)),
        notices=tuple(_notices(gpus, group, card)),
    )


def _largest_group(gpus: Sequence[LocalGpu]) -> tuple[LocalGpu, ...]:
    """Return the most cards that are alike, as shards must be; of equally many the larger, in the driver's order."""
    groups: dict[tuple[str, int], list[LocalGpu]] = {}
    for gpu in gpus:
        groups.setdefault((gpu.name, gpu.memory_bytes), []).append(gpu)
    best = max(groups.values(), key=lambda group: (len(group), group[0].memory_bytes), default=[])
    return tuple(best)


def _card(gpu: LocalGpu, catalog: Catalog) -> Accelerator:
    """By the driver's name; where one name stands for several sizes, with the size that the driver tells."""
    for name in (gpu.name, f"{gpu.name} {round(gpu.memory_bytes / GIB)}GB"):
        try:
            return catalog.accelerator(name)
        except InputError:
            continue
    capability = f"compute capability {gpu.compute_capability}, " if gpu.compute_capability else ""
    raise InputError(
        "unknown_card",
        f"this computer's {gpu.name!r} ({capability}{gpu.memory_bytes // _MIB} MiB) is not in the catalogue",
        hint="name the most similar one of 'tgi-deploy catalog list accelerators' with --hardware NxCARD: the same "
        "compute capability, no more memory",
    )


def _notices(gpus: Sequence[LocalGpu], group: Sequence[LocalGpu], card: Accelerator) -> Iterator[Problem]:
    left_out = [gpu for gpu in gpus if gpu not in group]
    if left_out:
        chosen = f"{len(group)}x{card.name}"
        yield warning("mixed_gpus", f"planning for the largest equal group, {chosen}; without {_named(left_out)}")
    for gpu in group:
        if gpu.used_bytes is not None and gpu.used_bytes > _IDLE_BYTES:
            used = f"{gpu.used_bytes // _MIB} of {gpu.memory_bytes // _MIB} MiB"
            told = f"GPU {gpu.index} has {used} in use by others: a plan that takes it counts on all of it"
            yield warning("gpu_in_use", told)
    has_mib, planned_mib = group[0].memory_bytes // _MIB, card.memory_bytes // _MIB
    if has_mib < planned_mib * (1 - _SAME_SIZE):
        told = f"the driver reports {has_mib} MiB a card, the catalogue counts on {planned_mib} MiB"
        yield warning("less_memory", told)


def _named(gpus: Sequence[LocalGpu]) -> str:
    return ", ".join(f"GPU {gpu.index} ({gpu.name}{', MIG' if gpu.mig else ''})" for gpu in gpus)


def _no_gpu(catalog: Catalog, release: str) -> InputError:
    return InputError(
        "no_gpu",
        f"this computer has no NVIDIA GPU that its driver knows of; {catalog.cpu_image(release)} could serve on the "
        "CPU, some ten to a hundred times slower (every token reads all weights once, and a host's memory gives 50 to "
        "400 GB/s where a GPU's gives 600 to 8,000), and is not started silently",
        hint="'nvidia-smi' shows what the driver sees; plan for another machine with --hardware NxCARD, or rent one "
        "without --target docker",
    )
