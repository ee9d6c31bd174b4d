"""What the planner needs to know about the world, as one value. `catalog/` fills it from `profiles/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.speed_constants import Constants
    from tgi_deploy.planner.types import ExtraPrices, Offer
    from tgi_deploy.values.engine import Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Supply:
    """Everything on offer for one request: offers of its regions and markets, an engine, extra prices, constants.

    `extra_prices` is keyed by region. `date` is the day of the newest figure in the catalogue. `speed` holds
    the constants that predictions are made with.
    """

    offers: tuple[Offer, ...]
    engine: Engine
    release: Release
    extra_prices: Mapping[str, ExtraPrices]
    date: str
    speed: Constants
