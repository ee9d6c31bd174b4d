"""How many replicas of a configuration are worth judging: the fewest there may be, and the fewest that are enough.

Between the two lies nothing that a lower price would choose. More replicas make each of them faster and never slower,
so the smallest number that is enough is found by bisection; a machine that is paid for is filled. Where tokens a second
are what is wanted, or their price, every number is judged.
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
    """Return how many replicas one machine has accelerators for."""
    return max(1, hardware.accelerator_count // num_shard)


def machines(hardware: InstanceType, num_shard: int, replicas: int) -> int:
    return -(-replicas // slots(hardware, num_shard))


def every_number(request: Request) -> bool:
    """Return whether each number of replicas is worth judging: tokens a second, or their price, are what is wanted."""
    return request.prefer in {"speed", "value"}


def worth_judging(
    judged: Callable[[int], Evaluation],
    least: int,
    more: Iterable[int],
    nearness: Callable[[Evaluation], tuple[bool, float]],
    *,
    every: bool,
) -> Iterator[Evaluation]:
    """Yield the evaluations of a configuration: with the fewest replicas, and with the fewest that are enough.

    `every`: with each number instead.
    Enough for the limits that were asked for, and as good for those that nobody typed as the most that there may be.
    Where none is enough, that is the largest number, unless a request alone is too slow already.
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
    """The smallest of `counts` that works, or the largest; a larger one works wherever a smaller does."""
    low, high = 0, len(counts) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(counts[middle]) else (middle + 1, high)
    return counts[low]


def most_machines(request: Request) -> int | None:
    """Return how many machines there may be; a machine of one's own is the one that was named."""
    return request.max_machines or (1 if request.hardware else None)


def counts_of(request: Request, most_replicas: int, slots_each: int) -> tuple[int, ...]:
    """Return the numbers of replicas there may be: those that fill one machine, two, and so on.

    Where requests in flight are counted, replicas that none is left for do not help to fill a machine.
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
