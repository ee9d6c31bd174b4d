"""Limits of a service that runs the engine on its own machines, and what it changes in a container.

The longest answer is the planned one: the 95th percentile of its length if known, at the speed under the whole load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Problem
from tgi_deploy.values.base import replaced
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tgi_deploy.values.container import Container
    from tgi_deploy.values.engine import StartupPhase
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, Performance, Storage
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Hosting, Supply

# A start that takes longer than predicted by half must still end in time.
_SLACK: Final = 1.5


def storage_problems(hosting: Hosting, hardware: InstanceType, storage: Storage) -> Iterator[Problem]:
    """Yield the rejection if the weights do not fit: no volume can be attached to a machine with NVMe."""
    if hardware.nvme_bytes and not storage.weights_on_nvme:
        weights_gib, nvme_gib = round(storage.weights_bytes / GIB), round(hardware.nvme_bytes / GIB)
        yield Problem(
            code="nvme_too_small",
            message=f"{weights_gib} GiB of weights don't fit on its {nvme_gib} GiB of NVMe, and {hosting.service}"
            " can't attach a volume to it",
            data={"weights_gib": weights_gib, "nvme_gib": nvme_gib},
        )
    elif storage.root_volume_gib > hosting.volume_gib:
        yield Problem(
            code="volume_too_large",
            message=f"needs a volume of {storage.root_volume_gib} GiB, and {hosting.service}'s volumes have at most "
            f"{hosting.volume_gib} GiB",
            data={"volume_gib": storage.root_volume_gib, "limit_gib": hosting.volume_gib},
        )


def start_problem(hosting: Hosting, startup: Iterable[StartupPhase]) -> Problem | None:
    """Return the rejection if the container would not be healthy in time."""
    expected_s = sum(phase.expected_s for phase in startup)
    if expected_s * _SLACK <= hosting.start_s:
        return None
    return Problem(
        code="start_too_long",
        message=f"the container needs about {expected_s:.0f} s to start; {_SLACK:g} times that exceeds the "
        f"{hosting.start_s} s that {hosting.service} waits",
        data={"start_s": round(expected_s), "limit_s": hosting.start_s},
    )


def answer_problem(hosting: Hosting, speed: Performance | None, request: Request) -> Problem | None:
    """Return the rejection if not even a streamed answer would end in time."""
    longest_s = longest_answer_s(speed, request)
    if longest_s <= hosting.stream_s:
        return None
    return Problem(
        code="answer_too_long",
        message=f"an answer of {_longest_tokens(request)} tokens takes about {longest_s:.0f} s, and {hosting.service}"
        f" ends a stream after {hosting.stream_s} s",
        data={"answer_s": round(longest_s), "limit_s": hosting.stream_s},
    )


def streaming_only(hosting: Hosting | None, speed: Performance | None, request: Request) -> bool:
    """Return whether the service would end the longest planned answer, unless it is streamed."""
    return hosting is not None and longest_answer_s(speed, request) > hosting.answer_s


def scales_to(request: Request, supply: Supply) -> int | None:
    """Return the maximum number of replicas to which the service may scale; None without autoscaling."""
    return request.replicas.most if supply.hosting is not None and request.replicas.varies else None


def notices(hosting: Hosting | None, chosen: Candidate, request: Request) -> Iterator[str]:
    """Yield that answers have to be streamed, and what the largest size costs."""
    if chosen.most_usd_per_hour is not None:
        about, asked = "about " if chosen.offer.estimated else "", request.replicas
        yield (
            f"scales from {asked.least} to {asked.most} replicas, {chosen.replicas} for the requested load: at most "
            f"{about}${chosen.most_usd_per_hour:.4f}/h"
        )
    if hosting is not None and chosen.streaming_only:
        longest_s = longest_answer_s(chosen.performance, request)
        yield (
            f"streaming only: an answer of {_longest_tokens(request)} tokens takes about {longest_s:.0f} s, and "
            f"{hosting.service} ends a whole answer after {hosting.answer_s} s; a streamed one may take "
            f"{hosting.stream_s} s"
        )


def longest_answer_s(speed: Performance | None, request: Request) -> float:
    """Return the seconds from a request to its last token, at the 95th percentile if known."""
    if speed is None:
        return 0.0
    first, each = speed.ttft_ms_p95 or speed.ttft_ms, speed.tpot_ms_p95 or speed.tpot_ms
    return (first + each * _longest_tokens(request)) / 1000


def _longest_tokens(request: Request) -> int:
    return request.output_p95 or request.output_tokens


def hosted(container: Container, hosting: Hosting | None, region: str, cache: str) -> Container:
    """Return the container as the service runs it: its image, port, variables, and folder for weights."""
    if hosting is None:
        return container
    image = replaced(container.image, reference=f"{hosting.registries[region]}/{container.image.reference}")
    variables = dict(_renamed(dict(container.env), hosting, cache))
    return replaced(container, image=image, port=hosting.port, env=tuple(sorted(variables.items())))


def _renamed(env: Mapping[str, str], hosting: Hosting, cache: str) -> Iterator[tuple[str, str]]:
    for name, value in env.items():
        yield hosting.variables.get(name, name), hosting.cache if value == cache else value
