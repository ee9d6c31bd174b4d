"""The engine Text Generation Inference (TGI)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.engines.tgi import fit, invocations, kernels, memory, probes, schemes
from tgi_deploy.engines.tgi.container import CACHE_PATH, HEALTH, PORT, container
from tgi_deploy.engines.tgi.pins import EDITS, edit, flag_problems, longest_context
from tgi_deploy.engines.tgi.release import NAME, TgiRelease, read_release
from tgi_deploy.engines.tgi.startup import startup
from tgi_deploy.values.base import Value
from tgi_deploy.values.container import Health
from tgi_deploy.values.serving import Access, Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.values.container import Container
    from tgi_deploy.values.engine import (
        Case,
        DefaultRun,
        EngineSettings,
        Fit,
        Load,
        MemoryBudget,
        Pins,
        Rates,
        Release,
        RequestEdit,
        Scheme,
        StartupPhase,
    )
    from tgi_deploy.values.model import ModelSpec, Profile
    from tgi_deploy.values.probing import HttpReply, ProbeRequest, Promise, Reply


class Tgi(Value, frozen=True, kw_only=True):
    """TGI. Its methods accept only releases that it decoded."""

    name: str = NAME
    title: str = "TGI"
    port: int = PORT
    cache_path: str = CACHE_PATH
    health: Health = HEALTH
    pages: tuple[tuple[str, str], ...] = probes.PAGES
    remedy_flags: tuple[tuple[str, str], ...] = (("prefill", "--max-batch-prefill-tokens"),)
    edits: tuple[str, ...] = EDITS
    pin_example: str = "max-best-of=4"

    def release(self, version: str, documents: Mapping[str, Any]) -> TgiRelease:
        return read_release(version, documents)

    def schemes(self, profile: Profile, release: Release, wanted: str) -> tuple[Scheme, ...]:
        return schemes.schemes(profile, _own(release), wanted)

    def shard_counts(self, model: ModelSpec, release: Release, available: int) -> tuple[int, ...]:  # noqa: ARG002 -- every count is judged, and refused with its reason
        return kernels.shard_counts(available)

    def check_pins(self, pins: Pins, load: Load, model: ModelSpec, release: Release) -> tuple[Problem, ...]:
        """Check the pins; limits are compared only if all flags are valid."""
        wrong = tuple(flag_problems(pins.flags, _own(release)))
        return wrong or tuple(fit.contradictions(pins, load, model, _own(release)))

    def longest_context(self, model: ModelSpec, pins: Pins) -> int:
        return longest_context(model, pins.flags)

    def fit(self, case: Case) -> Fit:
        return fit.fit(case, _own(case.release))

    def container(self, fit: Fit) -> Container:
        return container(fit, _own(fit.case.release))

    def startup(self, settings: EngineSettings, rates: Rates) -> tuple[StartupPhase, ...]:
        return startup(settings, rates)

    def metrics(self, release: Release) -> Metrics:
        own = _own(release)
        return Metrics(
            path=own.metrics_path, request_counters=own.request_counters, queued="tgi_queue_size",
            running="tgi_batch_current_size",
        )  # fmt: skip

    def access(self, release: Release) -> Access:
        flag = release.flags.get("--api-key")
        return Access(key_variable=flag.env if flag else None, guarded_routes=probes.GUARDED if flag else ())

    def edit(self, name: str, settings: EngineSettings) -> RequestEdit:
        return edit(name, settings)

    def probes(self, promise: Promise) -> tuple[ProbeRequest, ...]:
        return tuple(probes.probes(promise))

    def read_reply(self, probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
        return probes.read_reply(probe, reply)

    def invocation(self, probe: ProbeRequest) -> ProbeRequest | None:
        return invocations.invocation(probe)

    def as_answered(self, probe: ProbeRequest, reply: HttpReply) -> HttpReply:
        return invocations.as_answered(probe, reply)

    def question(
        self,
        model_id: str,  # noqa: ARG002 -- there is one model
        text: str,
        max_tokens: int,
        *,
        chat: bool = False,
        streamed: bool = False,
    ) -> ProbeRequest:
        return probes.question(text, max_tokens, chat=chat, streamed=streamed)

    def read_piece(self, probe: ProbeRequest, event: str) -> str:
        return probes.read_piece(probe, event)

    def client_line(self, url: str, key_variable: str | None, asked: ProbeRequest) -> str:
        return probes.client_line(url, key_variable, asked)

    def default_memory(self, run: DefaultRun, release: Release) -> MemoryBudget:
        return memory.default_memory(run, _own(release))

    def default_prefill_tokens(self, run: DefaultRun, release: Release) -> int:
        return memory.own_prefill_tokens(run, _own(release))


def _own(release: Release) -> TgiRelease:
    if not isinstance(release, TgiRelease):
        raise TypeError(f"TGI got a release of {release.name}")
    return release
