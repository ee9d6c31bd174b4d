"""Seeded requests over the whole catalog, as users would type them; the same seed gives the same request."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING

from tgi_deploy.operations.planning.option_texts import OptionTexts, resolve
from tgi_deploy.operations.planning.plan import supply_for
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

_OWN = ("1xRTX-4090", "2xRTX-4090", "1xH100-80GB", "4xL40S", "8xA100-80GB", "2xA10G")
_REGIONS = (("us-east-1",),) * 7 + (("us-east-1", "eu-west-1", "ap-northeast-1"),) * 2 + (("all",),)
_OUTPUTS = (16, 128, 256, 256, 800)
_LONG_OUTPUTS = (16, 256, 256, 800, 2000)
_SUPPLIES: dict[tuple[object, ...], Supply] = {}


@cache
def shared_catalog(service: str = "") -> Catalog:
    """Return the packaged catalog, whose files are read once."""
    return open_catalog(service=service)


def drawn(seed: int, service: str = "") -> Request:
    """Return a request, for the machines of `service` if it is named."""
    random = Random(seed)  # noqa: S311 -- a seed makes a failure come again
    catalog = shared_catalog(service)
    profile = random.choice(catalog.profile_names())
    longest = catalog.resolve(profile).model.max_position_embeddings
    owned = random.random() < 0.08 and not service
    texts = OptionTexts(
        model=profile,
        context=str(min(longest, 16384 if service else 8192)),
        input_tokens=str(min(random.choice((64, 256, 1024, 1024, 3000, 7000)), longest * 5 // 8)),
        output_tokens=str(min(random.choice(_OUTPUTS if not service else _LONG_OUTPUTS), longest // 4)),
        ttft_ms=_sometimes(random, 0.3, ("150", "400", "1000", "2500", "6000")),
        tpot_ms=_sometimes(random, 0.3, ("15", "30", "60", "120")),
        min_tokens_per_s=_sometimes(random, 0.2, ("50", "400", "1500", "6000")),
        slo=_sometimes(random, 0.2, ("none",)),
        confidence=_sometimes(random, 0.4, ("0.3", "0.8", "0.95")),
        quality=_sometimes(random, 0.4, ("exact", "near-lossless", "any", "any")),
        min_bits=_sometimes(random, 0.05, ("8", "16")),
        prefer=_sometimes(random, 0.4, ("quality", "speed", "value")),
        replicas=_sometimes(random, 0.5, ("1..16", "1..16", "1..4", "2", "3..40")),
        max_machines=_sometimes(random, 0.2, ("1", "3")),
        engine_version=_sometimes(random, 0.1, ("2.3.1", "3.0.1", "3.2.3") if service else ("2.0.4", "2.4.1", "3.0.2")),
        hardware=random.choice(_OWN) if owned else None,
        budget=None if owned else _sometimes(random, 0.3, ("1", "3", "8", "25", "70")),
        regions=() if owned else random.choice(_REGIONS),
        market=None if owned or service else _sometimes(random, 0.2, ("spot", "any")),
        **_load(random),
    )
    return resolve(texts, {}, catalog)


def _load(random: Random) -> dict[str, str]:
    if random.random() < 0.3:
        return {"rps": random.choice(("0.05", "0.5", "2", "8", "30"))}
    return {"concurrency": random.choice(("1", "2", "4", "8", "16", "40", "64", "100", "250", "600"))}


def _sometimes(random: Random, share: float, values: Sequence[str]) -> str | None:
    return random.choice(values) if random.random() < share else None


def supply_of(request: Request, service: str = "") -> Supply:
    """Return all offers for the request, read once per set of regions and markets."""
    places = (service, request.engine_version, request.hardware, request.regions, request.markets)
    if places not in _SUPPLIES:
        _SUPPLIES[places] = supply_for(request, shared_catalog(service))
    return _SUPPLIES[places]
