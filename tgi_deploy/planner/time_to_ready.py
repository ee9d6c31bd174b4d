"""Predicts the time to ready, phase by phase, from bytes and rates.

Rates are decimal MB/s. A root volume has the lower of gp3's 125 MB/s and the instance's EBS bandwidth: the burst rate
for about 30 minutes of credit, then the baseline (87.5 MB/s on a g5.xlarge). Typical figures are from public startup
logs; deadlines are three times the expected duration, with a minimum, so that a slow day is not a failure. `stall_s` is
how long a phase may go without visible progress: three times its largest single step, at least its normal silence.
`limit_s` bounds a phase that is past its deadline but makes progress: a slow download is not thrown away.

This module has the host's phases; the engine provides its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.engine import Rates, StartupPhase
from tgi_deploy.values.supply import is_added

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, Plan, Storage
    from tgi_deploy.values.plan_document import PlannedPhase

_LAUNCH_S: Final = 40.0
_BOOT_S: Final = 90.0
_REGISTRY_MB_S: Final = 150.0
# A service shows nothing of its machine before the container writes to its log. This covers launch, boot and pull, and
# the search for a machine of each of five types, 300 s each. In a public report of a SageMaker endpoint, the pull alone
# took 333 s.
_HOSTED_S: Final = 2400.0
_UNPACK_FACTOR: Final = 0.5  # the packed image is about half its size on disk
_LARGEST_LAYER: Final = 0.5  # of the image: a pull shows no progress while it unpacks a layer
_HUB_MB_S: Final = 400.0
_NVME_MB_S: Final = 1500.0
_GP3_MB_S: Final = 125.0  # a gp3 volume's default throughput
_BURST_S: Final = 1800.0
_NETWORK_SHARE: Final = 0.6
_SLACK: Final = 3.0
_STRETCH: Final = 3.0  # times the deadline, for a phase that makes progress

# A service checks an engine for itself, and lets former machines finish, before it reports the new one. An update of
# several machines replaces one after the other.
_SERVICE_S: Final = 900.0
_LAST: Final = "ready"
_ONLY_RENTED: Final = frozenset({"launching", "booting"})


class PhaseEstimate(Frozen, frozen=True, kw_only=True):
    """A phase's expected duration, deadline, and time without progress that counts as a stall.

    `limit_s` is the deadline while it makes progress, `amount_mb` its download size.
    """

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0
    limit_s: float = 0.0
    amount_mb: float = 0.0


def moved_machines(plan: Plan, *, rolling: bool) -> int:
    """Return how many machines an update may replace one after the other: all of a range may run."""
    return (plan.request.replicas.most or plan.chosen.replicas) if rolling else 1


def estimate(candidate: Candidate, *, moved: int = 1) -> tuple[PhaseEstimate, ...]:
    """Return the phases from the launch to the first answer, in order. An owned machine needs no time to boot.

    `moved`: how many machines a service replaces one after the other in an update; first ones start side by side.
    """
    host = tuple(
        replaced(phase, expected_s=0.0) if _is_up(candidate) and phase.phase in _ONLY_RENTED else phase
        for phase in _host_phases(candidate.offer.instance_type, candidate.storage)
    )
    phases = (*host, *candidate.engine.startup)
    if candidate.offer.instance_type.status == "hosted":
        starts_s = sum(phase.expected_s for phase in phases)
        service_s = _SERVICE_S + (moved - 1) * (_SERVICE_S + starts_s)
        phases = tuple(
            replaced(phase, floor_s=phase.floor_s + service_s) if phase.phase == _LAST else phase for phase in phases
        )
    return tuple(map(_estimate, phases))


def phases_of_restart(planned: Iterable[PlannedPhase], storage: Storage, *, emptied: bool) -> tuple[PhaseEstimate, ...]:
    """Return the phases of a restart. The image is on disk, and so are the weights unless NVMe drives were `emptied`.

    Deadlines are unchanged.
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
    """Return the expected time from a rented machine's launch to the first answer."""
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


def phases_of_start(candidate: Candidate) -> tuple[PhaseEstimate, ...]:
    """Return the phases that apply."""
    return tuple(item for item in estimate(candidate) if not (_is_up(candidate) and item.phase in _ONLY_RENTED))


def _is_up(candidate: Candidate) -> bool:
    """Return whether the machine is up before the launch: an owned one, unless a cluster adds it."""
    return candidate.offer.market == "owned" and not is_added(candidate.offer)


def start_s(candidate: Candidate) -> int:
    """Return how long the engine is expected to take until it is ready, in whole seconds."""
    return math.ceil(sum(item.expected_s for item in phases_of_start(candidate)))


def ready_deadline_s(candidate: Candidate) -> int:
    """Return the engine's overall deadline: the sum of all phases' deadlines, in whole seconds."""
    return math.ceil(sum(item.deadline_s for item in estimate(candidate)))


def packed_mb(image_bytes: int) -> float:
    """Return the download size of an image; `image_bytes` is its size on disk."""
    return image_bytes / 1e6 * _UNPACK_FACTOR


def _host_phases(hardware: InstanceType, storage: Storage) -> Iterator[StartupPhase]:
    image_bytes = storage.image_bytes
    unpacking_s = _Volume(hardware=hardware).takes_s(image_bytes / 1e6)
    pulling_s = packed_mb(image_bytes) / min(_REGISTRY_MB_S, _network_mb_s(hardware)) + unpacking_s
    if hardware.status == "hosted":
        expected_s = _LAUNCH_S + _BOOT_S + pulling_s
        yield StartupPhase(phase="launching", expected_s=expected_s, floor_s=_HOSTED_S, silent_s=_HOSTED_S)
        return
    yield StartupPhase(phase="launching", expected_s=_LAUNCH_S, floor_s=300.0, silent_s=300.0)
    yield StartupPhase(phase="booting", expected_s=_BOOT_S, floor_s=420.0, silent_s=300.0)
    yield StartupPhase(
        phase="pulling", expected_s=pulling_s, floor_s=600.0, silent_s=300.0, step_s=_LARGEST_LAYER * pulling_s,
        amount_mb=packed_mb(image_bytes),
    )  # fmt: skip


def _network_mb_s(hardware: InstanceType) -> float:
    return (hardware.network_gbps or 1.0) * 125 * _NETWORK_SHARE


def rates(hardware: InstanceType, storage: Storage) -> Rates:
    """Return the machine's times for the weights."""
    image_mb, weights_mb = storage.image_bytes / 1e6, storage.weights_bytes / 1e6
    volume = _Volume(hardware=hardware)
    arriving = weights_mb / min(_HUB_MB_S, _network_mb_s(hardware))
    if storage.weights_on_nvme:
        stored = weights_mb / _NVME_MB_S
        read = stored
    else:
        stored = volume.takes_s(weights_mb, already_mb=image_mb)
        read = volume.takes_s(weights_mb, already_mb=image_mb + weights_mb)
    if weights_mb * 1e6 < hardware.ram_bytes / 2:  # downloaded weights are read from the page cache
        read = weights_mb / _NVME_MB_S
    return Rates(weights_bytes=storage.weights_bytes, download_s=max(arriving, stored), read_s=read)


class _Volume(Frozen, frozen=True, kw_only=True):
    """The root volume with the instance's limits; unknown ones default to gp3's."""

    hardware: InstanceType

    def takes_s(self, megabytes: float, *, already_mb: float = 0.0) -> float:
        """Return the seconds for this many more, after `already_mb` of the burst."""
        baseline = self.hardware.ebs_baseline_mb_s
        burst = self.hardware.ebs_burst_mb_s or baseline
        fast, slow = min(burst or _GP3_MB_S, _GP3_MB_S), min(baseline or burst or _GP3_MB_S, _GP3_MB_S)
        bursting = min(megabytes, max(0.0, _BURST_S * fast - already_mb))
        return bursting / fast + (megabytes - bursting) / slow
