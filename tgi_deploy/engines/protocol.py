"""What an inference server is, to the rest of the program. Pure: facts in, values out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

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
    """What is needed of an engine to run it, watch it and prove it. `title` is its name as messages write it.

    What its log shows is data: `profiles/engines/<name>/phases.json`.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def port(self) -> int:
        """Return the port inside its container."""

    @property
    def cache_path(self) -> str:
        """Return where its container keeps weights."""

    @property
    def health(self) -> Health:
        """Return how it is asked whether it serves."""

    @property
    def pages(self) -> tuple[tuple[str, str], ...]:
        """Return what a person can read of a running server: paths, each with a few words on its content."""

    @property
    def remedy_flags(self) -> tuple[tuple[str, str], ...]:
        """Return facts that remedies of failures use, each with the flag whose value it is."""

    def release(self, version: str, documents: Mapping[str, Any]) -> Release:
        """Decode one release of profiles/engines/<name>/. Raises InputError, which names file and key."""

    def container(self, fit: Fit) -> Container:
        """Return the finished container of a configuration."""

    def metrics(self, release: Release) -> Metrics:
        """Return where the release counts what it serves."""

    def access(self, release: Release) -> Access:
        """Return how the release asks for an API key, and what it answers without one."""

    def probes(self, promise: Promise) -> tuple[ProbeRequest, ...]:
        """Return requests for health, identity, a short answer, and the worst that was promised, in order."""

    def read_reply(self, probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
        """Return what a reply means.

        A failure inside a stream that answers 200 is a problem. A model without chat template is only a warning.
        """

    def question(
        self, model_id: str, text: str, max_tokens: int, *, chat: bool = False, streamed: bool = False
    ) -> ProbeRequest:
        """Return one request, as a person would send it: the bare prompt, or a `chat` of one message."""

    def read_piece(self, probe: ProbeRequest, event: str) -> str:
        """Return the text that one event of a stream adds, empty where it adds none."""

    def client_line(self, url: str, key_variable: str | None, asked: ProbeRequest) -> str:
        """Return a line of Python that sends the request, with the API key by its variable's name."""


class Engine(ServingEngine, Protocol):
    """An engine that plans are made for. Pure: it judges configurations and never raises for a bad one."""

    @property
    def pin_example(self) -> str:
        """Return a flag without its dashes, and a value, as `--set` takes them."""

    @property
    def edits(self) -> tuple[str, ...]:
        """Return the names of changes of its settings that cure failures (`profiles/diagnosis/heal.json`)."""

    def schemes(self, profile: Profile, release: Release, wanted: str) -> tuple[Scheme, ...]:
        """Return every way this release can hold the weights, best quality first; a wanted one alone, known or not."""

    def shard_counts(self, model: ModelSpec, release: Release, available: int) -> tuple[int, ...]:
        """Return the accelerator counts worth judging for one replica, smallest first."""

    def check_pins(self, pins: Pins, load: Load, model: ModelSpec, release: Release) -> tuple[Problem, ...]:
        """Return what the release's own parser and validator would refuse, in the user's words."""

    def longest_context(self, model: ModelSpec, pins: Pins) -> int:
        """Return the tokens that the model was made for, and what pinned flags extend them to."""

    def fit(self, case: Case) -> Fit:
        """Return settings, memory by part and every problem of one configuration."""

    def startup(self, settings: EngineSettings, rates: Rates) -> tuple[StartupPhase, ...]:
        """Return the phases from the container's start to the first answer, in order."""

    def edit(self, name: str, settings: EngineSettings) -> RequestEdit:
        """Return the change of that name, one of `edits`, for a configuration that failed."""

    def default_memory(self, run: DefaultRun, release: Release) -> MemoryBudget:
        """Return the memory of a release that is left to its own defaults."""

    def default_prefill_tokens(self, run: DefaultRun, release: Release) -> int:
        """Return the prompt tokens of a step of a release that is left to its own defaults."""
