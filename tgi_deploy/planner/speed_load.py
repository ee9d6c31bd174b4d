"""Client views of a deployment under load, from the seconds of `speed_work`.

Work is conserved. In a closed loop of b requests every request sees, between its arrival and its last token, the
prefills of all b and its own output's steps:

    e2e = b x prompt + out x step = ttft + out x tpot

so what a request does not wait for before its first token it waits for between its tokens. An arriving request
waits for the prompts that share its chunk (they all get their first token when the chunk is done) and, the
more of the time goes to prefills, for half of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from tgi_deploy.planner.speed_work import Work

LoadKind = Literal["static", "batch1", "burst", "closed_loop", "offline", "server", "open"]

_TOGETHER: Final = frozenset({"static", "batch1"})
_SERVED: Final = frozenset({"burst", "closed_loop", "server", "open"})
_DRIFT_TOKENS: Final = 2000.0  # output length over which requests that started together drift apart
_P95: Final = 1.645  # standard deviations
_WORST_WAIT: Final = 1.9  # 95th percentile of a uniform wait, relative to its mean
_P95_OF_DELAYS: Final = 2.0  # excess of an exponential delay's 95th percentile over its mean, relative to the mean
_BUSIEST: Final = 0.99
_ONSET: Final = 3.0  # how sharply stalls set in once prefills fill the time
_LATENCY_BOUND_SHARE: Final = 0.92  # MLPerf v4.1: server rate relative to offline rate of one system, 0.88 to 0.97


class Traffic(Frozen, frozen=True, kw_only=True):
    """Requests of `input_tokens` and `output_tokens`, `clients` at once (None: as many as the engine takes).

    One prompt in twenty is longer than `input_p95`, if known.

    With kind `open`, `arrivals_per_s` arrive regardless of running requests. With kind `burst`, all arrive at once and
    nothing follows; the time until the last answer is measured.
    """

    input_tokens: float
    output_tokens: float
    clients: float | None = None
    kind: LoadKind = "closed_loop"
    arrivals_per_s: float = 0.0
    input_p95: float | None = None


class Timing(Frozen, frozen=True, kw_only=True):
    """Seconds, requests and tokens per second of one replica. `batch` requests run at once; the other clients wait.

    Medians over requests, except those with `p95`.
    """

    ttft_s: float
    ttft_p95_s: float
    tpot_s: float
    tpot_p95_s: float
    e2e_s: float
    batch: float
    clients: float

    def requests_per_s(self) -> float:
        """Return the rate; `e2e_s` includes the wait for a place in the batch, so all clients count."""
        return self.clients / self.e2e_s


def fitting_batch(work: Work, traffic: Traffic, kv_tokens: float, *, limited: bool = True) -> float:
    """Return the largest batch, limited by the KV cache and the engine's own limit."""
    each = traffic.input_tokens + traffic.output_tokens * work.engine.reserve
    fitting = max(1.0, kv_tokens / max(1.0, each))
    return min(work.max_batch, fitting) if limited else fitting


def timing(work: Work, traffic: Traffic, kv_tokens: float) -> Timing:
    """Return the times that clients observe."""
    largest = fitting_batch(work, traffic, kv_tokens, limited=traffic.kind not in _TOGETHER)
    if traffic.kind == "open":
        return _open(work, traffic, largest)
    clients = largest if traffic.clients is None else traffic.clients
    batch = max(1.0, min(clients, largest))
    if traffic.kind in _TOGETHER:
        return _together(work, traffic, batch, clients)
    if traffic.kind == "burst":
        return _burst(work, traffic, batch, clients)
    return _continuous(work, traffic, batch, clients)


def unsure(work: Work, traffic: Traffic, seen: Timing, kind: str) -> float:
    """Return the share of a figure's time that is hard to predict.

    That is everything except streaming in steps (weights and KV cache, bytes over bandwidth) and, for a first token,
    except the request's own prefill: products, hosts, links and other requests differ more between clusters.
    """
    if kind == "first token":
        return 1 - work.prefill_s(1, traffic.input_tokens) / seen.ttft_s
    steps_per_s = 1 / seen.tpot_s
    if kind == "throughput":
        steps_per_s = seen.requests_per_s() * traffic.output_tokens / seen.batch
    context = traffic.input_tokens + traffic.output_tokens / 2
    return 1 - steps_per_s * (work.stream_s(seen.batch) + work.cache_s(seen.batch, context))


def _together(work: Work, traffic: Traffic, batch: float, clients: float) -> Timing:
    prefill = work.prefill_s(batch, traffic.input_tokens)
    step = work.step_s(batch, traffic.input_tokens + traffic.output_tokens / 2)
    ttft = prefill + work.engine.first_ms * 1e-3
    e2e = (prefill + traffic.output_tokens * step) * max(1.0, clients / batch)
    return Timing(
        ttft_s=ttft, ttft_p95_s=ttft, tpot_s=step, tpot_p95_s=step, e2e_s=e2e, batch=batch, clients=max(batch, clients)
    )


def _burst(work: Work, traffic: Traffic, batch: float, clients: float) -> Timing:
    """Predict a burst: nothing runs when the first prompts arrive. Requests beyond the batch wait for a place."""
    prefill = work.prefill_s(batch, traffic.input_tokens)
    step = work.step_s(batch, traffic.input_tokens + traffic.output_tokens / 2, served=True)
    wave = prefill + traffic.output_tokens * step
    waves = max(1.0, clients / batch)
    chunks = max(1.0, math.ceil(batch * traffic.input_tokens / work.chunk_tokens))
    first = _first_s(work, traffic)
    return Timing(
        ttft_s=first + wave * (waves - 1) / 2 + prefill * (chunks + 1) / (2 * chunks),
        ttft_p95_s=first + wave * (waves - 1) + prefill,
        tpot_s=step,
        tpot_p95_s=step,
        e2e_s=first + wave * waves,
        batch=batch,
        clients=max(batch, clients),
    )


class _Parts(Frozen, frozen=True, kw_only=True):
    """The seconds of a request in a batch: its own prefill, the others', and the steps of its output."""

    alone: float
    others: float
    step: float
    outputs: float

    @property
    def total(self) -> float:
        return self.alone + self.others + self.outputs * self.step


def _parts(work: Work, traffic: Traffic, batch: float) -> _Parts:
    prompts = batch - 1
    # Chunks share decoding steps; chunks without one read the weights again.
    chunks = prompts * traffic.input_tokens / work.chunk_tokens - traffic.output_tokens
    sweeps = chunks * work.stream_s(work.chunk_tokens) if chunks > 0 else 0.0
    return _Parts(
        alone=work.prefill_s(1, traffic.input_tokens),
        others=prompts * work.prompt_s(traffic.input_tokens) + sweeps,
        step=work.step_s(batch, traffic.input_tokens + traffic.output_tokens / 2, served=traffic.kind in _SERVED),
        outputs=max(1.0, traffic.output_tokens),
    )


def _continuous(work: Work, traffic: Traffic, batch: float, clients: float) -> Timing:
    parts = _parts(work, traffic, batch)
    slowdown = _LATENCY_BOUND_SHARE if traffic.kind == "server" else 1.0
    e2e = parts.total / slowdown
    waiting = min(parts.others, _waiting_s(work, traffic, batch, parts))
    tpot = (e2e - parts.alone - waiting) / parts.outputs
    queued = e2e * max(0.0, clients - batch) / batch
    ttft = parts.alone + waiting + queued + _first_s(work, traffic)
    return Timing(
        ttft_s=ttft,
        # A median wait for half of the others means a worst-case wait for nearly all of them.
        ttft_p95_s=ttft + math.hypot(min(parts.others, _WORST_WAIT * waiting) - waiting, _longer_s(work, traffic)),
        tpot_s=tpot,
        tpot_p95_s=tpot + _uneven_s(parts, batch - 1),
        e2e_s=e2e + queued,
        batch=batch,
        clients=max(batch, clients),
    )


def _first_s(work: Work, traffic: Traffic) -> float:
    front_ms = work.engine.front_ms if traffic.kind in _SERVED else 0.0
    return (work.engine.first_ms + front_ms) * 1e-3


def _longer_s(work: Work, traffic: Traffic) -> float:
    """Return the extra prefill time of a long prompt. Long prompts and long waits rarely coincide: squares add up."""
    if traffic.input_p95 is None:
        return 0.0
    return work.prefill_s(1, traffic.input_p95) - work.prefill_s(1, traffic.input_tokens)


def _uneven_s(parts: _Parts, prefills: float) -> float:
    """Return the extra time per token at the 95th percentile, as the number of prefills has a Poisson distribution."""
    return _P95 * math.sqrt(prefills) * parts.others / max(1.0, prefills) / parts.outputs if prefills > 0 else 0.0


def _waiting_s(work: Work, traffic: Traffic, batch: float, parts: _Parts) -> float:
    """Return the wait for other prompts before the first token.

    Requests that ended in one step are followed by requests that enter in one step, if a step lasts longer than
    clients take to send; over a long output they drift apart. Later ones rarely coincide while decoding takes most of
    the time. If prefills fill it, decoding stalls until the last one is done, all answers end together, and all prompts
    arrive together again.
    """
    prompt = work.prompt_products_s(traffic.input_tokens)
    mates = min(batch, max(1.0, work.chunk_tokens / traffic.input_tokens)) - 1
    drifted = 1 + traffic.output_tokens / _DRIFT_TOKENS
    together = parts.step / (parts.step + work.engine.jitter_ms * 1e-3) / drifted
    host = together * (batch - 1) / 2 * work.prompt_host_s()
    behind = batch - 1 - together * mates
    filled = behind * prompt / (parts.outputs * parts.step)
    onset = math.pow(filled, _ONSET)
    marching = onset / (1 + onset)
    apart = max(min(behind / 2, (1 - together) * filled), marching * behind / 2)
    return host + prompt * (together * mates + apart)


def _open(work: Work, traffic: Traffic, largest: float) -> Timing:
    """Predict independent arrivals.

    Prefills queue for the accelerators (M/D/1), requests for a place in the batch (M/M/c, with Sakasegawa's
    approximation of the probability of waiting).
    """
    rate, full = traffic.arrivals_per_s, _parts(work, traffic, largest)
    most = largest / full.total
    load = rate / most
    if load >= 1:
        tpot = (full.others + full.outputs * full.step) / full.outputs
        return Timing(
            ttft_s=math.inf, ttft_p95_s=math.inf, tpot_s=tpot, tpot_p95_s=tpot + _uneven_s(full, largest - 1),
            e2e_s=full.total, batch=largest, clients=largest,
        )  # fmt: skip
    batch = _running(work, traffic, largest)
    parts = _parts(work, traffic, batch)
    own = work.prompt_s(traffic.input_tokens)
    busy = min(_BUSIEST, rate * own)
    delay = parts.step / 2 + busy * own / (1 - busy) / 2
    delay += _held_s(rate, work.engine.waiting_steps * parts.step)
    first = parts.alone + delay + _first_s(work, traffic)
    unlucky = math.hypot(_P95_OF_DELAYS * delay, _longer_s(work, traffic))
    waits, drain_s = load ** (math.sqrt(2 * (largest + 1)) - 1), 1 / (most * (1 - load))
    tpot = parts.step + parts.others / parts.outputs
    return Timing(
        ttft_s=first + _beyond(waits, 0.5) * drain_s,
        ttft_p95_s=first + unlucky + _beyond(waits, 0.05) * drain_s,
        tpot_s=tpot,
        tpot_p95_s=tpot + _uneven_s(parts, batch - 1),
        e2e_s=(e2e := first + parts.others + parts.outputs * parts.step + waits * drain_s),
        batch=batch,
        clients=rate * e2e,
    )


def _held_s(rate: float, held: float) -> float:
    """Return the mean wait if prompts enter at least `held` seconds after the previous one."""
    expected = rate * held
    return held / 2 * expected / (expected + math.exp(-expected))


def _beyond(waits: float, share: float) -> float:
    """Return the delay that a `share` of the requests exceed, in means, if `waits` of them wait exponentially long."""
    return math.log(waits / share) if waits > share else 0.0


def _running(work: Work, traffic: Traffic, largest: float) -> float:
    """Return the number of concurrent requests, itself included: 1 + rate x time, nearly linear in their number."""
    alone = _parts(work, traffic, 1.0).total
    each = work.prompt_s(traffic.input_tokens)
    batch = 1.0
    for _ in range(3):
        left = 1 - traffic.arrivals_per_s * each
        batch = min(largest, 1 + traffic.arrivals_per_s * alone / left) if left > 0 else largest
        if batch > 1:
            each = (_parts(work, traffic, batch).total - alone) / (batch - 1)
    return batch
