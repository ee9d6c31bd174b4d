"""The maximum load of one replica within the service level, and the KV cache it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.evaluation import traffic
from tgi_deploy.planner.service_level import outcomes
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import ReplicaLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.planner.evaluation import Evaluation, Evaluator
    from tgi_deploy.values.request import Metric, Request

_MOST_REQUESTS: Final = 1_000_000
_MOST_ARRIVALS_PER_S: Final = 100_000.0
_TOLERANCE: Final = 1.005


def replica_load(evaluator: Evaluator, evaluation: Evaluation) -> ReplicaLoad | None:
    """Return the maximum load of one replica within the latency limits; None without limits."""
    request = replaced(evaluator.request, min_tokens_per_s=None)
    if not request.limits:
        return None
    if request.arrivals_per_s is None:
        return _in_flight(evaluator, evaluation, request)
    return _arriving(evaluator, evaluation, request)


def _in_flight(evaluator: Evaluator, evaluation: Evaluation, request: Request) -> ReplicaLoad:
    def judged(requests: int) -> Evaluation:
        case = evaluation.fit.case
        fit = evaluator.fit(case.hardware, case.num_shard, case.scheme, requests, case.prefill_tokens)
        return evaluator.judge(replaced(request, concurrency=requests), fit)

    most = _last(lambda requests: judged(requests).is_enough)
    return ReplicaLoad(requests=most or None, arrivals_per_s=None, bound_by=_missed(judged(most + 1)))


def _last(works: Callable[[int], bool]) -> int:
    """Return the largest number that works, 0 if not even 1 does. Feasibility is monotonic."""
    low, high = 0, 1
    while high <= _MOST_REQUESTS and works(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def _arriving(evaluator: Evaluator, evaluation: Evaluation, request: Request) -> ReplicaLoad:
    def judged(arrivals_per_s: float) -> Evaluation:
        return evaluator.judge(replaced(request, arrivals_per_s=arrivals_per_s), evaluation.fit)

    low, high = 1 / _MOST_ARRIVALS_PER_S, _MOST_ARRIVALS_PER_S
    if not judged(low).is_enough:
        return ReplicaLoad(requests=None, arrivals_per_s=None, bound_by=_missed(judged(low)))
    while high / low > _TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if judged(middle).is_enough else (low, middle)
    return ReplicaLoad(requests=None, arrivals_per_s=low, bound_by=_missed(judged(high)))


def _missed(judged: Evaluation) -> Metric | None:
    """Return the first limit that is missed; None if the queue grows without end, or memory runs out."""
    return next((item.limit.metric for item in judged.outcomes if not item.met), None)


def needed_kv_tokens(evaluator: Evaluator, evaluation: Evaluation) -> int:
    """Return the KV cache, in tokens, of one replica's running batch.

    If everything in flight fits, that is all of it; otherwise the smallest batch that still meets the service level,
    or, if it is missed anyway, the capacity.
    """
    request, memory = evaluator.request, evaluation.memory
    in_flight = -(-request.concurrency // evaluation.replicas) * request.load.request_tokens
    if in_flight <= memory.kv_capacity_tokens:
        return max(memory.required_kv_tokens, in_flight)
    if not evaluation.is_enough or not request.limits:
        return memory.kv_capacity_tokens
    low, high = memory.required_kv_tokens, memory.kv_capacity_tokens
    while low < high:
        middle = (low + high) // 2
        speed = evaluator.speed(evaluation.fit, traffic(request, evaluation.replicas), middle)
        if all(item.met for item in outcomes(speed, request) if item.limit.metric != "output_tokens_per_s"):
            high = middle
        else:
            low = middle + 1
    return high
