"""`plan --why-not`: explains an instance type or an accelerator for a request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.documents import (
    choice,
    memory,
    speed,
)
from tgi_deploy.operations.planning.option_texts import resolve
from tgi_deploy.operations.planning.plan import supply_for
from tgi_deploy.planner.why_not import explain
from tgi_deploy.values.base import plain
from tgi_deploy.values.plan_results import (
    ConfigurationData,
    ExplanationData,
    PriceData,
    ReasonData,
    WhyNotData,
    WhyNotPage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.planner.why_not import Explained, Priced, Variant
    from tgi_deploy.values.hardware import Accelerator, InstanceType
    from tgi_deploy.values.request import Request

_OWNED_COUNTS: Final = (1, 2, 4, 8)
_WORDS: Final = ("two", "three", "four", "five", "six", "seven", "eight")
_SEVERAL: Final = re.compile(
    rf"([1-9]\d{{0,2}}|{'|'.join(_WORDS)})(?: ?x ?| )([a-z0-9-]+\.[a-z0-9-]+)", re.ASCII | re.IGNORECASE
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyNot:
    """The explained name and its instance types. `rentable` is whether the cloud offers any of them."""

    name: str
    kind: str
    request: Request
    rentable: bool
    explanations: tuple[Explained, ...]


def why_not(texts: OptionTexts, name: str, catalog: Catalog, environ: Mapping[str, str]) -> WhyNot:
    """Explain `name`, an instance type or an accelerator, for the request.

    An accelerator that EC2 does not offer is explained as owned machines.

    Raises:
        InputError: `unknown_instance_type`, `unknown_accelerator`, and the errors of an invalid request.
    """
    request = resolve(texts, environ, catalog)
    machines, kind = _several(name)
    known = _instance_type(kind, catalog)
    if known is not None:
        shown = f"{machines}x{known.name}" if machines > 1 else known.name
        return _explained(shown, "instance_type", request, catalog, (known,), machines)
    accelerator = catalog.accelerator(name)
    hardware = tuple(
        item for item in catalog.instance_types().values() if item.accelerator.name == accelerator.name
    )  # fmt: skip
    if hardware:
        return _explained(accelerator.name, "accelerator", request, catalog, hardware)
    return _owned(accelerator, request, catalog)


def _several(name: str) -> tuple[int, str]:
    """Parse a number of machines and their type: `two g6e.xlarge`, `2xg6e.xlarge`, `g6e.xlarge`."""
    found = _SEVERAL.fullmatch(name.strip())
    if found is None:
        return 1, name
    number = found[1].lower()
    return (_WORDS.index(number) + 2 if number in _WORDS else int(number)), found[2].lower()


def _instance_type(name: str, catalog: Catalog) -> InstanceType | None:
    """Return the instance type; None for another name. Raises InputError for an unknown name with a dot."""
    try:
        return catalog.instance_type(name)
    except InputError:
        if "." in name:
            raise
        return None


def _explained(
    name: str,
    kind: str,
    request: Request,
    catalog: Catalog,
    hardware: tuple[InstanceType, ...],
    machines: int = 1,
) -> WhyNot:
    ordered = tuple(sorted(hardware, key=lambda item: (item.accelerator_count, item.partition, item.name)))
    return WhyNot(
        name=name,
        kind=kind,
        request=request,
        rentable=any(item.status in {"offered", "hosted"} for item in hardware),
        explanations=explain(request, supply_for(request, catalog), catalog.engine, ordered, machines),
    )


def _owned(accelerator: Accelerator, request: Request, catalog: Catalog) -> WhyNot:
    explanations: list[Explained] = []
    for number in _OWNED_COUNTS:
        supply = catalog.owned_supply(release=request.engine_version, hardware=f"{number}x{accelerator.name}")
        explanations.extend(explain(request, supply, catalog.engine, (supply.offers[0].instance_type,)))
    return WhyNot(
        name=accelerator.name, kind="accelerator", request=request, rentable=False, explanations=tuple(explanations)
    )


def why_not_data(found: WhyNot) -> WhyNotData:
    chosen = next((item.chosen for item in found.explanations if item.chosen is not None), None)
    return WhyNotData(
        why_not=WhyNotPage(
            name=found.name,
            kind=found.kind,
            rentable=found.rentable,
            chosen=None if chosen is None or not found.rentable else choice(chosen),
            instance_types=tuple(map(_explanation, found.explanations)),
        )
    )


def _explanation(item: Explained) -> ExplanationData:
    return ExplanationData(
        instance_type=item.hardware.name,
        machines=item.machines,
        status=item.hardware.status,
        accelerator=item.hardware.accelerator.name,
        accelerator_count=item.hardware.accelerator_count,
        verdict=item.verdict,
        rank=item.rank,
        ranked=item.ranked,
        decided_by=item.decided_by,
        best=None if item.best is None else choice(item.best),
        variants=tuple(map(_variant, item.variants)),
    )


def _variant(variant: Variant) -> ConfigurationData:
    return ConfigurationData(
        num_shard=variant.num_shard,
        quantize=variant.quantize,
        replicas=variant.replicas,
        works=not variant.codes,
        codes=tuple(variant.codes),
        reasons=tuple(
            ReasonData(code=item.code, message=item.message, numbers=plain(item.data)) for item in variant.problems
        ),
        memory=memory(variant.memory),
        performance=None if variant.performance is None else speed(variant.performance),
        prices=tuple(map(_price, variant.prices)),
    )


def _price(item: Priced) -> PriceData:
    return PriceData(
        region=item.offer.region,
        market=item.offer.market,
        usd_per_hour=None if item.cost is None else item.cost.usd_per_hour,
        lines=() if item.cost is None else tuple(item.cost.lines),
        within_budget=item.within_budget,
        price_date=item.offer.price_date,
        estimated=item.offer.estimated,
    )
