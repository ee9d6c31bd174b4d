"""Evaluates a configuration independently of where it is rented: how it fits, and its speed under the load.

Computed once per kind of hardware: the nine sizes of g6 share one evaluation, and so do all regions. That makes a plan
over all regions nearly as fast as a plan for one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError, Problem
from tgi_deploy.planner import performance, service_level
from tgi_deploy.planner.speed_load import Traffic
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.engine import AUTO, Case, Pins
from tgi_deploy.values.quality import is_below
from tgi_deploy.values.sizes import download_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.service_level import Shortfall
    from tgi_deploy.values.engine import Fit, MemoryBudget, Scheme
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import LimitOutcome, Performance
    from tgi_deploy.values.quality import MethodQuality
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply


_TTFT: Final = "ttft_ms"
_OVERLOADED: Final = frozenset({"load_too_high"})


class Evaluation(Frozen, frozen=True, kw_only=True):
    """Rejection reasons and metrics of a configuration with a number of replicas on a kind of hardware.

    `performance` covers all replicas. It is None if memory does not fit, if the queue grows without end, or if a
    request without speed limits is rejected for another reason. `outcomes` are the results of all limits, `chance` the
    lowest probability, `shortfall` how far the default service level is missed.
    """

    fit: Fit
    replicas: int
    quality: MethodQuality
    problems: tuple[Problem, ...]
    performance: Performance | None
    outcomes: tuple[LimitOutcome, ...]
    chance: float
    shortfall: Shortfall

    @property
    def num_shard(self) -> int:
        return self.fit.case.num_shard

    @property
    def scheme(self) -> Scheme:
        return self.fit.case.scheme

    @property
    def memory(self) -> MemoryBudget:
        return self.fit.memory

    @property
    def is_enough(self) -> bool:
        """Whether it meets all limits, including default ones."""
        return not self.problems and not self.shortfall.missed


class Evaluator:
    """Evaluates configurations of one request and engine. Holds what evaluations share."""

    def __init__(self, request: Request, supply: Supply, engine: Engine) -> None:
        self.request = request
        self.supply = supply
        self.engine = engine
        self.release = supply.release
        self.model = request.model.model
        self.pins = Pins.of(request.flags, request.env)
        for problem in engine.check_pins(self.pins, request.load, self.model, self.release):
            raise InputError(problem.code, problem.message, hint=problem.hint)
        self.schemes = engine.schemes(request.model, self.release, request.quantize)
        self._known: dict[tuple[Any, ...], Evaluation] = {}
        self._with_each: dict[tuple[Any, ...], list[Evaluation]] = {}
        self._downloads: dict[tuple[str, str], int] = {}
        self._qualities: dict[tuple[str, float], MethodQuality] = {}

    def download_bytes(self, scheme: Scheme) -> int:
        """Return the download size of the model's weights."""
        key = (scheme.name, scheme.hub_id)
        if key not in self._downloads:
            self._downloads[key] = download_bytes(self.model, scheme)
        return self._downloads[key]

    def shard_counts(self, hardware: InstanceType) -> tuple[int, ...]:
        """Return the counts to judge; a pinned one even if it can't work."""
        if self.request.num_shard is not None:
            return (self.request.num_shard,)
        return self.engine.shard_counts(self.model, self.release, hardware.accelerator_count)

    def evaluation(self, hardware: InstanceType, num_shard: int, scheme: Scheme, replicas: int = 1) -> Evaluation:
        key = _key(hardware, num_shard, scheme, replicas)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._with_prefill(hardware, num_shard, scheme, replicas)
        return known

    def _with_prefill(self, hardware: InstanceType, num_shard: int, scheme: Scheme, replicas: int) -> Evaluation:
        """Return the evaluation with the best prefill batch.

        With fewer prompts per batch, first tokens come sooner. A smaller batch also leaves more room for the KV cache,
        which matters if requests wait for room.
        """
        batches = self.every_prefill(hardware, num_shard, scheme, replicas)
        largest = next(batches)
        return min((largest, *batches), key=_order) if self._smaller_may_be_better(largest) else largest

    def every_prefill(
        self, hardware: InstanceType, num_shard: int, scheme: Scheme, replicas: int
    ) -> Iterator[Evaluation]:
        """Yield the configuration with every prefill batch that holds a prompt, the largest first."""
        share = -(-self.request.concurrency // replicas)
        known = self._with_each.setdefault(_key(hardware, num_shard, scheme, replicas), [])
        if not known:
            known.append(self.judge(self.request, self.fit(hardware, num_shard, scheme, share), replicas))
        yield known[0]
        for place, tokens in enumerate(known[0].fit.smaller_prefills, start=1):
            if place == len(known):
                smaller = self.fit(hardware, num_shard, scheme, share, tokens)
                known.append(self.judge(self.request, smaller, replicas))
            yield known[place]

    def _smaller_may_be_better(self, largest: Evaluation) -> bool:
        """Return whether the largest batch has a late first token, or requests that wait for room in the KV cache."""
        speed = largest.performance
        if speed is None:
            return _OVERLOADED.issuperset(problem.code for problem in largest.problems)
        late = any(item.limit.metric == _TTFT and not item.met for item in largest.outcomes)
        clients = traffic(self.request, largest.replicas).clients
        return late or (clients is not None and clients > (speed.saturation_concurrency or math.inf))

    def judge(self, request: Request, fit: Fit, replicas: int = 1) -> Evaluation:
        """Evaluate a fit under a request, whose load and limits may differ from this one's."""
        against = (*fit.problems, *self._coarse(fit.case.scheme))
        speed = self.speed(fit, traffic(request, replicas)) if not against or self._times_all(fit) else None
        found: tuple[LimitOutcome, ...] = ()
        if speed is not None:
            idle = request.arrivals_per_s is None
            speed = performance.together(speed, min(replicas, request.concurrency) if idle else replicas)
            found = service_level.outcomes(speed, request)
            against = (*against, *_slow(speed, found, request, replicas))
        keeps_up = speed is not None and not math.isinf(speed.ttft_ms)
        return Evaluation(
            fit=fit,
            replicas=replicas,
            quality=self._quality(fit.case.scheme),
            problems=against,
            performance=speed if keeps_up else None,
            outcomes=found if keeps_up else (),
            chance=min((item.chance for item in found), default=1.0),
            shortfall=service_level.shortfall(speed, found, request) if speed and keeps_up else service_level.NEVER,
        )

    def alone(self, fit: Fit) -> Shortfall:
        """Return how far a single request on an idle replica misses the default service level, at the median."""
        request = replaced(self.request, confidence=0.5)
        speed = self.speed(
            fit, Traffic(input_tokens=request.input_tokens, output_tokens=request.output_tokens, clients=1)
        )
        return service_level.shortfall(speed, service_level.outcomes(speed, request), request)

    def _quality(self, scheme: Scheme) -> MethodQuality:
        key = (scheme.name, scheme.lost_bits)
        if key not in self._qualities:
            self._qualities[key] = self.supply.quality.of(*key)
        return self._qualities[key]

    def fit(
        self, hardware: InstanceType, num_shard: int, scheme: Scheme, concurrency: int,
        prefill_tokens: int | None = None,
    ) -> Fit:  # fmt: skip
        """Return the fit of one replica with this share of the requests and this maximum of prompt tokens per step."""
        load = self.request.load
        return self.engine.fit(
            Case(
                model=self.model, hardware=hardware, num_shard=num_shard, scheme=scheme,
                load=replaced(load, concurrency=concurrency), pins=self.pins, release=self.release,
                allow_turing=self.request.allow_turing, prefill_tokens=prefill_tokens,
                variables_only=self.supply.hosting is not None,
            )
        )  # fmt: skip

    def _times_all(self, fit: Fit) -> bool:
        """Return whether a check needs speed; otherwise only working configurations get a prediction."""
        limited = self.request.arrivals_per_s is not None or any(not limit.default for limit in self.request.limits)
        return limited and fit.memory.fits

    def speed(self, fit: Fit, share: Traffic, kv_tokens: int | None = None) -> Performance:
        """Return the speed of one replica as clients see it. `kv_tokens` overrides the size of its KV cache."""
        hardware = fit.case.hardware
        capacity = fit.memory.kv_capacity_tokens if kv_tokens is None else kv_tokens
        return performance.predict(
            self.model, fit.case.scheme, hardware.accelerator, capacity, share, num_shard=fit.case.num_shard,
            interconnect=hardware.interconnect, constants=self.supply.speed, scheduling=fit.scheduling,
        )  # fmt: skip

    def _coarse(self, scheme: Scheme) -> Iterator[Problem]:
        """Yield the rejection for weights below the request's minimum quality."""
        request, found = self.request, self._quality(scheme)
        if request.quality != AUTO and is_below(found.grade, request.quality):
            yield Problem(
                code="quality_too_low",
                message=f"{scheme.name} weights are {found.grade}: below {request.quality}",
                data={"quality_class": found.grade, "wanted_quality": request.quality},
            )
        elif request.min_bits is not None and int(scheme.bits) < request.min_bits:
            yield Problem(
                code="quality_too_low",
                message=f"{scheme.name} weights have {int(scheme.bits)} bits, fewer than {request.min_bits}",
                data={"bits": int(scheme.bits), "wanted_bits": request.min_bits},
            )


def _order(evaluation: Evaluation) -> tuple[float, ...]:
    """Return the sort key, smaller is better; prices are equal. Ties go to the larger batch."""
    speed, missed = evaluation.performance, evaluation.shortfall
    if evaluation.problems or speed is None:
        return (True,)
    near = missed.answer if missed.unusable else missed.times
    return (False, missed.unusable, near, -round(speed.output_tokens_per_s, 1))


def _slow(speed: Performance, found: tuple[LimitOutcome, ...], request: Request, replicas: int) -> Iterator[Problem]:
    overloaded = service_level.overload(speed, request, replicas)
    if overloaded is not None:
        yield overloaded
    else:
        yield from service_level.problems(found, request)


def traffic(request: Request, replicas: int) -> Traffic:
    """Return one replica's share of the load, not counting idle replicas."""
    if request.arrivals_per_s is not None:
        return Traffic(
            input_tokens=request.input_tokens, output_tokens=request.output_tokens, kind="open",
            arrivals_per_s=request.arrivals_per_s / replicas, input_p95=request.input_p95,
        )  # fmt: skip
    return Traffic(
        input_tokens=request.input_tokens, output_tokens=request.output_tokens,
        clients=request.concurrency / min(replicas, request.concurrency), input_p95=request.input_p95,
    )  # fmt: skip


def _key(hardware: InstanceType, num_shard: int, scheme: Scheme, replicas: int) -> tuple[Any, ...]:
    """Return the key of a kind of hardware, for which all checks have the same result."""
    chip = hardware.accelerator
    return (
        chip.name, hardware.memory_bytes_per_accelerator, hardware.cpu_arch, hardware.partition,
        hardware.interconnect if num_shard > 1 else "none", min(hardware.accelerator_count, num_shard),
        num_shard, scheme.name, scheme.hub_id, replicas,
    )  # fmt: skip
