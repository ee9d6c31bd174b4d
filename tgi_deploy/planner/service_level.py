"""Compares a prediction with the speed limits: the probability of meeting each, and how far it is missed.

Limits set by the user reject a configuration. Those of the default service level only rank it, so that they never make
a feasible request infeasible.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Problem
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.plan import LimitOutcome
from tgi_deploy.values.request import DEFAULT_TPOT_MS, DEFAULT_TTFT_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.values.plan import Performance
    from tgi_deploy.values.request import Limit, Metric, Request

THROUGHPUT: Final = "output_tokens_per_s"
UNUSABLE: Final = 2.0
# The 90th percentile of a normal distribution in standard deviations. (Importing `statistics` takes 3 ms of a plan's
# 100.)
_ONE_IN_TEN: Final = 1.2815515655446004
_JUST_MISSED: Final = 1 + 1e-9
CODES: Final[dict[Metric, str]] = {
    "ttft_ms": "ttft_too_slow", "tpot_ms": "tpot_too_slow", "output_tokens_per_s": "throughput_too_low",
}  # fmt: skip


def outcomes(speed: Performance, request: Request) -> tuple[LimitOutcome, ...]:
    """Return the outcome of all limits of the request."""
    found = ((limit, chance(speed, limit)) for limit in request.limits)
    return tuple(
        LimitOutcome(
            limit=limit, predicted=getattr(speed, limit.metric), chance=kept, met=kept >= request.confidence
        )
        for limit, kept in found
    )  # fmt: skip


def chance(speed: Performance, limit: Limit) -> float:
    """Return the probability of meeting the limit; at the median it is one half."""
    within = _chance_within(speed, limit.metric, limit.value)
    return 1 - within if limit.metric == THROUGHPUT else within


def certain(speed: Performance, metric: Metric, confidence: float) -> float:
    """Return the tightest limit met with this probability."""
    median, span = getattr(speed, metric), getattr(speed, f"{metric}_span")
    share = 1 - confidence if metric == THROUGHPUT else confidence
    if share == 0.5:  # noqa: PLR2004 -- the median
        return float(median)
    from statistics import NormalDist  # noqa: PLC0415 -- 3 ms that most plans do without

    deviations = NormalDist().inv_cdf(share) / _ONE_IN_TEN
    return float(median * math.pow(span.high / median if deviations > 0 else median / span.low, deviations))


def _chance_within(speed: Performance, metric: Metric, value: float) -> float:
    """Return the probability that the measured median is at most `value`; the two sides have different widths."""
    median, span = getattr(speed, metric), getattr(speed, f"{metric}_span")
    if value <= 0 or math.isinf(median):
        return 0.0
    off = math.log(value / median)
    width = math.log(span.high / median) if off > 0 else math.log(median / span.low)
    return (1 + math.erf(off * _ONE_IN_TEN / width / math.sqrt(2))) / 2


class Shortfall(Frozen, frozen=True, kw_only=True):
    """How far a prediction misses the default service level, ordered by `rank`.

    `times` is the worst ratio to a default limit, 1 if all are met. Above two it is `unusable`: then no request is
    answered in time, and `answer` counts, the ratio of a whole answer's time to that when both limits are just met.
    """

    times: float
    answer: float

    @property
    def unusable(self) -> bool:
        return self.times > UNUSABLE

    @property
    def missed(self) -> bool:
        return self.times > 1

    def rank(self, reach: Shortfall) -> tuple[bool, float]:
        """Return the sort key, smaller is nearer; everything within reach is equally near."""
        return (True, max(self.answer, reach.answer)) if self.unusable else (False, max(self.times, reach.times))


MET: Final = Shortfall(times=1.0, answer=0.0)
NEVER: Final = Shortfall(times=math.inf, answer=math.inf)


def shortfall(speed: Performance, found: tuple[LimitOutcome, ...], request: Request) -> Shortfall:
    times = missed_times(speed, found, request)
    return MET if times <= 1 else Shortfall(times=times, answer=_answer(speed, request))


def reach(alone: Iterable[Shortfall]) -> Shortfall:
    """Return the default limits, doubled until the fastest single request meets them."""
    fastest = NEVER
    for item in alone:
        if not item.missed:
            return MET
        fastest = Shortfall(times=min(fastest.times, item.times), answer=min(fastest.answer, item.answer))
    return MET if fastest == NEVER else Shortfall(times=_doubled(fastest.times), answer=_doubled(fastest.answer))


def _doubled(times: float) -> float:
    return float(2.0 ** math.ceil(math.log2(times)))


def _answer(speed: Performance, request: Request) -> float:
    """Return the ratio of a whole answer's time to that when both default limits are just met."""
    good_ms = DEFAULT_TTFT_MS + request.output_tokens * DEFAULT_TPOT_MS
    return (speed.ttft_ms + request.output_tokens * speed.tpot_ms) / good_ms


def missed_times(speed: Performance, found: tuple[LimitOutcome, ...], request: Request) -> float:
    """Return the worst ratio to a default limit at the requested confidence; 1 if all are met."""
    missed = [
        _times(certain(speed, item.limit.metric, request.confidence), item.limit)
        for item in found
        if item.limit.default and not item.met
    ]
    return max((_JUST_MISSED, *missed)) if missed else 1.0


def _times(figure: float, limit: Limit) -> float:
    return limit.value / figure if limit.metric == THROUGHPUT else figure / limit.value


def problems(found: tuple[LimitOutcome, ...], request: Request) -> Iterator[Problem]:
    """Yield the rejections: each missed limit set by the user."""
    for outcome in found:
        if not outcome.met and not outcome.limit.default:
            yield _problem(outcome, request)


def overload(speed: Performance, request: Request, replicas: int) -> Problem | None:
    """Return the problem if requests arrive faster than they are served."""
    arriving = request.arrivals_per_s
    if arriving is None or not math.isinf(speed.ttft_ms):
        return None
    served = speed.output_tokens_per_s / request.output_tokens
    several = f"{replicas} replicas serve" if replicas > 1 else "one replica serves"
    return Problem(
        code="load_too_high",
        message=f"{several} about {served:.3g} requests/s of the {arriving:g} that arrive: the queue would grow",
        data={"served_per_s": round(served, 3), "arrivals_per_s": arriving},
    )


def _problem(outcome: LimitOutcome, request: Request) -> Problem:
    metric, wanted = outcome.limit.metric, outcome.limit.value
    chance = f" (met with a chance of {outcome.chance:.0%}, {request.confidence:.0%} required)"
    sure = "" if request.confidence == 0.5 else chance  # noqa: PLR2004 -- the median
    if metric == "ttft_ms":
        seen = round(outcome.predicted)
        text = f"time to first token would be about {seen} ms, over {wanted:g} ms"
        data = {"ttft_ms": seen, "wanted_ttft_ms": wanted}
    elif metric == "tpot_ms":
        each = round(outcome.predicted, 1)
        text = f"an output token would take about {each} ms, over {wanted:g} ms"
        data = {"tpot_ms": each, "wanted_tpot_ms": wanted}
    else:
        rate = round(outcome.predicted, 1)
        short = max(0.1, round(wanted - outcome.predicted, 1))
        load = f"{request.concurrency} requests at once" if request.arrivals_per_s is None else "this load"
        text = f"{load} would get about {rate:g} output tokens/s in total, {short:g} short of {wanted:g}"
        data = {"output_tokens_per_s": rate, "wanted_tokens_per_s": wanted, "short_tokens_per_s": short}
    return Problem(code=CODES[metric], message=text + sure, data={**data, "chance": round(outcome.chance, 3)})
