"""Requests that prove an endpoint, as data, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tgi_deploy.values.base import Value


class ProbeRequest(Value, frozen=True, kw_only=True):
    """One request. Several may belong to a step; `streamed`: its answer is a stream of events."""

    step: Literal["health", "info", "generate", "stream", "chat", "longest", "together", "repeat"]
    method: Literal["GET", "POST"]
    path: str
    body: Mapping[str, Any] | None = None
    streamed: bool = False


class HttpReply(Value, frozen=True, kw_only=True):
    """An HTTP answer. `body` is the parsed JSON, None where the text is not JSON.

    `events` are the data payloads of a stream in order, without the closing `[DONE]`; `arrivals_ms` is when each came,
    counted from the request.
    """

    status: int
    body: Any = None
    text: str = ""
    events: tuple[str, ...] = ()
    arrivals_ms: tuple[float, ...] = ()


class Identity(Value, frozen=True, kw_only=True):
    """What a server says that it is; None where it does not say."""

    model_id: str | None = None
    version: str | None = None
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    device: str | None = None


class Reply(Value, frozen=True, kw_only=True):
    """A reply that is as it should be. `tokens` were generated; `detail` is what a report shows of it."""

    detail: str = ""
    text: str = ""
    tokens: int = 0
    identity: Identity | None = None


class Promise(Value, frozen=True, kw_only=True):
    """What a plan promises of one endpoint, in tokens."""

    model_id: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    max_input_tokens: int
    max_total_tokens: int

    @property
    def longest_input_tokens(self) -> int:
        """The longest prompt that leaves room for the promised answer."""
        return max(1, min(self.max_input_tokens, self.max_total_tokens - self.output_tokens))
