"""The machines that Karpenter's NodePools may add: instance types of EC2 that their requirements and limits allow.

https://karpenter.sh/docs/concepts/nodepools/ and https://karpenter.sh/docs/concepts/scheduling/
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Problem, warning
from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.kubernetes.errors import ClusterRefusedError, UnreadableError
from tgi_deploy.targets.kubernetes.nodes import untolerated
from tgi_deploy.targets.kubernetes.quotas import amount
from tgi_deploy.text import printable
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.supply import AddedMachine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.supply import Offer

_MIB: Final = 2**20
_GB: Final = 10**9
_MOST: Final = 1000
_ON_DEMAND: Final = "on-demand"
_SPOT: Final = "spot"
_ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
_FAMILY: Final = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+)", re.ASCII)
_ZONE: Final = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d+)[a-z]", re.ASCII)


class Requirement(Frozen, frozen=True, kw_only=True):
    """A pool's requirement on a label of its nodes. `least`: its `minValues`, which pods must leave open."""

    label: str
    operator: str
    values: tuple[str, ...]
    least: int = 1

    def allows(self, value: str | None) -> bool | None:
        """Return whether a node may have this value of the label, None for no such label; None if not understood."""
        if self.operator in {"Exists", "DoesNotExist"}:
            return (value is not None) == (self.operator == "Exists")
        if self.operator in {"In", "NotIn"}:
            return (value in self.values) == (self.operator == "In")
        bound, number = _number(next(iter(self.values), None)), _number(value)
        if bound is None or self.operator not in {"Gt", "Lt", "Gte", "Lte"}:
            return None
        if number is None:
            return False
        above = number > bound if self.operator.startswith("G") else number < bound
        return above or (self.operator.endswith("e") and number == bound)


class Pool(Frozen, frozen=True, kw_only=True):
    """A NodePool. `why_not`: why it adds no nodes for this tool's pods; `left`: what its limits leave, by resource."""

    name: str
    weight: int
    requirements: tuple[Requirement, ...]
    left: Mapping[str, Decimal]
    why_not: str

    def allows(self, labels: Mapping[str, str | None]) -> bool:
        """Return whether it may add a node with these labels; requirements on other labels are ignored."""
        known = (item for item in self.requirements if item.label in labels)
        return all(item.allows(labels[item.label]) is not False for item in known)

    def room(self, hardware: InstanceType, resource: str) -> int:
        """Return how many machines its limits leave room for."""
        size = {"cpu": hardware.vcpus, "memory": hardware.ram_bytes, resource: hardware.accelerator_count, "nodes": 1}
        limited = (
            (min(left, Decimal(_MOST * size[name])), size[name]) for name, left in self.left.items() if name in size
        )
        return min((_MOST, *(int(left // each) if each else _MOST for left, each in limited)))


class Growth(Frozen, frozen=True, kw_only=True):
    """What a cluster's pools may add, cheapest first: each instance type by the first pool that has room for it.

    `notices` name the pools that are left out, and why.
    """

    every: tuple[AddedMachine, ...] = ()
    notices: tuple[Problem, ...] = ()

    @property
    def machines(self) -> Mapping[str, AddedMachine]:
        """The cheapest of each accelerator and count, by the form of `--hardware`."""
        return {item.hardware: item for item in reversed(self.every)}

    def added(self, accelerator: str, gpus: int) -> tuple[AddedMachine, ...]:
        """Return those with at least so many accelerators of this name, cheapest first."""
        return tuple(item for item in self.every if item.accelerator == accelerator and item.accelerator_count >= gpus)


def growth(api: Api, table: NodeLabels, catalog: Catalog) -> Growth:
    """Return what the NodePools may add now: nothing in a cluster without Karpenter, or if they can't be read."""
    doing = "looking for Karpenter's NodePools"
    try:
        path = api.path(table.karpenter["api"], "nodepools", everywhere=True)
        found = api.each(path, doing, lambda item: _pool(item, table))
    except ResourceNotFoundError:
        return Growth()
    except ClusterRefusedError as refused:
        return _unread(refused.message, refused.hint) if _has_karpenter(api, table) else Growth()
    except UnreadableError as malformed:
        return _unread(malformed.message, "'kubectl get nodepools -o yaml' shows them")
    kinds = [item for item in catalog.instance_types().values() if item.status == "offered" and _is_whole(item)]
    pools = [pool for pool in found if any(_markets(pool, item, table) for item in kinds)]
    # Karpenter's order, `OrderByWeight`: of equal weights, the later name is first.
    pools.sort(key=attrgetter("weight", "name"), reverse=True)
    return _growth_of(pools, catalog, table, _region(api, table) if pools else "")


def _has_karpenter(api: Api, table: NodeLabels) -> bool:
    """Return whether the cluster has Karpenter's API. Without permission, even unknown kinds are forbidden."""
    try:
        return api.get(table.karpenter["api"], "looking for Karpenter's API", lambda _found: True) is not None
    except ClusterRefusedError:
        return True


def _unread(why: str, hint: str | None) -> Growth:
    return Growth(notices=(warning("not_checked", f"{why}: planning without new nodes", hint=hint),))


def _growth_of(pools: Sequence[Pool], catalog: Catalog, table: NodeLabels, region: str) -> Growth:
    """Return what pools that may have GPUs can add in a region; an empty region is unknown."""
    unpriced = ""
    if region not in catalog.regions():
        where = f"no prices are known in {printable(region)}" if region else "no label of a node names the region"
        unpriced = f"{where}, and an unknown price does not count as free"
    offers = () if unpriced else tuple(_offers(catalog, region))
    notices, usable = [], []
    for pool in pools:
        fits = any(_fits(pool, offer, table) for offer in offers)
        why = pool.why_not or unpriced or ("" if fits else "its limits leave no room, or EC2 offers no matching type")
        if why:
            text = f"planning without new nodes of the NodePool {pool.name}: {why}"
            notices.append(warning("node_left_out", text))
        else:
            usable.append(pool)
    return Growth(
        every=tuple(_machines(usable, offers, catalog, table)),
        notices=tuple(sorted(notices, key=attrgetter("message"))),
    )


def _pool(item: Reply, table: NodeLabels) -> Pool:
    metadata, spec, status = item.part("metadata"), item.part("spec"), item.optional_part("status")
    template = spec.optional_part("template").optional_part("spec")
    requirements = tuple(map(_requirement, template.optional_parts("requirements")))
    return Pool(
        name=printable(metadata.text("name")),
        weight=spec.integer("weight"),
        requirements=requirements,
        left=_left(spec.optional_part("limits").content, status.optional_part("resources").content),
        why_not=_why_not(item, template, requirements, table),
    )


def _requirement(item: Reply) -> Requirement:
    return Requirement(
        label=item.text("key"),
        operator=item.text("operator"),
        values=item.texts("values") if item.has("values") else (),
        least=max(1, item.integer("minValues")),
    )


def _left(limits: Mapping[str, object], used: Mapping[str, object]) -> dict[str, Decimal]:
    """Return what is left of each limit: at least 0, and 0 if the amounts can't be read.

    Quantities of a custom resource are texts or numbers, as its author wrote them.
    """
    return {name: _difference(str(limit), str(used.get(name, "0"))) for name, limit in limits.items()}


def _difference(limit: str, used: str) -> Decimal:
    try:
        found = amount(limit) - amount(used)
    except ArithmeticError:  # larger than any number
        return Decimal(0)
    return max(found, Decimal(0)) if found.is_finite() else Decimal(0)


def _why_not(item: Reply, template: Reply, requirements: Sequence[Requirement], table: NodeLabels) -> str:
    if item.part("metadata").has("deletionTimestamp"):
        return "it is being deleted"
    if item.part("spec").has("replicas"):
        return "it has a fixed number of nodes"
    conditions = {
        one.text("type"): one.optional_text("status")
        for one in item.optional_part("status").optional_parts("conditions")
    }
    if conditions.get("Ready", "True") != "True":
        return "it is not ready"
    group = template.optional_part("nodeClassRef").optional_text("group")
    if group != table.karpenter["node_class"]:
        return f"its nodes come from {printable(group) or 'an unknown provider'}, whose prices are unknown"
    taint = untolerated(template, table.resource)
    if taint:
        return f"its nodes have the taint {printable(taint)}"
    return next(filter(None, (_unclear(need, table) for need in requirements)), "")


def _unclear(need: Requirement, table: NodeLabels) -> str:
    """Return why a requirement can't be evaluated; empty if it can."""
    karpenter = table.karpenter
    known = need.label in karpenter["labels"]
    if known and need.least > 1:
        return f"its minValues require several values of {printable(need.label)}, and pods name one"
    if (known and need.allows(None) is None) or (not known and need.label.startswith(f"{karpenter['node_class']}/")):
        return f"its requirement on {printable(need.label)} is not understood"
    return ""


def _region(api: Api, table: NodeLabels) -> str:
    """Return the region of the cluster's nodes by their labels; empty if unknown, or if there are several."""

    def read(node: Reply) -> str:
        labels = node.part("metadata").table("labels")
        return labels.get(table.region_label) or _of_zone(labels.get(table.zone_label, ""))

    path = api.path("/api/v1", "nodes", everywhere=True)
    found = {*api.each(path, "looking for the cluster's region", read)} - {""}
    return found.pop() if len(found) == 1 else ""


def _of_zone(zone: str) -> str:
    match = _ZONE.fullmatch(zone)
    return match[1] if match else ""


def _offers(catalog: Catalog, region: str) -> Iterator[Offer]:
    """Yield the machines with whole NVIDIA GPUs that are for rent by the hour in the region."""
    for offer in catalog.offers((region,), (_ON_DEMAND,)):
        if _is_whole(offer.instance_type) and offer.usd_per_hour is not None:
            yield offer


def _is_whole(hardware: InstanceType) -> bool:
    """Return whether it has whole NVIDIA GPUs and is rented by the hour."""
    chip = hardware.accelerator
    return chip.vendor == "nvidia" and hardware.partition == chip.slice == 1 and not hardware.capacity_block_only


def _fits(pool: Pool, offer: Offer, table: NodeLabels) -> bool:
    return bool(pool.room(offer.instance_type, table.resource) and _markets(pool, offer.instance_type, table))


def _markets(pool: Pool, hardware: InstanceType, table: NodeLabels) -> tuple[str, ...]:
    """Return how the pool may rent the machine."""
    labels = _labels(hardware, table)
    return tuple(market for market in (_ON_DEMAND, _SPOT) if pool.allows(labels | {table.karpenter["market"]: market}))


def _labels(hardware: InstanceType, table: NodeLabels) -> dict[str, str | None]:
    """Return the labels that Karpenter sets on a node of an instance type; None for one that it does not set."""
    family, _, size = hardware.name.partition(".")
    parts, chip = _FAMILY.match(family), hardware.accelerator
    facts = {
        "type": hardware.name,
        "architecture": _ARCHITECTURES.get(hardware.cpu_arch),
        "system": "linux",
        "category": parts and parts[1],
        "generation": parts and parts[2],
        "family": family,
        "size": size,
        "cpu": str(hardware.vcpus),
        "memory_mib": str(hardware.ram_bytes // _MIB),
        "nvme_gb": str(hardware.nvme_bytes // _GB) if hardware.nvme_bytes else None,
        "gpu_name": table.karpenter["gpu_names"].get(chip.name),
        "gpu_manufacturer": "nvidia",
        "gpu_count": str(hardware.accelerator_count),
        "market": None,
    }
    return {label: facts[fact] for label, fact in table.karpenter["labels"].items()}


def _machines(
    pools: Sequence[Pool], offers: Sequence[Offer], catalog: Catalog, table: NodeLabels
) -> list[AddedMachine]:
    """Return the offers that a pool has room for, cheapest first."""
    regions = tuple({offer.region for offer in offers}) if pools else ()
    spot = {item.instance_type.name: item for item in catalog.offers(regions, (_SPOT,))}
    found = []
    for offer in offers:
        fits = [pool for pool in pools if _fits(pool, offer, table)]
        if fits:
            found.append(_machine(fits, offer, table, spot.get(offer.instance_type.name)))
    return sorted(found, key=_by_price)


def _machine(pools: Sequence[Pool], offer: Offer, table: NodeLabels, spot: Offer | None) -> AddedMachine:
    """Return the machine at its price on demand or, if all pools rent spot only, at the estimate for that.

    Karpenter takes the next pool if the first has no room or no capacity.
    """
    hardware = offer.instance_type
    markets = {market for pool in pools for market in _markets(pool, hardware, table)}
    spot = spot if _SPOT in markets and spot is not None and spot.usd_per_hour is not None else None
    spot_only = markets == {_SPOT}
    priced = spot if spot_only and spot is not None else offer
    if priced.usd_per_hour is None:
        raise AssertionError("only priced offers count")
    return AddedMachine(
        pool=" or ".join(pool.name for pool in pools),
        instance_type=hardware.name,
        accelerator=hardware.accelerator.name,
        accelerator_count=hardware.accelerator_count,
        region=offer.region,
        usd_per_hour=priced.usd_per_hour,
        price_source=priced.price_source,
        price_date=priced.price_date,
        estimated=priced.estimated or spot_only,
        spot_only=spot_only,
        spot_usd_per_hour=spot.usd_per_hour if spot else None,
        most=sum(pool.room(hardware, table.resource) for pool in pools),
    )


def _by_price(machine: AddedMachine) -> tuple[Decimal, str]:
    return machine.usd_per_hour, machine.instance_type


def _number(text: str | None) -> Decimal | None:
    try:
        found = Decimal(text or "")
    except InvalidOperation:
        return None
    return found if found.is_finite() else None
