"""Where a deployment's pods can run: on existing nodes, and on nodes that Karpenter adds for them.

Karpenter adds a node for a pod only if it knows beforehand that the node will have the labels that the pod asks for. It
knows the instance type, not the accelerator's label. It tries the terms of a pod's affinity one after the other
(`removeRequiredNodeAffinityTerm` in pkg/controllers/provisioning/scheduling/preferences.go of sigs.k8s.io/karpenter).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from tgi_deploy.errors import error
from tgi_deploy.targets.kubernetes.manifests import REVISION, label
from tgi_deploy.targets.kubernetes.nodes import FREE_A_GPU, no_room_to_grow
from tgi_deploy.targets.kubernetes.objects import selector_of
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, PATHS
from tgi_deploy.text import plural, rate
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.resource import TAG_NAME
from tgi_deploy.values.supply import Headroom

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.node_labels import NodeLabels, NodeSelector
    from tgi_deploy.targets.kubernetes.nodes import Node
    from tgi_deploy.targets.kubernetes.pools import Growth
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.request import Market, Replicas
    from tgi_deploy.values.supply import AddedMachine


class Room(Frozen, frozen=True, kw_only=True):
    """Room for replicas of `gpus` each: for `there` on existing nodes, and on new nodes of the type `new`.

    `most_free`: the most GPUs of the accelerator that a node has free.
    """

    accelerator: str
    gpus: int
    there: int
    most_free: int
    new: AddedMachine | None

    @property
    def added(self) -> int:
        """How many replicas new nodes have room for."""
        return 0 if self.new is None else self.new.most * self._each

    @property
    def launched(self) -> str:
        """The end of a sentence about existing nodes: the room on new ones; empty if there is none."""
        return f"; Karpenter may launch nodes for {self.added} more" if self.added else ""

    def new_nodes(self, replicas: int) -> int:
        """Return how many new nodes so many replicas need."""
        return 0 if self.new is None else max(0, -(-(replicas - self.there) // self._each))

    def findings(
        self, replicas: int, *, most: int = 0, budget: Decimal | None, billed: Decimal | None = None
    ) -> Iterator[Problem]:
        """Yield why there is no room for so many replicas, or else what they cost if they need new nodes.

        `most`: the largest number that a range allows. The price of its new nodes and what is `billed` an hour already
        must fit the budget together.
        """
        nodes, new = self.new_nodes(replicas), self.new
        if new is None:
            if self.there < replicas:
                yield self._shortage(replicas)
            return
        top = min(max(nodes, self.new_nodes(most)), new.most)
        over = self._over_budget(new, top, budget, billed)
        if over is not None:
            yield over
            return
        if nodes > new.most:
            yield error(
                "no_free_gpus",
                f"{plural(nodes, 'new node')} of {new.instance_type} needed: the limits of the NodePool {new.pool} "
                f"leave room for {new.most}",
                hint="raise the limits of the NodePool, or plan for fewer replicas",
            )
        elif nodes:
            there = f"; existing nodes have room for {self.there} of {replicas}" if self.there else ""
            notice = new.notice(nodes)
            yield replaced(notice, message=notice.message + there)
        if top > nodes:
            notice = new.notice(top)
            yield replaced(notice, message=f"for up to {plural(most, 'replica')}, {notice.message}")

    def headroom(self, replicas: Replicas, *, budget: Decimal | None, billed: Decimal) -> Headroom:
        """Return the room for a number of replicas, or for a range, and the price of its new nodes."""
        least, most = replicas.least, replicas.most or replicas.least
        found = tuple(self.findings(least, most=most, budget=budget, billed=billed))
        if most > least and not any(item.severity == "error" for item in found):
            found = (*found, *self.short_of(most))
        if self.new is None:
            return Headroom(problems=found)
        return Headroom(
            problems=found,
            added_usd_per_hour=self.new.usd_per_hour * min(self.new_nodes(most), self.new.most),
            estimated=self.new.estimated,
            price_date=self.new.price_date,
        )

    def short_of(self, most: int) -> Iterator[Problem]:
        """Yield the warning if there is no room for the largest number of a range."""
        if self.there + self.added < most:
            yield no_room_to_grow(most, f"the nodes have room for {self.there}{self.launched}")

    def later(self, replicas: int, budget: Decimal | None) -> Iterator[Problem]:
        """Yield the price of the nodes that are added if the pods of so many replicas lose theirs."""
        if self.new is not None:
            nodes = min(-(-replicas // self._each), self.new.most)
            notice = self.new.notice(nodes)
            exceeds = budget is not None and self.new.usd_per_hour * nodes > budget
            above = f"; that exceeds the budget of {rate(budget)}" if budget is not None and exceeds else ""
            yield replaced(notice, message=f"for pods that lose their node, up to {notice.message}{above}")

    def _over_budget(
        self, new: AddedMachine, nodes: int, budget: Decimal | None, billed: Decimal | None
    ) -> Problem | None:
        price = new.usd_per_hour * nodes + (billed or 0)
        if budget is None or not nodes or price <= budget:
            return None
        return error(
            "over_budget",
            f"existing nodes have room for {self.there}, and {plural(nodes, 'new node')} of {new.instance_type} would "
            f"bring the price to {rate(price)}: the budget is {rate(budget)}",
            hint="raise --budget, or free a GPU: 'kubectl describe nodes' shows who requests what",
        )

    @property
    def _each(self) -> int:
        """How many replicas a new node has room for."""
        return self.new.accelerator_count // self.gpus if self.new else 0

    def _shortage(self, replicas: int) -> Problem:
        several = (
            f"{plural(replicas, 'replica')} of {self.gpus} x {self.accelerator}: the cluster has room for {self.there}"
        )
        one = f"no node has {self.gpus} x {self.accelerator} free; the most is {self.most_free}"
        return error("no_free_gpus", several if self.there else one, FREE_A_GPU)


class Placement(Frozen, frozen=True, kw_only=True):
    """What decides where a deployment's pods run: the cluster's nodes, what its pools may add, and earlier selectors.

    `used` are those of the deployment's revisions, by number. `types` are the instance types of the catalog.
    """

    nodes: Sequence[Node]
    growth: Callable[[], Growth]
    used: Mapping[int, NodeSelector]
    types: Mapping[str, InstanceType]
    labels: NodeLabels

    def room(self, selector: NodeSelector, accelerator: str, gpus: int) -> Room:
        """Return the room for pods that select nodes of an accelerator this way."""
        known = (node for node in self.nodes if node.accelerator == accelerator)
        free = [node.free for node in known if selector.accepts(node.instance_type, node.selector)]
        added = self.growth().added(accelerator, gpus) if selector.types else ()
        new = (item for item in added if item.instance_type in selector.types)
        there = sum(number // gpus for number in free)
        return Room(
            accelerator=accelerator, gpus=gpus, there=there, most_free=max(free, default=0), new=next(new, None)
        )

    def selector(
        self, revision: int, accelerator: str, gpus: int, *, replicas: int, most: int, budget: Decimal | None
    ) -> NodeSelector:
        """Return how a revision's pods select nodes: by an accelerator's label, or by a type that is added.

        A Deployment keeps its selector. Later revisions keep one with an instance type that has the accelerator, even
        if the deployment's own nodes have brought the pool to its limit.

        Raises InputError `accelerator_not_in_cluster`.
        """
        if revision in self.used:
            return self.used[revision]
        kept = (item for item in self.used.values() if any(self._has(kind, accelerator, gpus) for kind in item.types))
        known = (node.selector for node in self.nodes if node.accelerator == accelerator and node.selector is not None)
        if (found := next(kept, None)) is not None:
            return found
        by_label, new = next(known, None), next(iter(self.growth().added(accelerator, gpus)), None)
        if new is None:
            return by_label or self.labels.selector(accelerator)
        if by_label is None or new.instance_type in by_label.types:
            return self.labels.by_type(new.instance_type)
        # Karpenter adds nodes for pods that lose theirs: their price must fit the budget even if there is room now.
        price = new.usd_per_hour * -(-max(replicas, most) // (new.accelerator_count // gpus))
        enough = self.room(by_label, accelerator, gpus).there >= replicas
        if enough and budget is not None and price > budget:
            return by_label
        return replaced(by_label, added=new.instance_type)

    def _has(self, kind: str, accelerator: str, gpus: int) -> bool:
        """Return whether an instance type has so many accelerators of this name."""
        known = self.types.get(kind)
        return known is not None and known.accelerator.name == accelerator and known.accelerator_count >= gpus


def added_usd_per_hour(nodes: Sequence[Node], names: Container[str], catalog: Catalog) -> Decimal:
    """Return the price of those named nodes that Karpenter has added; a node without a known price counts as 0."""
    known = catalog.regions()
    added = [node for node in nodes if node.name in names and node.market and node.region in known]
    regions = tuple({node.region for node in added})
    offers = catalog.offers(regions, ("on-demand", "spot")) if regions else ()
    prices = {(item.region, item.market, item.instance_type.name): item.usd_per_hour for item in offers}
    paid = (prices.get((node.region, _market(node), node.instance_type)) for node in added)
    return sum((price for price in paid if price is not None), Decimal(0))


def _market(node: Node) -> Market:
    return "spot" if node.market == "spot" else "on-demand"


def used_selectors(api: Api, name: str, table: NodeLabels) -> dict[int, NodeSelector]:
    """Return how the pods of a deployment's revisions select nodes, by the revision's number."""
    path = api.path(*PATHS[DEPLOYMENT])
    query = {"labelSelector": f"{label(TAG_NAME)}={name}"}
    found = api.each(path, "looking for the deployment's revisions", lambda item: _selected(item, table), query=query)
    return {number: selector for number, selector in found if selector is not None}


def _selected(item: Reply, table: NodeLabels) -> tuple[int, NodeSelector | None]:
    number = selector_of(item).get(REVISION, "1")
    return int(number), table.of_pod(item.part("spec").part("template").part("spec"))
