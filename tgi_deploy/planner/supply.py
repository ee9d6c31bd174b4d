"""What the planner needs to know about the world, as one value. `catalog/` fills it from `profiles/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.types import EngineRelease, ExtraPrices, Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class Supply:
    """Everything on offer for one wish: offers of the wished regions and markets, one release, extra prices.

    `extra_prices` is keyed by region. `date` is the day of the newest figure in the catalogue.
    """

    offers: tuple[Offer, ...]
    release: EngineRelease
    extra_prices: Mapping[str, ExtraPrices]
    date: str
