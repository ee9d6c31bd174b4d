"""How long a deployment takes to answer, phase by phase, from bytes and rates.

Rates are decimal MB/s. A root volume writes and reads at the lower of gp3's own 125 MB/s and what the instance
gives its volumes: the burst rate while its credit lasts, about 30 minutes of it, then the baseline (87.5 MB/s on a
g5.xlarge). Typical figures are from public start-up logs; deadlines are three times what is expected, never below a
floor, so that a slow day is no failure. `stall_s` is how long a phase may go without visible progress: three times
its largest single step, never below what it lets pass in silence. `limit_s` bounds what a phase gets that is past its
deadline and still makes progress: a slow link is no reason to throw away what has come.

The host's phases are known here; those of the engine come with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Frozen
from tgi_deploy.values.engine import Rates, StartupPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, Storage
    from tgi_deploy.values.plan_document import PlannedPhase

_LAUNCH_S: Final = 40.0
_BOOT_S: Final = 90.0
_REGISTRY_MB_S: Final = 150.0
_UNPACK_FACTOR: Final = 0.5  # the packed image is about half of what lies on disk
_LARGEST_LAYER: Final = 0.5  # of the image: an image pull shows nothing while one layer is unpacked
_HUB_MB_S: Final = 400.0
_NVME_MB_S: Final = 1500.0
_GP3_MB_S: Final = 125.0  # a gp3 volume's throughput unless more is bought
_BURST_S: Final = 1800.0
_NETWORK_SHARE: Final = 0.6
_SLACK: Final = 3.0
_STRETCH: Final = 3.0  # times the deadline, for a phase that makes progress

_ONLY_RENTED: Final = frozenset({"launching", "booting"})


class PhaseEstimate(Frozen, frozen=True, kw_only=True):
    """Seconds a phase should take, after which it counts as failed, and how many without progress are a stall.

    `limit_s` is the deadline of a phase that goes on making progress, `amount_mb` what comes over the network in it.
    """

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0
    limit_s: float = 0.0
    amount_mb: float = 0.0


def estimate(candidate: Candidate) -> tuple[PhaseEstimate, ...]:
    """Every phase from the launch to the first answer, in order."""
    host = _host_phases(candidate.offer.instance_type, candidate.storage)
    return tuple(_estimate(phase) for phase in (*host, *candidate.engine.startup))


def planned_again(planned: Iterable[PlannedPhase], storage: Storage, *, emptied: bool) -> tuple[PhaseEstimate, ...]:
    """Return the phases of a start from the disk: the image is there, weights are unless their drives were `emptied`.

    Deadlines stay as they were planned.
    """
    there = {"pulling"} if emptied and storage.weights_on_nvme else {"pulling", "downloading"}
    return tuple(
        PhaseEstimate(
            phase=item.phase,
            expected_s=0.0 if item.phase in there else item.expected_s,
            deadline_s=item.deadline_s,
            stall_s=item.stall_s,
            limit_s=_STRETCH * item.deadline_s,
        )
        for item in planned
    )


def restart_s(hardware: InstanceType, storage: Storage, startup: tuple[StartupPhase, ...]) -> float:
    """Return how long a rented machine takes from its launch to the first answer, if all goes as expected."""
    return sum(phase.expected_s for phase in (*_host_phases(hardware, storage), *startup))


def _estimate(phase: StartupPhase) -> PhaseEstimate:
    deadline = max(phase.floor_s, _SLACK * phase.expected_s)
    silent = max(phase.silent_s, _SLACK * phase.step_s)
    return PhaseEstimate(
        phase=phase.phase,
        expected_s=phase.expected_s,
        deadline_s=deadline,
        stall_s=min(deadline, silent),
        limit_s=_STRETCH * deadline,
        amount_mb=phase.amount_mb,
    )


def to_go_through(candidate: Candidate) -> tuple[PhaseEstimate, ...]:
    """The phases that happen: a machine of one's own is up already."""
    owned = candidate.offer.market == "owned"
    return tuple(item for item in estimate(candidate) if not (owned and item.phase in _ONLY_RENTED))


def ready_deadline_s(candidate: Candidate) -> int:
    """How long the engine may take until it answers: all phases at their latest, in whole seconds."""
    return math.ceil(sum(item.deadline_s for item in estimate(candidate)))


def packed_mb(image_bytes: int) -> float:
    """What the pull of an image brings over the network; `image_bytes` is its size on disk."""
    return image_bytes / 1e6 * _UNPACK_FACTOR


def _host_phases(hardware: InstanceType, storage: Storage) -> Iterator[StartupPhase]:
    image_bytes = storage.image_bytes
    unpacking_s = _Volume(hardware=hardware).takes_s(image_bytes / 1e6)
    pulling_s = packed_mb(image_bytes) / min(_REGISTRY_MB_S, _network_mb_s(hardware)) + unpacking_s
    yield StartupPhase(phase="launching", expected_s=_LAUNCH_S, floor_s=300.0, silent_s=300.0)
    yield StartupPhase(phase="booting", expected_s=_BOOT_S, floor_s=420.0, silent_s=300.0)
    yield StartupPhase(
        phase="pulling", expected_s=pulling_s, floor_s=600.0, silent_s=300.0, step_s=_LARGEST_LAYER * pulling_s,
        amount_mb=packed_mb(image_bytes),
    )  # fmt: skip


def _network_mb_s(hardware: InstanceType) -> float:
    return (hardware.network_gbps or 1.0) * 125 * _NETWORK_SHARE


def rates(hardware: InstanceType, storage: Storage) -> Rates:
    """Return what the weights cost the machine in time."""
    image_mb, weights_mb = storage.image_bytes / 1e6, storage.weights_bytes / 1e6
    volume = _Volume(hardware=hardware)
    arriving = weights_mb / min(_HUB_MB_S, _network_mb_s(hardware))
    if storage.weights_on_nvme:
        stored = weights_mb / _NVME_MB_S
        read = stored
    else:
        stored = volume.takes_s(weights_mb, already_mb=image_mb)
        read = volume.takes_s(weights_mb, already_mb=image_mb + weights_mb)
    if weights_mb * 1e6 < hardware.ram_bytes / 2:  # just downloaded weights are read from the page cache
        read = weights_mb / _NVME_MB_S
    return Rates(weights_bytes=storage.weights_bytes, download_s=max(arriving, stored), read_s=read)


class _Volume(Frozen, frozen=True, kw_only=True):
    """The root volume as the instance lets it be used; unknown limits are gp3's own."""

    hardware: InstanceType

    def takes_s(self, megabytes: float, *, already_mb: float = 0.0) -> float:
        """Seconds for so many more, `already_mb` of the burst having been used up."""
        baseline = self.hardware.ebs_baseline_mb_s
        burst = self.hardware.ebs_burst_mb_s or baseline
        fast, slow = min(burst or _GP3_MB_S, _GP3_MB_S), min(baseline or burst or _GP3_MB_S, _GP3_MB_S)
        bursting = min(megabytes, max(0.0, _BURST_S * fast - already_mb))
        return bursting / fast + (megabytes - bursting) / slow
