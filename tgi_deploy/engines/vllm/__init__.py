"""The engine vLLM: container, metrics, access and proof. Plans don't support it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.engines.vllm import probes
from tgi_deploy.engines.vllm.container import CACHE_PATH, HEALTH, PORT, container
from tgi_deploy.engines.vllm.release import KEY_VARIABLE, NAME, VllmRelease, read_release
from tgi_deploy.values.base import Value
from tgi_deploy.values.container import Health
from tgi_deploy.values.serving import Access, Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.values.container import Container
    from tgi_deploy.values.engine import Fit, Release
    from tgi_deploy.values.probing import HttpReply, ProbeRequest, Promise, Reply


class Vllm(Value, frozen=True, kw_only=True):
    """vLLM. Its methods accept only releases that it decoded."""

    name: str = NAME
    title: str = "vLLM"
    port: int = PORT
    cache_path: str = CACHE_PATH
    health: Health = HEALTH
    pages: tuple[tuple[str, str], ...] = probes.PAGES
    remedy_flags: tuple[tuple[str, str], ...] = (("prefill", "--max-num-batched-tokens"),)

    def release(self, version: str, documents: Mapping[str, Any]) -> VllmRelease:
        return read_release(version, documents)

    def container(self, fit: Fit) -> Container:
        return container(fit, _own(fit.case.release))

    def metrics(self, release: Release) -> Metrics:
        own = _own(release)
        return Metrics(
            path=own.metrics_path, request_counters=own.request_counters, queued=own.queued, running=own.running,
            kv_used=own.kv_used,
        )  # fmt: skip

    def access(self, release: Release) -> Access:
        own = _own(release)
        return Access(
            key_variable=KEY_VARIABLE,
            guarded_routes=own.guarded_routes,
            open_inference_routes=own.open_inference_routes,
        )

    def probes(self, promise: Promise) -> tuple[ProbeRequest, ...]:
        return tuple(probes.probes(promise))

    def read_reply(self, probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
        return probes.read_reply(probe, reply)

    def question(
        self, model_id: str, text: str, max_tokens: int, *, chat: bool = False, streamed: bool = False
    ) -> ProbeRequest:
        return probes.question(model_id, text, max_tokens, chat=chat, streamed=streamed)

    def read_piece(self, probe: ProbeRequest, event: str) -> str:
        return probes.read_piece(probe, event)

    def client_line(self, url: str, key_variable: str | None, asked: ProbeRequest) -> str:
        return probes.client_line(url, key_variable, asked)


def _own(release: Release) -> VllmRelease:
    if not isinstance(release, VllmRelease):
        raise TypeError(f"vLLM got a release of {release.name}")
    return release
