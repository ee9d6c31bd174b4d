"""Proves that an endpoint serves what was planned: health, identity, then one plain, one streamed, one chat request.

Engines define the requests and interpret the replies; this compares them with the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from tgi_deploy.errors import Failure, NotHealthyError, Problem, warning
from tgi_deploy.values.probing import Identity, ProbeRequest, Reply

if TYPE_CHECKING:
    from tgi_deploy.engines.protocol import ServingEngine
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.values.probing import HttpReply, Promise

_T = TypeVar("_T")
_UNAUTHORIZED: Final = 401
_SHOWN_CHARS: Final = 300
# PyTorch's device name for NVIDIA and AMD accelerators.
_DEVICE: Final = "cuda"
_LEAST_GAPS: Final = 8
_SLOW_TRIES: Final = 3
_LOOK_HINT: Final = "read the engine's log with 'tgi-deploy logs NAME'"


class EngineClient(Protocol):
    """A client of one engine."""

    def ask(self, probe: ProbeRequest, on_event: Callable[[str], None] = ...) -> HttpReply:
        """Return its response; `on_event` gets the events of a stream as they arrive.

        Raises NotHealthyError `engine_unreachable` without a response.
        """


@runtime_checkable
class PartialClient(Protocol):
    """A client that does not reach all routes of its engine."""

    def reaches(self, probe: ProbeRequest) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedService:
    """What the plan promised. `versions` are those that the release may report; empty: any.

    `chat` False: not a chat model, so a missing chat template is not a warning.
    `slowest_token_ms`: an engine that takes longer per token can't run on the planned accelerators; None: unknown.
    """

    promise: Promise
    versions: tuple[str, ...] = ()
    chat: bool = True
    slowest_token_ms: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofStep:
    name: str
    took_ms: float
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofReport:
    """All steps passed. `answer` is the text of the plain request."""

    steps: tuple[ProofStep, ...]
    answer: str
    identity: Identity
    first_token_ms: float | None = None
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A client of an endpoint, and the engine that is expected there."""

    client: EngineClient
    engine: ServingEngine

    def reaches(self, probe: ProbeRequest) -> bool:
        """Return whether the client can send it."""
        return not isinstance(self.client, PartialClient) or self.client.reaches(probe)

    def ask(self, probe: ProbeRequest) -> tuple[HttpReply, Reply | Problem]:
        """Return the response and its meaning; a returned problem is only a warning.

        Raises:
            NotHealthyError: `<step>_failed`, `unauthorized` or `engine_unreachable`.
        """
        answer = self.client.ask(probe)
        return answer, self.meaning(probe, answer)

    def meaning(self, probe: ProbeRequest, answer: HttpReply) -> Reply | Problem:
        """Return what a response means. Raises NotHealthyError `<step>_failed` or `unauthorized`."""
        reply = self.engine.read_reply(probe, answer)
        if isinstance(reply, Problem) and reply.severity == "error":
            raise _failed(probe.step, answer.status, reply.message)
        return reply


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """The result of one step."""

    detail: str = ""
    answer: str = ""
    identity: Identity | None = None
    first_token_ms: float | None = None
    warning: Problem | None = None


def prove(endpoint: Endpoint, expected: ExpectedService, *, clock: Clock) -> ProofReport:
    """Run the short checks one after the other.

    Raises:
        NotHealthyError: `wrong_model`, `limits_differ`, `wrong_version`, `wrong_device`, `implausibly_slow`,
            `unauthorized`, `engine_unreachable`, or `<step>_failed` for the step health, info, generate, stream or
            chat.
    """
    found: dict[str, _Found] = {}
    steps = []
    for name, probes in groupby(endpoint.engine.probes(expected.promise), key=lambda probe: probe.step):
        if name not in _STEPS:
            break
        asked = tuple(probe for probe in probes if endpoint.reaches(probe))
        if not asked:
            found[name] = _Found(warning=_unproved(name))
            continue
        found[name], took_ms = timed(clock, partial(_STEPS[name], endpoint, asked, expected))
        steps.append(ProofStep(name=name, took_ms=took_ms, detail=found[name].detail))
    return ProofReport(
        steps=tuple(steps),
        answer=found["generate"].answer,
        identity=found["info"].identity or Identity(),
        first_token_ms=found["stream"].first_token_ms,
        warnings=tuple(item.warning for item in found.values() if item.warning is not None),
    )


def _unproved(step: str) -> Problem:
    """Return the warning about a step that the cloud's API does not allow."""
    code, subject = _UNPROVED.get(step, (f"{step}_unproved", step))
    return warning(
        code,
        f"the cloud's API gives no access to the engine's {subject}: this image and these settings were requested,"
        " but can't be verified",
    )


_UNPROVED: Final = {"info": ("info_unproved", "own report of its model and limits")}


def timed(clock: Clock, ask: Callable[[], _T]) -> tuple[_T, float]:
    """Return the response and how many milliseconds it took."""
    began = clock.monotonic()
    answer = ask()
    return answer, round((clock.monotonic() - began) * 1000, 3)


def _plain(endpoint: Endpoint, probes: tuple[ProbeRequest, ...], expected: ExpectedService) -> _Found:
    """Return the result of the last request."""
    found = _Found()
    for probe in probes:
        _, reply = endpoint.ask(probe)
        if isinstance(reply, Problem):
            found = _lacking(reply, expected)
        else:
            found = _Found(detail=reply.detail, answer=reply.text)
    return found


def _lacking(problem: Problem, expected: ExpectedService) -> _Found:
    """Return the warning for a chat model without a chat template."""
    detail = "no chat template"
    if not expected.chat:
        return _Found(detail=detail)
    message = f"{expected.promise.model_id} has {detail}: {problem.message}"
    return _Found(detail=detail, warning=Problem(code=problem.code, severity="warning", message=message))


def _info(endpoint: Endpoint, probes: tuple[ProbeRequest, ...], expected: ExpectedService) -> _Found:
    """Merge what the engine reports about itself on several routes."""
    replies = [reply for _, reply in map(endpoint.ask, probes) if isinstance(reply, Reply)]
    known = {
        name: value
        for identity in (reply.identity for reply in replies if reply.identity is not None)
        for name in identity.__struct_fields__
        if (value := getattr(identity, name)) is not None
    }
    identity = Identity(**known)
    for check in (_check_model, _check_limits, _check_version, _check_device):
        check(identity, expected)
    return _Found(detail=", ".join(reply.detail for reply in replies), identity=identity)


def _check_model(identity: Identity, expected: ExpectedService) -> None:
    served, planned = identity.model_id, expected.promise.model_id
    if served != planned:
        raise NotHealthyError(
            "wrong_model",
            f"checking the endpoint: it serves {served}, planned {planned}",
            hint="something else answers at this address: 'tgi-deploy status NAME' shows what runs",
            data={"expected": planned, "served": served},
        )


def _check_limits(identity: Identity, expected: ExpectedService) -> None:
    """Check the token limits. Not every engine limits prompts separately."""
    promise = expected.promise
    planned = {"max_input_tokens": promise.max_input_tokens, "max_total_tokens": promise.max_total_tokens}
    served = {"max_input_tokens": identity.max_input_tokens, "max_total_tokens": identity.max_total_tokens}
    differing = [key for key in planned if served[key] not in (planned[key], None)]
    if differing or identity.max_total_tokens is None:
        differences = ", ".join(f"{key} is {served[key]}, planned {planned[key]}" for key in planned)
        raise NotHealthyError(
            "limits_differ",
            f"checking the endpoint's token limits: {differences}",
            hint="the engine does not run with the plan's options: remove it and deploy again",
            data={"expected": planned, "served": served},
        )


def _check_version(identity: Identity, expected: ExpectedService) -> None:
    served = identity.version
    if expected.versions and served not in expected.versions:
        raise NotHealthyError(
            "wrong_version",
            f"checking the endpoint: the engine's version is {served}, planned {' or '.join(expected.versions)}",
            hint="another image runs there: remove it and deploy again",
            data={"expected": list(expected.versions), "served": served},
        )


def _check_device(identity: Identity, _expected: ExpectedService) -> None:
    """Check the model's device, which not every release reports."""
    if identity.device not in (_DEVICE, None):
        raise NotHealthyError(
            "wrong_device",
            f"checking the endpoint: the model is on the device {identity.device!r}, planned {_DEVICE!r}",
            hint="if 'tgi-deploy exec NAME -- nvidia-smi' fails, bring the deployment up on a new machine",
            data={"expected": _DEVICE, "served": identity.device},
        )


def _stream(endpoint: Endpoint, probes: tuple[ProbeRequest, ...], expected: ExpectedService) -> _Found:
    """Time a stream, repeating one that is too slow, since the engine may be cold at first."""
    tries = [endpoint.ask(probes[0])]
    while (slow_ms := _implausible(tries[-1][0], expected)) is not None:
        if len(tries) == _SLOW_TRIES:
            raise _too_slow(slow_ms, expected)
        tries.append(endpoint.ask(probes[0]))
    answer, reply = tries[-1]
    speed_ms = token_ms(answer)
    shown = [reply.detail] if isinstance(reply, Reply) else []
    shown += [] if speed_ms is None else [f"{speed_ms:.3g} ms a token"]
    return _Found(detail=", ".join(shown), first_token_ms=first_event_ms(tries[0][0]))


def first_event_ms(answer: HttpReply) -> float | None:
    return answer.arrivals_ms[0] if answer.arrivals_ms else None


def token_ms(answer: HttpReply) -> float | None:
    """Return the time between two tokens, from the fastest quarter of the gaps; None with too few.

    Prefills of other requests and a cold start lengthen most gaps, and a late reader shortens some; the quartile is
    robust against both.
    """
    gaps = sorted(after - before for before, after in pairwise(answer.arrivals_ms))
    return round(gaps[len(gaps) // 4], 3) if len(gaps) >= _LEAST_GAPS else None


def _implausible(answer: HttpReply, expected: ExpectedService) -> float | None:
    """Return the milliseconds per token if they are too slow for the planned accelerators."""
    taken_ms, slowest_ms = token_ms(answer), expected.slowest_token_ms
    return taken_ms if taken_ms is not None and slowest_ms is not None and taken_ms > slowest_ms else None


def _too_slow(taken_ms: float, expected: ExpectedService) -> NotHealthyError:
    return NotHealthyError(
        "implausibly_slow",
        f"checking the endpoint's speed: it takes {taken_ms:.0f} ms per token; even a cold engine on the planned "
        f"accelerators takes less than {expected.slowest_token_ms:.0f} ms",
        hint="'tgi-deploy exec NAME -- nvidia-smi' shows what uses the GPUs; the engine may run on the CPU",
        data={"token_ms": taken_ms, "slowest_token_ms": expected.slowest_token_ms},
        failure=Failure(step="stream"),
    )


def _failed(step: str, status: int, answered: str) -> NotHealthyError:
    """Return the error for a failed step."""
    answered = " ".join(answered.split())[:_SHOWN_CHARS] or "nothing"
    if status == _UNAUTHORIZED:
        return NotHealthyError(
            "unauthorized",
            f"checking the endpoint ({step}): it rejects the API key (401)",
            hint="set the variable of --api-key-from-env to the key that the engine was started with",
            data={"status": status},
            failure=Failure(step=step),
        )
    return NotHealthyError(
        f"{step}_failed",
        f"checking the endpoint ({step}): it answered {status}: {answered}",
        hint=_LOOK_HINT,
        data={"status": status},
        failure=Failure(step=step),
    )


_Step = Callable[[Endpoint, tuple[ProbeRequest, ...], ExpectedService], _Found]
_STEPS: Final[Mapping[str, _Step]] = {
    "health": _plain,
    "info": _info,
    "generate": _plain,
    "stream": _stream,
    "chat": _plain,
}
