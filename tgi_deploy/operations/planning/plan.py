"""The use case `plan`: makes a plan for a request, or finds the nearest misses. Needs no network and no account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import region_source, resolve
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import AUTO
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.plan_document import Choice, PlanDocument
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply


def plan(texts: OptionTexts, catalog: Catalog, environ: Mapping[str, str]) -> Plan | NoFeasiblePlan:
    """Return the plan of a request, or the reasons why there is none. Raises InputError for invalid options."""
    request = resolve(texts, environ, catalog)
    try:
        supply = supply_for(request, catalog)
    except InputError as error:
        if error.code != "unknown_region":
            raise
        raise InputError(
            error.code, f"{region_source(texts, environ, catalog)}: {error.message}", hint=error.hint
        ) from None
    made = make_plan(request, supply, catalog.engine)
    return made if isinstance(made, Plan) else with_advice(made, supply, catalog)


def judged(
    request: Request, running: PlanDocument, catalog: Catalog, *, release: str | None = None
) -> Candidate | None:
    """Return the running configuration as a candidate; None if the planner or the user's options rule it out.

    `release` is the engine release that the user named. Without one, the running release is as good as the default.
    """
    chosen = running.chosen
    named = (
        (request.instance_type, chosen.instance_type),
        (request.num_shard, chosen.num_shard),
        (None if request.quantize == AUTO else request.quantize, chosen.quantize),
        (release, running.engine.version),
    )
    if any(wanted not in {None, runs} for wanted, runs in named):
        return None
    if (chosen.market == "owned") != (request.hardware is not None):
        return None
    wanted = narrowed(request, running)
    try:
        if not _has_hardware(request, chosen, catalog):
            return None
        made = make_plan(wanted, supply_for(wanted, catalog), catalog.engine)
    except InputError:  # a release or region that the catalog no longer has
        return None
    found = None if isinstance(made, NoFeasiblePlan) else made.chosen
    return found if found is not None and found.offer.instance_type.name == chosen.instance_type else None


def _has_hardware(request: Request, chosen: Choice, catalog: Catalog) -> bool:
    """Return whether the request names the accelerators of a choice, or names none."""
    return request.hardware is None or any(
        offer.instance_type.accelerator.name == chosen.accelerator
        and offer.instance_type.accelerator_count >= chosen.num_shard
        for offer in supply_for(request, catalog).offers
    )


def narrowed(request: Request, planned: PlanDocument) -> Request:
    """Return the request for exactly the hardware, shards, scheme and release of a plan."""
    chosen = planned.chosen
    owned = chosen.market == "owned"
    return replaced(
        request, num_shard=chosen.num_shard, quantize=chosen.quantize, engine_version=planned.engine.version,
        regions=request.regions if owned else (chosen.region,), markets=request.markets if owned else (chosen.market,),
        instance_type=request.instance_type if owned else chosen.instance_type,
        hardware=chosen.instance_type if owned else None,
    )  # fmt: skip


def without_limits(request: Request) -> Request:
    """Return the request without limits that today's prices or predictions could violate."""
    return replaced(request, budget_usd_per_hour=None, ttft_ms=None, tpot_ms=None, min_tokens_per_s=None)


def supply_for(request: Request, catalog: Catalog) -> Supply:
    """Return the offers for the request."""
    if request.hardware is not None:
        return catalog.owned_supply(release=request.engine_version, hardware=request.hardware)
    supply = catalog.supply(release=request.engine_version, regions=request.regions, markets=request.markets)
    return _with_driver(supply, request.driver)


def _with_driver(supply: Supply, driver: str | None) -> Supply:
    """Return the supply for machine images with this driver: types that need it are then treated like any other."""
    if driver is None:
        return supply
    offers = (
        replaced(offer, instance_type=replaced(offer.instance_type, driver=None))
        if offer.instance_type.driver == driver
        else offer
        for offer in supply.offers
    )
    return replaced(supply, offers=tuple(offers))


def with_advice(made: NoFeasiblePlan, supply: Supply, catalog: Catalog) -> NoFeasiblePlan:
    """Return the result with its near misses: the smallest changes to the request that make a plan feasible."""
    from tgi_deploy.planner.advice import near_misses  # noqa: PLC0415 -- not needed where a plan was found

    request = made.request
    wider = supply
    if request.hardware is None:
        everywhere = catalog.regions()
        wider = catalog.supply(release=request.engine_version, regions=everywhere, markets=("on-demand", "spot"))
        wider = _with_driver(wider, request.driver)
    return replaced(made, near_misses=near_misses(request, wider, catalog.engine))
