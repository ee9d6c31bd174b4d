"""Requests that prove an endpoint, and their replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tgi_deploy.values.base import Value


class ProbeRequest(Value, frozen=True, kw_only=True):
    """One request. A step may have several; `streamed`: the response is a stream of events."""

    step: Literal["health", "info", "generate", "stream", "chat", "longest", "together", "repeat"]
    method: Literal["GET", "POST"]
    path: str
    body: Mapping[str, Any] | None = None
    streamed: bool = False


class HttpReply(Value, frozen=True, kw_only=True):
    """An HTTP response. `body` is the parsed JSON, None if it is not JSON.

    `events` are a stream's data payloads in order, without the final `[DONE]`; `arrivals_ms` are their arrival times
    after the request.
    """

    status: int
    body: Any = None
    text: str = ""
    events: tuple[str, ...] = ()
    arrivals_ms: tuple[float, ...] = ()


class Identity(Value, frozen=True, kw_only=True):
    """What a server reports about itself; None if it does not."""

    model_id: str | None = None
    version: str | None = None
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    device: str | None = None


class Reply(Value, frozen=True, kw_only=True):
    """A valid reply. `tokens`: the number generated; `detail`: for reports."""

    detail: str = ""
    text: str = ""
    tokens: int = 0
    identity: Identity | None = None


class Promise(Value, frozen=True, kw_only=True):
    """A plan's promise for one endpoint, in tokens."""

    model_id: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    max_input_tokens: int
    max_total_tokens: int

    @property
    def longest_input_tokens(self) -> int:
        """The longest prompt that leaves room for the planned answer."""
        return max(1, min(self.max_input_tokens, self.max_total_tokens - self.output_tokens))
