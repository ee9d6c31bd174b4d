"""The GPUs that a cluster's nodes have left: allocatable minus what pods request, by accelerator."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from tgi_deploy.errors import InputError, warning
from tgi_deploy.targets.kubernetes.manifests import label
from tgi_deploy.targets.kubernetes.place import Place
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
    from tgi_deploy.targets.kubernetes.node_labels import NodeLabels, NodeSelector
    from tgi_deploy.targets.kubernetes.pools import Growth
    from tgi_deploy.targets.reply import Reply

_T = TypeVar("_T")
NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
FREE_A_GPU: Final = "remove what is no longer needed, or add a node; 'kubectl describe nodes' shows who requests what"
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})


def no_room_to_grow(most: int, why: str) -> Problem:
    """Return the warning that a range of replicas ends above the room that there is now."""
    text = f"not all of at most {plural(most, 'replica')} can start now: {why}"
    return warning("no_room_to_grow", text, "more start only once there is room for them")


class Node(Frozen, frozen=True, kw_only=True):
    """A node with GPUs. `why_not`: why it takes no pods now; `selector` is None if its accelerator is unknown.

    `market`: how Karpenter rents it, `on-demand` or `spot`; empty for a node that Karpenter did not add.
    """

    name: str
    gpus: int
    requested: int
    accelerator: str
    selector: NodeSelector | None
    instance_type: str
    region: str
    market: str
    why_not: str

    @property
    def free(self) -> int:
        return 0 if self.why_not or self.selector is None else max(0, self.gpus - self.requested)


def read_nodes(
    api: Api, table: NodeLabels, catalog: Catalog, *, ours: Callable[[Mapping[str, str]], bool]
) -> list[Node]:
    """Return the nodes with GPUs, by name. The requests of pods with labels that are `ours` do not count."""
    found = [node for node in _each(api, lambda item: _node(item, table, catalog)) if node.gpus]
    requested = _requested(api, table.resource, ours) if found else Counter[str]()
    return sorted((replaced(node, requested=requested[node.name]) for node in found), key=lambda node: node.name)


def nodes_without_plugin(api: Api, table: NodeLabels, catalog: Catalog) -> tuple[str, ...]:
    """Return the names of the nodes whose labels show an accelerator that they don't offer to pods."""
    found = _each(api, lambda item: _node(item, table, catalog))
    return tuple(sorted(node.name for node in found if not node.gpus and node.selector is not None))


def _each(api: Api, read: Callable[[Reply], _T]) -> tuple[_T, ...]:
    return api.each(api.path("/api/v1", "nodes", everywhere=True), "looking for the cluster's nodes", read)


def _node(item: Reply, table: NodeLabels, catalog: Catalog) -> Node:
    """Return a node as if its pods requested nothing."""
    metadata, spec, status = item.part("metadata"), item.optional_part("spec"), item.optional_part("status")
    labels = metadata.table("labels")
    kind = labels.get(table.instance_label, "")
    accelerator, selector = table.of_labels(labels) or _of_type(kind, table, catalog) or ("", None)
    return Node(
        name=printable(metadata.text("name")),
        gpus=_count(status.optional_part("allocatable"), table.resource),
        requested=0,
        accelerator=accelerator,
        selector=selector,
        instance_type=kind,
        region=labels.get(table.region_label, ""),
        market=labels.get(table.karpenter["market"], "") if table.karpenter["pool"] in labels else "",
        why_not=_why_not(spec, status, table.resource),
    )


def _of_type(kind: str, table: NodeLabels, catalog: Catalog) -> tuple[str, NodeSelector] | None:
    """Return the accelerator by the name of the node's instance type."""
    known = catalog.instance_types().get(kind)
    return None if known is None else (known.accelerator.name, table.by_type(kind))


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

    def read(item: Reply) -> tuple[str, int]:
        spec = item.part("spec")
        counts = spec.has("nodeName") and not ours(item.part("metadata").table("labels"))
        return (printable(spec.text("nodeName")), _of_pod(spec, resource)) if counts else ("", 0)

    path, query = api.path("/api/v1", "pods", everywhere=True), {"fieldSelector": NOT_ENDED}
    found = Counter[str]()
    for name, gpus in api.each(path, "looking for the pods of all nodes", read, query=query):
        found[name] += gpus
    return found


def _of_pod(spec: Reply, resource: str) -> int:
    """Return a pod's GPUs: the sum of its containers', or those of an init container if that has more."""
    each, before = (
        [
            _count(item.optional_part("resources").optional_part("limits"), resource)
            for item in spec.optional_parts(member)
        ]
        for member in ("containers", "initContainers")
    )
    return max(sum(each), *before, 0)


def _count(table: Reply, resource: str) -> int:
    """Return a whole number of GPUs; 0 for anything else."""
    text = str(table.content.get(resource, "0"))
    return int(text) if text.isascii() and text.isdigit() else 0


def is_deployment_of(name: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda labels: labels.get(label(TAG_NAME)) == name


def is_any_deployment(labels: Mapping[str, str]) -> bool:
    """Return whether this tool has created the pod: the same `up` again must find the GPUs that it uses."""
    return label(TAG_ID) in labels


def supplied(nodes: Sequence[Node], place: str, catalog: Catalog, new: Growth) -> Supplied:
    """Return the most GPUs of each accelerator that one node has free, and the new nodes: a replica can't span nodes.

    Raises InputError `no_gpu_nodes`, `no_free_gpus`, `unknown_card`.
    """
    if not nodes and not new.machines:
        raise InputError(
            "no_gpu_nodes",
            "; ".join((f"no node of {place} offers GPUs", *(item.message for item in new.notices))),
            hint=Place.of(place).commands(
                "add a node group with GPUs, and NVIDIA's device plugin: 'kubectl describe node' must show "
                "nvidia.com/gpu under Allocatable"
            ),
        )
    most: dict[str, int] = {}
    for node in nodes:
        if node.free:
            most[node.accelerator] = max(most.get(node.accelerator, 0), node.free)
    if not most and not new.machines:
        raise _none_free(nodes, new.notices, Place.of(place))
    there = [f"{number}x{accelerator}" for accelerator, number in sorted(most.items())]
    added = {name: replaced(item, needed=name not in there) for name, item in sorted(new.machines.items())}
    machines = (-(-_free(nodes, accelerator) // number) for accelerator, number in most.items())
    return Supplied(
        hardware=",".join((*there, *(name for name, item in added.items() if item.needed))),
        machines=max((*machines, *(min(item.most, MOST_REPLICAS) for item in added.values()))),
        place=place,
        added=added,
        notices=(*_notices(nodes, catalog), *new.notices),
    )


def _free(nodes: Sequence[Node], accelerator: str) -> int:
    return sum(node.free for node in nodes if node.accelerator == accelerator)


def _none_free(nodes: Sequence[Node], notices: Sequence[Problem], place: Place) -> InputError:
    if all(node.selector is None for node in nodes):
        named = ", ".join(node.name for node in nodes[:3])
        return InputError(
            "unknown_card",
            f"no label of the nodes names their GPUs ({named})",
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
        hint=place.commands(FREE_A_GPU),
    )


def _in_words(node: Node) -> str:
    if node.selector is None:
        return f"{node.name}: its accelerator is unknown"
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
