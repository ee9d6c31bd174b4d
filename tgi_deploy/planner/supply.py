"""What the planner needs to know about the world, as one value. `catalog/` fills it from `profiles/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.speed_constants import Constants
    from tgi_deploy.planner.types import EngineRelease, ExtraPrices, Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class Supply:
    """Everything on offer for one wish: offers of the wished regions and markets, one release, extra prices, constants.

    `extra_prices` is keyed by region. `date` is the day of the newest figure in the catalogue. `speed` holds
    the constants that predictions are made with.
    """

    offers: tuple[Offer, ...]
    release: EngineRelease
    extra_prices: Mapping[str, ExtraPrices]
    date: str
    speed: Constants
