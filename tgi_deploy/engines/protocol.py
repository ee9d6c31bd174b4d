"""Protocols for inference servers. Pure: facts in, values out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.values.container import Container, Health
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
    from tgi_deploy.values.serving import Access, Metrics


class ServingEngine(Protocol):
    """What is needed to run, monitor and prove an engine. `title` is its name in messages.

    Its log patterns are data: `profiles/engines/<name>/phases.json`.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def port(self) -> int:
        """The port inside its container."""

    @property
    def cache_path(self) -> str:
        """The path of the weights in its container."""

    @property
    def health(self) -> Health:
        """Its health check."""

    @property
    def pages(self) -> tuple[tuple[str, str], ...]:
        """Readable pages of a running server: paths with short descriptions."""

    @property
    def remedy_flags(self) -> tuple[tuple[str, str], ...]:
        """Facts used by remedies, with the flags that hold their values."""

    def release(self, version: str, documents: Mapping[str, Any]) -> Release:
        """Decode a release of profiles/engines/<name>/. Raises InputError naming file and key."""

    def container(self, fit: Fit) -> Container:
        """Return the container of a configuration."""

    def metrics(self, release: Release) -> Metrics:
        """Return the release's metrics."""

    def access(self, release: Release) -> Access:
        """Return how the release requires an API key, and which routes are open without it."""

    def probes(self, promise: Promise) -> tuple[ProbeRequest, ...]:
        """Return requests for health, identity, a short answer, and the planned worst case, in order."""

    def read_reply(self, probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
        """Interpret a reply.

        A failure inside a stream with status 200 is a problem. A missing chat template is only a warning.
        """

    def question(
        self, model_id: str, text: str, max_tokens: int, *, chat: bool = False, streamed: bool = False
    ) -> ProbeRequest:
        """Return a request with a bare prompt, or with a `chat` of one message."""

    def read_piece(self, probe: ProbeRequest, event: str) -> str:
        """Return the text in a stream event, empty if none."""

    def client_line(self, url: str, key_variable: str | None, asked: ProbeRequest) -> str:
        """Return a line of Python that sends the request, with the API key from a variable."""


@runtime_checkable
class Invocable(Protocol):
    """An engine for services that forward all requests to a single route."""

    def invocation(self, probe: ProbeRequest) -> ProbeRequest | None:
        """Return the request to that route that gets the same answer; None if there is none.

        It is streamed if the whole answer may take long.
        """

    def as_answered(self, probe: ProbeRequest, reply: HttpReply) -> HttpReply:
        """Return the reply to an invocation in the form of the probe's own route."""


class Engine(ServingEngine, Invocable, Protocol):
    """An engine that plans support. Pure: it judges configurations and never raises for a bad one."""

    @property
    def pin_example(self) -> str:
        """An example for `--set`: a flag without its dashes, and a value."""

    @property
    def edits(self) -> tuple[str, ...]:
        """The names of setting changes that fix failures (`profiles/diagnosis/heal.json`)."""

    def schemes(self, profile: Profile, release: Release, wanted: str) -> tuple[Scheme, ...]:
        """Return the release's schemes, best quality first; only the wanted one if given, even if unknown."""

    def shard_counts(self, model: ModelSpec, release: Release, available: int) -> tuple[int, ...]:
        """Return the shard counts to judge for one replica, smallest first."""

    def check_pins(self, pins: Pins, load: Load, model: ModelSpec, release: Release) -> tuple[Problem, ...]:
        """Return what the release's parser and validator would reject, in terms of the user's options."""

    def longest_context(self, model: ModelSpec, pins: Pins) -> int:
        """Return the model's context length, as extended by pinned flags."""

    def fit(self, case: Case) -> Fit:
        """Return the settings, memory parts and all problems of a configuration."""

    def startup(self, settings: EngineSettings, rates: Rates) -> tuple[StartupPhase, ...]:
        """Return the phases from the container's start to the first answer, in order."""

    def edit(self, name: str, settings: EngineSettings) -> RequestEdit:
        """Return the change `name`, one of `edits`, for a failed configuration."""

    def default_memory(self, run: DefaultRun, release: Release) -> MemoryBudget:
        """Return the memory of a release with its default settings."""

    def default_prefill_tokens(self, run: DefaultRun, release: Release) -> int:
        """Return the prompt tokens per step of a release with its default settings."""
