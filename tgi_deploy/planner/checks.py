"""Limits on speed that a configuration misses. What speaks against it otherwise is the engine's to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.values.plan import Performance
    from tgi_deploy.values.request import Request


def missed_limits(speed: Performance, request: Request) -> Iterator[str]:
    """Which of the request's limits on speed this misses: `ttft`, `tpot`, `throughput`."""
    if request.ttft_ms is not None and speed.ttft_ms > request.ttft_ms:
        yield "ttft"
    if request.tpot_ms is not None and speed.tpot_ms > request.tpot_ms:
        yield "tpot"
    if request.min_tokens_per_s is not None and speed.output_tokens_per_s < request.min_tokens_per_s:
        yield "throughput"


def check_time_to_first_token(speed: Performance, request: Request) -> Problem | None:
    if request.ttft_ms is None or "ttft" not in missed_limits(speed, request):
        return None
    seen = round(speed.ttft_ms)
    return Problem(
        code="ttft_too_slow",
        message=f"time to first token would be about {seen} ms, over {request.ttft_ms:g} ms",
        data={"ttft_ms": seen, "wanted_ttft_ms": request.ttft_ms},
    )


def check_time_per_token(speed: Performance, request: Request) -> Problem | None:
    if request.tpot_ms is None or "tpot" not in missed_limits(speed, request):
        return None
    seen = round(speed.tpot_ms, 1)
    return Problem(
        code="tpot_too_slow",
        message=f"an output token would take about {seen} ms, over {request.tpot_ms:g} ms",
        data={"tpot_ms": seen, "wanted_tpot_ms": request.tpot_ms},
    )


def check_throughput(speed: Performance, request: Request) -> Problem | None:
    wanted = request.min_tokens_per_s
    if wanted is None or "throughput" not in missed_limits(speed, request):
        return None
    seen = round(speed.output_tokens_per_s, 1)
    short = max(0.1, round(wanted - speed.output_tokens_per_s, 1))
    return Problem(
        code="throughput_too_low",
        message=(
            f"{request.concurrency} requests at once would get about {seen:g} output tokens/s in all, "
            f"{short:g} short of {wanted:g}"
        ),
        data={"output_tokens_per_s": seen, "wanted_tokens_per_s": wanted, "short_tokens_per_s": short},
    )


CHECKS: Final[tuple[Callable[[Performance, Request], Problem | None], ...]] = (
    check_time_to_first_token,
    check_time_per_token,
    check_throughput,
)


def speed_problems(speed: Performance, request: Request) -> tuple[Problem, ...]:
    """Return every limit that is missed, in check order."""
    found = (check(speed, request) for check in CHECKS)
    return tuple(problem for problem in found if problem is not None)
