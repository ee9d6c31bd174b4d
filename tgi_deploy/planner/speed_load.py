"""Client views of a deployment under load, from the seconds of `speed_work`.

Work is conserved. In a closed loop of b requests every request sees, between its arrival and its last token, the
prefills of all b and its own output's steps:

    e2e = b x prompt + out x step = ttft + out x tpot

so what a request does not wait for before its first token it waits for between its tokens. An arriving request
waits for the prompts that share its chunk (they all get their first token when the chunk is done) and, the
more of the time goes to prefills, for half of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from tgi_deploy.planner.speed_work import Work

LoadKind = Literal["static", "batch1", "closed_loop", "offline", "server"]

_TOGETHER: Final = frozenset({"static", "batch1"})
_DRIFT_TOKENS: Final = 2000.0  # output length over which requests that started together lose step
_LATENCY_BOUND_SHARE: Final = 0.92  # MLPerf v4.1: server against offline rate of one system, 0.88 to 0.97


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Requests of `input_tokens` and `output_tokens`, `clients` at once (None: as many as the engine takes)."""

    input_tokens: float
    output_tokens: float
    clients: float | None
    kind: LoadKind = "closed_loop"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds, requests and tokens a second of one replica. `batch` is what runs at once; the other clients wait."""

    ttft_s: float
    tpot_s: float
    e2e_s: float
    batch: float
    clients: float

    def requests_per_s(self) -> float:
        """`e2e_s` holds the waiting for a place in the batch, so all clients count."""
        return self.clients / self.e2e_s


def fitting_batch(work: Work, traffic: Traffic, kv_tokens: float, *, limited: bool = True) -> float:
    """The largest batch: by KV cache and, where the engine forms the batches itself, by its limit."""
    each = traffic.input_tokens + traffic.output_tokens * work.engine.reserve
    fitting = max(1.0, kv_tokens / max(1.0, each))
    return min(work.engine.max_batch, fitting) if limited else fitting


def timing(work: Work, traffic: Traffic, kv_tokens: float) -> Timing:
    """What a client sees, medians."""
    largest = fitting_batch(work, traffic, kv_tokens, limited=traffic.kind not in _TOGETHER)
    clients = largest if traffic.clients is None else traffic.clients
    batch = max(1.0, min(clients, largest))
    if traffic.kind in _TOGETHER:
        return _together(work, traffic, batch, clients)
    return _continuous(work, traffic, batch, clients)


def _together(work: Work, traffic: Traffic, batch: float, clients: float) -> Timing:
    prefill = work.prefill_s(batch, traffic.input_tokens)
    step = work.step_s(batch, traffic.input_tokens + traffic.output_tokens / 2)
    ttft = prefill + work.engine.first_ms * 1e-3
    e2e = (prefill + traffic.output_tokens * step) * max(1.0, clients / batch)
    return Timing(ttft_s=ttft, tpot_s=step, e2e_s=e2e, batch=batch, clients=max(batch, clients))


def _continuous(work: Work, traffic: Traffic, batch: float, clients: float) -> Timing:
    step = work.step_s(batch, traffic.input_tokens + traffic.output_tokens / 2)
    alone = work.prefill_s(1, traffic.input_tokens)
    others = (batch - 1) * work.prompt_s(traffic.input_tokens)
    decoding = max(1.0, traffic.output_tokens) * step
    e2e = alone + others + decoding
    if traffic.kind == "server":
        e2e /= _LATENCY_BOUND_SHARE
    busy = others / (alone + others + decoding)
    waiting = min(others, _waiting_s(work, traffic, batch, step_s=step, busy=busy))
    tpot = (e2e - alone - waiting) / max(1.0, traffic.output_tokens)
    queued = e2e * max(0.0, clients - batch) / batch
    ttft = alone + waiting + queued + work.engine.first_ms * 1e-3
    return Timing(ttft_s=ttft, tpot_s=tpot, e2e_s=e2e + queued, batch=batch, clients=max(batch, clients))


def _waiting_s(work: Work, traffic: Traffic, batch: float, *, step_s: float, busy: float) -> float:
    """Waiting for other prompts before the first token. `busy` is the share of time that goes to their prefills.

    Requests that ended in one step are followed by requests that enter in one step, if a step lasts longer than
    clients take to send; over a long output they drift apart.
    """
    prompt = work.prompt_products_s(traffic.input_tokens)
    chunk_mates = min(batch, max(1.0, work.chunk_tokens / traffic.input_tokens)) - 1
    drifted = 1 + traffic.output_tokens / _DRIFT_TOKENS
    together = work.engine.lock * step_s / (step_s + work.engine.jitter_ms * 1e-3) / drifted
    behind = (batch - 1 - together * chunk_mates) / 2
    host = together * (batch - 1) / 2 * work.prompt_host_s()
    return host + prompt * (together * chunk_mates + work.engine.queue * busy * behind)
