"""Every engine, its releases, and configurations of a handwritten model."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from builders import plans

from tgi_deploy.catalog.engines import EngineDocuments
from tgi_deploy.catalog.store import Store
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.engines.vllm import Vllm
from tgi_deploy.values.engine import Case, Fit, Load, Pins, Release, Scheduling, Scheme
from tgi_deploy.values.probing import ProbeRequest, Promise

if TYPE_CHECKING:
    from tgi_deploy.engines.protocol import Engine, ServingEngine

EVERY: Final[tuple[ServingEngine, ...]] = (Tgi(), Vllm())
PLANNING: Final[tuple[Engine, ...]] = (Tgi(),)
PROMISE: Final = Promise(
    model_id=plans.HUB_ID,
    input_tokens=1000,
    output_tokens=200,
    concurrency=8,
    max_input_tokens=4000,
    max_total_tokens=4096,
)
_STORE: Final = Store.behind()


def documents(engine: ServingEngine) -> EngineDocuments:
    return EngineDocuments(_STORE, engine.name)


@cache
def releases(engine: ServingEngine) -> tuple[Release, ...]:
    """Return all releases with a file, oldest first."""
    found = documents(engine)
    return tuple(engine.release(version, found) for version in found.versions())


def every_release() -> list[tuple[ServingEngine, Release]]:
    return [(engine, release) for engine in EVERY for release in releases(engine)]


def fit_of(release: Release, *, num_shard: int = 1, gated: bool = False, pins: Pins | None = None, **of: Any) -> Fit:
    """Return a configuration of the release. Other arguments are its settings, such as `revision`."""
    case = Case(
        model=plans.model(gated=gated),
        hardware=plans.instance_type(accelerator_count=num_shard),
        num_shard=num_shard,
        scheme=Scheme(name="none", hub_id=plans.HUB_ID, bits=16, lost_bits=0, prequantized=False),
        load=Load(input_tokens=1000, output_tokens=200, concurrency=8, context_tokens=8192),
        pins=pins or Pins(),
        release=release,
    )
    return Fit(
        case=case,
        settings=plans.settings(num_shard=num_shard, **of),
        dtype="bfloat16",
        memory=plans.memory_budget(),
        scheduling=Scheduling(profile=""),
        problems=(),
    )


def get(path: str) -> ProbeRequest:
    return ProbeRequest(step="info", method="GET", path=path)


def post(path: str, body: Any) -> ProbeRequest:
    return ProbeRequest(step="generate", method="POST", path=path, body=body)


def stream(path: str, body: Any) -> ProbeRequest:
    return ProbeRequest(step="stream", method="POST", path=path, body=body, streamed=True)
