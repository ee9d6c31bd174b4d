"""The GPUs of nodes by their labels, which are data in `profiles/kubernetes/nodes.json`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply


class NodeSelector(Frozen, frozen=True, kw_only=True):
    """Selects the nodes whose `label` has one of the values. `resource`: the name by which pods request their GPUs.

    `added`: an instance type that a pool may add, whose nodes are selected, too. `type_label`: the label with the
    instance type, which a node has from its creation on.
    """

    label: str
    values: tuple[str, ...]
    resource: str
    type_label: str
    added: str = ""

    @property
    def types(self) -> frozenset[str]:
        """The instance types by which pods ask for nodes."""
        named = self.values if self.label == self.type_label else ()
        return frozenset({*named, self.added} - {""})

    def accepts(self, kind: str, own: NodeSelector | None) -> bool:
        """Return whether it selects a node of this instance type that `own` would select."""
        labeled = own is not None and own.label == self.label and bool({*own.values} & {*self.values})
        return labeled or kind in self.types

    @property
    def terms(self) -> Mapping[str, Any]:
        """The part of a pod that selects them."""
        if len(self.values) == 1 and not self.added:
            return {"nodeSelector": {self.label: self.values[0]}}
        either = [(self.label, self.values), *([(self.type_label, (self.added,))] if self.added else ())]
        named = [{"key": label, "operator": "In", "values": list(values)} for label, values in either]
        terms = {"nodeSelectorTerms": [{"matchExpressions": [item]} for item in named]}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


class NodeLabels:
    """The labels of nodes and what their values mean. Of those that name a GPU, the first that a node has decides."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    @classmethod
    def packaged(cls) -> NodeLabels:
        return cls(Store.behind().json("kubernetes/nodes.json"))

    @property
    def resource(self) -> str:
        name: str = self._document["resource"]["name"]
        return name

    @property
    def instance_label(self) -> str:
        name: str = self._document["instance_type"]["label"]
        return name

    @property
    def region_label(self) -> str:
        name: str = self._document["instance_type"]["region"]
        return name

    @property
    def zone_label(self) -> str:
        name: str = self._document["instance_type"]["zone"]
        return name

    @property
    def karpenter(self) -> Mapping[str, Any]:
        """Karpenter's names: its `api`, the group of a `node_class` on EC2, the meaning of its `labels`, `gpu_names`.

        `pool` and `market` are the labels with a node's NodePool and its market.
        """
        found: Mapping[str, Any] = self._document["karpenter"]
        return found

    @cached_property
    def _tables(self) -> Mapping[str, Mapping[str, str]]:
        return {row["label"]: row["accelerators"] for row in self._document["labels"]}

    def selector(self, accelerator: str) -> NodeSelector:
        """Return a selector for an accelerator in a cluster whose nodes' labels are not known.

        Raises InputError `accelerator_not_in_cluster`.
        """
        label, known = next(iter(self._tables.items()))
        values = tuple(sorted(value for value, name in known.items() if name == accelerator))
        if not values:
            raise InputError(
                "accelerator_not_in_cluster",
                f"the label of nodes with {accelerator} is not known",
                hint="plan for another GPU with --hardware NxGPU; 'kubectl get nodes --show-labels' shows them",
            )
        return self._by(label, values)

    def by_type(self, kind: str) -> NodeSelector:
        """Return the selector for an instance type."""
        return self._by(self.instance_label, (kind,))

    def of_pod(self, spec: Reply) -> NodeSelector | None:
        """Return the selector in the specification of one of this tool's pods; None if it has none."""
        plain = spec.table("nodeSelector")
        chosen: list[tuple[str, tuple[str, ...]]] = [(key, (value,)) for key, value in plain.items()]
        affinity = spec.optional_part("affinity").optional_part("nodeAffinity")
        required = affinity.optional_part("requiredDuringSchedulingIgnoredDuringExecution")
        for term in required.optional_parts("nodeSelectorTerms"):
            expressions = (item for item in term.optional_parts("matchExpressions") if item.text("operator") == "In")
            chosen += [(item.text("key"), item.texts("values")) for item in expressions]
        known = [item for item in chosen if item[0] in {*self._tables, self.instance_label}]
        if not known:
            return None
        (label, values), *more = known
        added = next((kinds[0] for name, kinds in more if name == self.instance_label and kinds), "")
        return self._by(label, values, added=added)

    def _by(self, label: str, values: tuple[str, ...], *, added: str = "") -> NodeSelector:
        return NodeSelector(
            label=label, values=values, resource=self.resource, type_label=self.instance_label, added=added
        )

    def of_labels(self, labels: Mapping[str, str]) -> tuple[str, NodeSelector] | None:
        """Return a node's accelerator and the selector for such nodes; None if its labels do not name one."""
        for label, known in self._tables.items():
            value = labels.get(label, "")
            if value in known:
                return known[value], self._by(label, (value,))
        return None
