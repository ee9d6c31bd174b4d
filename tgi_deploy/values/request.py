"""What was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from tgi_deploy.values.base import Document
from tgi_deploy.values.engine import Load
from tgi_deploy.values.model import Profile

Market = Literal["on-demand", "spot", "owned"]
Preference = Literal["quality", "cost", "speed", "value"]


class RequestTerms(Document, frozen=True, kw_only=True):
    """What a request and its document have in common. `budget_usd_per_hour` covers everything billed by the hour.

    `min_tokens_per_s` is of output tokens, of all requests together. `utilisation` prices tokens: the share of the
    time, above 0 and at most 1, at which the machine carries this load; it idles, and bills, for the rest.
    `disk_gib`: the root volume is at least this big. `env` goes to the engine beside what it is given anyway.
    """

    model: Any
    engine_version: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    context_tokens: int
    budget_usd_per_hour: Decimal | None = None
    prefer: Preference = "quality"
    quantize: str = "auto"
    num_shard: int | None = None
    instance_type: str | None = None
    hardware: str | None = None
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ("on-demand",)
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    min_tokens_per_s: float | None = None
    utilisation: float = 1.0
    allow_turing: bool = False
    flags: Any = ()
    env: Any = ()
    disk_gib: int | None = None
    port: int = 8080


class Request(RequestTerms, frozen=True, kw_only=True):
    """What the user asked for, complete with defaults."""

    model: Profile
    flags: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    public_ipv4: bool = True

    @property
    def load(self) -> Load:
        return Load(
            input_tokens=self.input_tokens, output_tokens=self.output_tokens, concurrency=self.concurrency,
            context_tokens=self.context_tokens,
        )  # fmt: skip

    @property
    def document(self) -> RequestDocument:
        named = {"model": self.model.name, "flags": dict(self.flags), "env": dict(self.env)}
        terms = {name: getattr(self, name) for name in RequestTerms.__struct_fields__}
        return RequestDocument(**(terms | named))


class RequestDocument(RequestTerms, frozen=True, kw_only=True):
    """A request as it is printed and recorded: the model goes by its name."""

    model: str
    flags: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
