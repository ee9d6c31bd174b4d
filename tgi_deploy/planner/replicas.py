"""Numbers of replicas to judge: the fewest allowed, and the fewest that are enough.

Nothing in between is ever the cheapest choice. More replicas never make each one slower, so the smallest sufficient
number is found by bisection; machines are fully used. If the preference is throughput or token price, all numbers are
judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tgi_deploy.planner.evaluation import Evaluation
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.request import Request

MOST_MACHINES: Final = 8
MOST_REPLICAS: Final = 64


def slots(hardware: InstanceType, num_shard: int) -> int:
    """Return the number of replicas per machine: one where a service runs the container."""
    return 1 if hardware.status == "hosted" else max(1, hardware.accelerator_count // num_shard)


def machines(hardware: InstanceType, num_shard: int, replicas: int) -> int:
    return -(-replicas // slots(hardware, num_shard))


def every_number(request: Request) -> bool:
    """Return whether all numbers of replicas are judged, because the preference is throughput or token price."""
    return request.prefer in {"speed", "value"}


def worth_judging(
    judged: Callable[[int], Evaluation],
    least: int,
    more: Iterable[int],
    nearness: Callable[[Evaluation], tuple[bool, float]],
    *,
    every: bool,
) -> Iterator[Evaluation]:
    """Yield the evaluations of a configuration with the fewest replicas and with the fewest that are enough.

    Enough means meeting the user's limits, and coming as close to the default ones as the maximum number does. If none
    is enough, the largest number is used, unless even a single request is too slow. `every`: judge all numbers instead.
    """
    first = judged(least)
    counts = (least, *(() if first.fit.problems else more))
    if len(counts) == 1:
        yield first
        return
    if every:
        yield from map(judged, counts)
        return
    best = nearness(judged(counts[-1]))
    found = {least: first}
    for count in (
        _fewest(counts, lambda count: not judged(count).problems),
        _fewest(counts, lambda count: not judged(count).problems and nearness(judged(count)) <= best),
    ):
        found[count] = judged(count)
    yield from found.values()


def _fewest(counts: Sequence[int], works: Callable[[int], bool]) -> int:
    """Return the smallest of `counts` that works, or the largest. Feasibility is monotonic."""
    low, high = 0, len(counts) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(counts[middle]) else (middle + 1, high)
    return counts[low]


def most_machines(request: Request) -> int | None:
    """Return the maximum number of machines; an owned machine is just one."""
    return request.max_machines or (1 if request.hardware else None)


def counts_of(request: Request, most_replicas: int, slots_each: int) -> tuple[int, ...]:
    """Return the allowed numbers of replicas: those that fill one machine, two, and so on.

    With a number of requests in flight, there are at most that many replicas.
    """
    least = request.replicas.least
    most = max(least, most_replicas if request.replicas.most is None else request.replicas.most)
    if most == least:
        return (least,)
    if request.arrivals_per_s is None:
        most = max(least, min(most, request.concurrency))
    fewest = -(-least // slots_each)
    allowed = max(fewest, most_machines(request) or MOST_MACHINES)
    return tuple(sorted({min(number * slots_each, most) for number in range(fewest, allowed + 1)}))
