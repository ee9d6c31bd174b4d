"""The GPUs that a cluster's nodes have left: allocatable minus what pods request, by card."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError, error, warning
from tgi_deploy.targets.kubernetes.manifests import label
from tgi_deploy.targets.protocol import Supplied
from tgi_deploy.text import plural, printable, rate
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.plan_options import MOST_REPLICAS
from tgi_deploy.values.resource import TAG_ID, TAG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.cards import Cards, NodeSelector
    from tgi_deploy.targets.kubernetes.pools import Growth
    from tgi_deploy.targets.reply import Reply

NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_MORE: Final = "remove what is no longer needed, or add a node; 'kubectl describe nodes' shows who requests what"
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})


class Node(Frozen, frozen=True, kw_only=True):
    """A node with GPUs. `why_not`: why it takes no pods now; `selector` is None if its card is unknown."""

    name: str
    gpus: int
    requested: int
    accelerator: str
    selector: NodeSelector | None
    instance_type: str
    region: str
    why_not: str

    @property
    def free(self) -> int:
        return 0 if self.why_not or self.selector is None else max(0, self.gpus - self.requested)


def read_nodes(api: Api, cards: Cards, catalog: Catalog, *, ours: Callable[[Mapping[str, str]], bool]) -> list[Node]:
    """Return the nodes with GPUs, by name. The requests of pods with labels that are `ours` do not count."""
    gpus = [item for item in _items(api) if _offers(item, cards)]
    requested = _requested(api, cards.resource, ours) if gpus else Counter[str]()
    return sorted((_node(item, cards, catalog, requested) for item in gpus), key=lambda node: node.name)


def nodes_without_plugin(api: Api, cards: Cards, catalog: Catalog) -> tuple[str, ...]:
    """Return the nodes which, by their labels, have a card that they don't offer to pods, by name."""
    described = (item for item in _items(api) if not _offers(item, cards))
    found = ((item.part("metadata"), item.part("metadata").table("labels")) for item in described)
    return tuple(sorted(
        printable(about.text("name"))
        for about, labels in found
        if cards.of_labels(labels) or _of_type(labels.get(cards.instance_label, ""), cards, catalog)
    ))  # fmt: skip


def _items(api: Api) -> tuple[Reply, ...]:
    return api.items(api.path("/api/v1", "nodes", everywhere=True), "looking for the cluster's nodes")


def _offers(item: Reply, cards: Cards) -> int:
    return _count(item.optional_part("status").optional_part("allocatable"), cards.resource)


def _node(item: Reply, cards: Cards, catalog: Catalog, requested: Counter[str]) -> Node:
    metadata, spec, status = item.part("metadata"), item.optional_part("spec"), item.part("status")
    labels, name = metadata.table("labels"), metadata.text("name")
    kind = labels.get(cards.instance_label, "")
    accelerator, selector = cards.of_labels(labels) or _of_type(kind, cards, catalog) or ("", None)
    return Node(
        name=printable(name),
        gpus=_count(status.part("allocatable"), cards.resource),
        requested=requested[name],
        accelerator=accelerator,
        selector=selector,
        instance_type=kind,
        region=labels.get(cards.region_label, ""),
        why_not=_why_not(spec, status, cards.resource),
    )


def _of_type(kind: str, cards: Cards, catalog: Catalog) -> tuple[str, NodeSelector] | None:
    """Return the accelerator by the name of the node's instance type."""
    known = catalog.instance_types().get(kind)
    return None if known is None else (known.accelerator.name, cards.by_type(kind))


def _why_not(spec: Reply, status: Reply, resource: str) -> str:
    if spec.flag("unschedulable"):
        return "it is cordoned"
    conditions = {item.text("type"): item.optional_text("status") for item in status.optional_parts("conditions")}
    if conditions.get("Ready", "True") != "True":
        return "it is not ready"
    taint = untolerated(spec, resource)
    return f"it has the taint {printable(taint)}" if taint else ""


def untolerated(spec: Reply, resource: str) -> str:
    """Return the first taint of a node, or of a pool's nodes, that keeps this tool's pods out; empty if none does."""
    taints = [item for item in spec.optional_parts("taints") if item.optional_text("effect") in _KEEPS_OUT]
    strange = (item.text("key") for item in taints if not (item.text("key") == resource and _is_tolerated(item)))
    return next(strange, "")


def _is_tolerated(taint: Reply) -> bool:
    return taint.optional_text("effect") == "NoSchedule"


def _requested(api: Api, resource: str, ours: Callable[[Mapping[str, str]], bool]) -> Counter[str]:
    """Return the GPUs that running and waiting pods request, by node."""
    found = Counter[str]()
    path = api.path("/api/v1", "pods", everywhere=True)
    for item in api.items(path, "looking for the pods of all nodes", query={"fieldSelector": NOT_ENDED}):
        spec = item.part("spec")
        if spec.has("nodeName") and not ours(item.part("metadata").table("labels")):
            found[spec.text("nodeName")] += _of_pod(spec, resource)
    return found


def _of_pod(spec: Reply, resource: str) -> int:
    """Return a pod's GPUs: those of all its containers, or of one that runs before them if that has more."""
    each, before = (
        [
            _count(item.optional_part("resources").optional_part("limits"), resource)
            for item in spec.optional_parts(member)
        ]
        for member in ("containers", "initContainers")
    )
    return max(sum(each), *before, 0)


def _count(table: Reply, resource: str) -> int:
    """Return an amount of GPUs, which are whole numbers; 0 for anything else."""
    text = str(table.content.get(resource, "0"))
    return int(text) if text.isascii() and text.isdigit() else 0


def room_on(nodes: Sequence[Node], kind: str, gpus: int) -> int:
    """Return how many replicas of so many GPUs the nodes of an instance type have room for."""
    return sum(node.free // gpus for node in nodes if node.instance_type == kind)


def is_deployment_of(name: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: labels.get(label(TAG_NAME)) == name


def is_any_deployment(labels: Mapping[str, str]) -> bool:
    """Return whether this tool has created the pod: the same `up` again must find the GPUs that it uses."""
    return label(TAG_ID) in labels


def supplied(nodes: Sequence[Node], place: str, catalog: Catalog, new: Growth) -> Supplied:
    """Return the most GPUs of each card that one node has free, and the new nodes: a replica can't span nodes.

    Raises InputError `no_gpu_nodes`, `no_free_gpus`, `unknown_card`.
    """
    if not nodes and not new.machines:
        raise InputError(
            "no_gpu_nodes",
            "; ".join((f"no node of {place} offers GPUs", *(item.message for item in new.notices))),
            hint="add a node group with GPUs, and NVIDIA's device plugin: 'kubectl describe node' must show "
            "nvidia.com/gpu under Allocatable",
        )
    most: dict[str, int] = {}
    for node in nodes:
        if node.free:
            most[node.accelerator] = max(most.get(node.accelerator, 0), node.free)
    if not most and not new.machines:
        raise _none_free(nodes, new.notices)
    there = [f"{number}x{card}" for card, number in sorted(most.items())]
    added = {name: replaced(item, needed=name not in there) for name, item in sorted(new.machines.items())}
    machines = (-(-_free(nodes, card) // number) for card, number in most.items())
    return Supplied(
        hardware=",".join((*there, *(name for name, item in added.items() if item.needed))),
        machines=max((*machines, *(min(item.most, MOST_REPLICAS) for item in added.values()))),
        place=place,
        added=added,
        notices=(*_notices(nodes, catalog), *new.notices),
    )


def _free(nodes: Sequence[Node], card: str) -> int:
    return sum(node.free for node in nodes if node.accelerator == card)


def room(nodes: Sequence[Node], card: str, gpus: int) -> int:
    """Return how many replicas of so many GPUs the nodes have room for: each runs on one node."""
    return sum(node.free // gpus for node in nodes if node.accelerator == card)


def short_of_gpus(nodes: Sequence[Node], card: str, gpus: int, replicas: int) -> Problem | None:
    """Return why so many replicas have no room; None if there is."""
    fits = room(nodes, card, gpus)
    if fits >= replicas:
        return None
    most = max((node.free for node in nodes if node.accelerator == card), default=0)
    several = f"{plural(replicas, 'replica')} of {gpus} x {card}: the cluster has room for {fits}"
    return error("no_free_gpus", several if fits else f"no node has {gpus} x {card} free; the most is {most}", _MORE)


def _none_free(nodes: Sequence[Node], notices: Sequence[Problem]) -> InputError:
    if all(node.selector is None for node in nodes):
        named = ", ".join(node.name for node in nodes[:3])
        return InputError(
            "unknown_card",
            f"no label says which GPUs the nodes have ({named})",
            hint="install NVIDIA's GPU feature discovery, which labels them, or name them with --hardware NxGPU",
        )
    return InputError(
        "no_free_gpus",
        "; ".join(
            (
                f"no GPU of the cluster is free: {'; '.join(map(_in_words, nodes[:5]))}",
                *(item.message for item in notices),
            )
        ),
        hint=_MORE,
    )


def _in_words(node: Node) -> str:
    if node.selector is None:
        return f"{node.name}: its card is unknown"
    return f"{node.name}: {node.why_not or f'{node.requested} of {node.gpus} {node.accelerator} are requested'}"


def _notices(nodes: Sequence[Node], catalog: Catalog) -> Iterator[Problem]:
    for node in nodes:
        if node.why_not or node.selector is None:
            yield warning("node_left_out", f"planning without {_in_words(node)}")
    for kind, region in sorted({(node.instance_type, node.region) for node in nodes if node.free}):
        if region in catalog.regions() and kind in catalog.instance_types():
            for offer in catalog.offers((region,), ("on-demand",)):
                if offer.instance_type.name == kind:
                    number = sum(1 for node in nodes if (node.instance_type, node.region) == (kind, region))
                    yield warning(
                        "node_price",
                        f"{plural(number, 'node')} of {kind} in {region}: {rate(offer.usd_per_hour)} each on demand, "
                        "with or without this deployment",
                    )
