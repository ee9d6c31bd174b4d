"""What a namespace allows: how many more pods by its ResourceQuotas, and whether pods may run as root.

https://kubernetes.io/docs/concepts/policy/resource-quotas/
https://kubernetes.io/docs/concepts/security/pod-security-admission/
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import error, warning
from tgi_deploy.targets.kubernetes.errors import ClusterRefusedError
from tgi_deploy.targets.kubernetes.manifests import label
from tgi_deploy.targets.kubernetes.nodes import NOT_ENDED, no_room_to_grow
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.resource import TAG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.reply import Reply

HINT: Final = (
    "remove what is no longer needed, or ask the cluster's administrator for more; "
    "'kubectl describe resourcequota' shows it"
)
_PODS: Final = ("pods", "count/pods")
_OF_LIMITS: Final = "limits."
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"
_RESTRICTED: Final = "restricted"
# Scopes that never match this tool's pods: those have requests, no deadline, and no cross-namespace affinity.
_OTHER_SCOPES: Final = frozenset({"BestEffort", "Terminating", "CrossNamespacePodAffinity", "VolumeAttributesClass"})
_PRIORITY: Final = "PriorityClass"
_NO_LIMIT: Final = Decimal("Infinity")
# Above any quantity: at most 2 ** 63 - 1 of the largest unit.
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_BEYOND: Final = Decimal("1e40")
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal(10) ** 3,
    **{letter: Decimal(10) ** (3 * power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip


class Limit(Frozen, frozen=True, kw_only=True):
    """The limit of a quota for one resource. `priority`: it is for some priority classes only."""

    quota: str
    resource: str
    used: str
    hard: str
    priority: bool

    @property
    def left(self) -> Decimal:
        hard, used = amount(self.hard), amount(self.used)
        return hard - used if used.is_finite() else _NO_LIMIT

    def __str__(self) -> str:
        return f"{self.resource}, {self.used} of {self.hard} ({self.quota})"


def limits(api: Api) -> tuple[Limit, ...]:
    """Return the limits of the namespace's quotas, except those for other kinds of pods."""
    path = api.path("/api/v1", "resourcequotas")
    quotas = api.each(path, "looking for the namespace's quotas", lambda quota: tuple(_limits(quota)))
    return tuple(limit for quota in quotas for limit in quota)


def _limits(quota: Reply) -> Iterator[Limit]:
    spec, status = quota.optional_part("spec"), quota.optional_part("status")
    terms = spec.optional_part("scopeSelector").optional_parts("matchExpressions")
    scopes = {*(spec.texts("scopes") if spec.has("scopes") else ()), *(term.text("scopeName") for term in terms)}
    if scopes & _OTHER_SCOPES:
        return
    used = status.table("used")
    for resource, hard in sorted(status.table("hard").items()):
        yield Limit(
            quota=quota.part("metadata").text("name"),
            resource=resource,
            used=used.get(resource, "0"),
            hard=hard,
            priority=_PRIORITY in scopes,
        )


def amount(text: str) -> Decimal:
    """Return a quantity as a number: infinity if it can't be read or is larger than Kubernetes allows."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return _NO_LIMIT
    number, exponent, suffix = found.groups()
    try:
        read = Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]
    except ArithmeticError:
        return _NO_LIMIT
    return read if read < _BEYOND else _NO_LIMIT


def needs(pod: Reply) -> Mapping[str, Decimal]:
    """Return what a pod counts toward quotas, by its specification."""
    return _sum(_of_pod(pod))


def _sum(amounts: Iterable[tuple[str, Decimal]]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for name, number in amounts:
        found[name] = found.get(name, Decimal(0)) + number
    return found


def _of_pod(spec: Reply) -> Iterator[tuple[str, Decimal]]:
    yield from ((name, Decimal(1)) for name in _PODS)
    for container in spec.optional_parts("containers"):
        for name, text in container.optional_part("resources").table("requests").items():
            yield f"requests.{name}", amount(text)
            yield name, amount(text)


def refused_root(api: Api, pod: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the error if this pod runs as root and the namespace refuses that; nothing if it can't be read."""
    if pod["securityContext"].get("runAsUser") != 0:
        return
    namespace = api.place.namespace
    try:
        enforced = api.get(api.path("/api/v1", "").removesuffix("/"), "reading the namespace", _enforced)
    except ClusterRefusedError:
        return
    if enforced == _RESTRICTED:
        yield error(
            "admission_refused",
            f"only root can start this image, and the namespace {namespace} enforces the Pod Security Standard "
            f"{_RESTRICTED!r}: {_ENFORCED}",
            "choose another with --namespace, have its administrator set 'baseline', or choose an --engine-version "
            "that an ordinary user can start: docs/kubernetes.md names them",
        )


def _enforced(item: Reply) -> str:
    return str(item.part("metadata").table("labels").get(_ENFORCED, ""))


def short_of_quota(
    api: Api, each: Mapping[str, Decimal], number: int, *, most: int = 0, running: int = 0, replaces: str = ""
) -> Iterator[Problem]:
    """Yield an error if the quotas don't allow `number` more pods, and warnings about quotas that can't be compared.

    `each`: what one pod `needs`. `most`: the largest number of more pods within a range; if that many are not allowed,
    a warning says so. `running`: the pods that run now. `replaces`: the name of a deployment whose pods are removed
    first.
    """
    try:
        found = limits(api)
    except ClusterRefusedError as refused:
        yield warning("not_checked", f"{refused.message}: quotas are not compared", hint=refused.hint)
        return
    relevant = [limit for limit in found if limit.resource in each]
    freed = _freed(api, replaces) if relevant and replaces else {}

    too_little = f"the ResourceQuota of {api.place.namespace} leaves too little"
    if number > 0 and (what := _lacking(relevant, each, number, freed)):
        yield error("cluster_quota", f"{too_little}: {what}", HINT)
    elif most > number and (what := _lacking(relevant, each, most, freed)):
        yield no_room_to_grow(most + running, f"{too_little}: {what}")
    unset = sorted({limit.resource for limit in found if limit.resource.startswith(_OF_LIMITS) and not limit.priority})
    if unset:
        message = f"the pods set no {', '.join(unset)}, for which {api.place.namespace} has a ResourceQuota"
        hint = "without defaults by a LimitRange, the cluster refuses them: 'kubectl describe limitrange' shows those"
        yield warning("not_checked", message, hint)
    by_class = sorted({limit.quota for limit in relevant if limit.priority})
    if by_class:
        yield warning("not_checked", f"quotas for priority classes are not compared: {', '.join(by_class)}", HINT)


def allowed(api: Api, each: Mapping[str, Decimal], most: int) -> int:
    """Return how many more pods the quotas allow, at most `most`. Quotas that can't be read are ignored."""
    try:
        relevant = [limit for limit in limits(api) if limit.resource in each]
    except ClusterRefusedError:
        return most
    return next((number for number in range(most, 0, -1) if not _lacking(relevant, each, number, {})), 0)


def _lacking(relevant: Iterable[Limit], each: Mapping[str, Decimal], number: int, freed: Mapping[str, Decimal]) -> str:
    """Return the limits that so many pods would exceed, as text; empty if none."""
    return "; ".join(
        f"{limit}, and {_plain(each[limit.resource] * number)} needed"
        for limit in relevant
        if not limit.priority and limit.left + freed.get(limit.resource, Decimal(0)) < each[limit.resource] * number
    )


def _freed(api: Api, name: str) -> Mapping[str, Decimal]:
    """Return what the pods of a deployment count toward quotas."""
    query = {"labelSelector": f"{label(TAG_NAME)}={name}", "fieldSelector": NOT_ENDED}
    path, doing = api.path("/api/v1", "pods"), "looking for the deployment's pods"
    pods = api.each(path, doing, lambda pod: tuple(_of_pod(pod.part("spec"))), query=query)
    return _sum(needed for pod in pods for needed in pod)


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
