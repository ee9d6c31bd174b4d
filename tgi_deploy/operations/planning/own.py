"""`plan --own`: the engine on a purchased machine, its cost, and when it is cheaper than rentals."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import resolve
from tgi_deploy.operations.planning.plan import supply_for, with_advice
from tgi_deploy.planner.performance import with_prices
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.owned import Owned, OwnedMachine, OwnershipCost, Rental, break_even_months, ownership_cost
from tgi_deploy.values.plan import NoFeasiblePlan, Plan
from tgi_deploy.values.plan_options import variable_of
from tgi_deploy.values.supply import HOURS_PER_MONTH, usd_per_month

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

_BESIDE: Final = ("hardware", "instance", "disk")


def plan_owned(
    texts: OptionTexts, machine: OwnedMachine, catalog: Catalog, environ: Mapping[str, str]
) -> tuple[Plan, Owned] | NoFeasiblePlan:
    """Return the plan on the owned machine with its costs. Raises InputError for invalid options."""
    _refuse(texts)
    request = resolve(_on(machine, texts, environ), environ, catalog)
    supply, cost = _supply(machine, request, catalog)
    made = make_plan(request, supply, catalog.engine)
    if isinstance(made, NoFeasiblePlan):
        return with_advice(made, supply, catalog)
    rented = _rental_request(texts, request, environ, catalog)
    search = Search(rented, supply_for(rented, catalog), catalog.engine)
    owned = _owned(machine, cost, made)
    rentals = tuple(_rental(item, rented, owned, made) for item in _best_of_each(search))
    return made, replaced(owned, rentals=rentals)


def _refuse(texts: OptionTexts) -> None:
    given = next((name for name in _BESIDE if getattr(texts, name) is not None), None)
    if given is not None:
        raise InputError(
            "conflicting_options", f"--own and --{given} exclude each other",
            hint="the --own file names the hardware; leave out the other option",
        )  # fmt: skip


def _on(machine: OwnedMachine, texts: OptionTexts, environ: Mapping[str, str]) -> OptionTexts:
    """Return the options, completed with the file's values for options that are not set."""
    of_file = {"max_machines": str(machine.machines)}
    if machine.utilization is not None:
        of_file["utilization"] = f"{machine.utilization:f}"
    missing = {name: value for name, value in of_file.items() if _is_open(name, texts, environ)}
    return replaced(texts, hardware=machine.hardware, **missing)


def _is_open(name: str, texts: OptionTexts, environ: Mapping[str, str]) -> bool:
    """Return whether neither an option nor an environment variable sets this."""
    return getattr(texts, name) is None and not environ.get(variable_of(name))


def _supply(machine: OwnedMachine, request: Request, catalog: Catalog) -> tuple[Supply, OwnershipCost]:
    """Return the machine as the only offer, at its computed hourly cost."""
    supply = supply_for(request, catalog)
    offer, *others = supply.offers
    if others:
        raise InputError(
            "bad_option_value", f"--own is about one machine, and {machine.hardware!r} names {len(supply.offers)}",
            hint="write a file for each machine, and compare their plans",
        )  # fmt: skip
    hardware = offer.instance_type
    cost = ownership_cost(machine, hardware.accelerator_count, Decimal(str(request.utilization)))
    if machine.interconnect is not None:
        hardware = replaced(hardware, interconnect=machine.interconnect)
    priced = replaced(
        offer, instance_type=hardware, usd_per_hour=cost.usd_per_hour, bill=cost.lines, price_source=machine.source
    )
    return replaced(supply, offers=(priced,), extra_prices={}), cost


def _rental_request(texts: OptionTexts, request: Request, environ: Mapping[str, str], catalog: Catalog) -> Request:
    """Return the same request for rented machines: on-demand and spot, unless a market is named."""
    hidden = variable_of("hardware")
    rented = resolve(texts, {name: value for name, value in environ.items() if name != hidden}, catalog)
    markets = rented.markets
    if _is_open("market", texts, environ):
        markets = ("on-demand", "spot")
    return replaced(rented, utilization=request.utilization, markets=markets)


def _owned(machine: OwnedMachine, cost: OwnershipCost, made: Plan) -> Owned:
    chosen = made.chosen
    return Owned(
        name=machine.name or machine.hardware,
        source=machine.source,
        hardware=chosen.offer.instance_type.name,
        machines=chosen.machines,
        utilization=Decimal(str(made.request.utilization)),
        useful_life_years=machine.useful_life_years,
        purchase_usd=machine.purchase_usd * chosen.machines,
        power_kw=cost.power_kw,
        lines=chosen.cost.lines,
        usd_per_hour=chosen.cost.usd_per_hour,
        usd_per_month=usd_per_month(chosen.cost.usd_per_hour),
        running_usd_per_month=usd_per_month(cost.running_usd_per_hour * chosen.machines),
        usd_per_million_output_tokens=chosen.performance.usd_per_million_output_tokens,
        rentals=(),
    )


def _best_of_each(search: Search) -> Iterator[Configuration]:
    """Yield the best configuration for each accelerator, count and market, in the planner's order."""
    seen = set()
    for item in search.run().configurations:
        hardware = item.offer.instance_type
        key = (hardware.accelerator.name, hardware.accelerator_count, item.offer.market)
        if key not in seen:
            seen.add(key)
            yield item


def _rental(item: Configuration, request: Request, owned: Owned, made: Plan) -> Rental:
    offer, evaluation = item.offer, item.evaluation
    hardware, mine = offer.instance_type, made.chosen.offer.instance_type
    if evaluation.performance is None:
        raise AssertionError("a configuration has been timed")
    speed = with_prices(evaluation.performance, item.served_usd_per_hour, request)
    return Rental(
        instance_type=hardware.name,
        region=offer.region,
        market=offer.market,
        accelerator=hardware.accelerator.name,
        accelerator_count=hardware.accelerator_count,
        machines=item.machines,
        replicas=evaluation.replicas,
        num_shard=evaluation.num_shard,
        quantize=evaluation.scheme.name,
        usd_per_hour=item.served_usd_per_hour,
        usd_per_million_output_tokens=speed.usd_per_million_output_tokens,
        output_tokens_per_s=round(speed.output_tokens_per_s, 1),
        estimated=offer.estimated,
        price_source=offer.price_source,
        price_date=offer.price_date,
        same_hardware=(hardware.accelerator, hardware.accelerator_count) == (mine.accelerator, mine.accelerator_count),
        break_even_months=_break_even(owned, item.served_usd_per_hour),
        break_even_months_if_switched_off=_break_even(owned, item.served_usd_per_hour * owned.utilization),
    )


def _break_even(owned: Owned, rental_usd_per_hour: Decimal) -> Decimal | None:
    return break_even_months(owned.purchase_usd, owned.running_usd_per_month, rental_usd_per_hour * HOURS_PER_MONTH)
