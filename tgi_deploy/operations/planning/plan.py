"""The use case `plan`: from a wish to a plan, or to the nearest misses. No network, no account."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.wish import region_source, resolve
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.types import NoPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.wish import Wish
    from tgi_deploy.planner.supply import Supply
    from tgi_deploy.planner.types import Requirements


def plan(wish: Wish, catalog: Catalog, environ: Mapping[str, str]) -> Plan | NoPlan:
    """Raises InputError for a wish that cannot be meant; a wish that cannot be met is a `NoPlan`."""
    requirements = resolve(wish, environ, catalog)
    try:
        supply = supply_for(requirements, catalog)
    except InputError as error:
        if error.code != "unknown_region":
            raise
        raise InputError(error.code, f"{region_source(wish, environ)}: {error.message}", hint=error.hint) from None
    made = make_plan(requirements, supply)
    return made if isinstance(made, Plan) else with_advice(made, supply, catalog)


def supply_for(requirements: Requirements, catalog: Catalog) -> Supply:
    """What is on offer for these requirements."""
    if requirements.hardware is not None:
        return catalog.owned_supply(release=requirements.engine_version, hardware=requirements.hardware)
    return catalog.supply(
        release=requirements.engine_version, regions=requirements.regions, markets=requirements.markets
    )


def with_advice(made: NoPlan, supply: Supply, catalog: Catalog) -> NoPlan:
    """The same, with the single changes that would have been enough."""
    from tgi_deploy.planner.advice import near_misses  # noqa: PLC0415 -- not needed where a plan was found

    wish = made.requirements
    wider = supply
    if wish.hardware is None:
        wider = catalog.supply(release=wish.engine_version, regions=catalog.regions(), markets=("on-demand", "spot"))
    return replace(made, near_misses=near_misses(wish, wider))
