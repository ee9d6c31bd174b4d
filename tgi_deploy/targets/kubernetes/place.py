"""A place in a cluster: `kubernetes:NAMESPACE@CONTEXT`, or `kubernetes:NAMESPACE@` from inside the cluster."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.kubernetes.options import NAME
from tgi_deploy.values.base import Frozen, replaced

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem

_KUBECTL: Final = re.compile(r"\bkubectl (?!config |--)")


class Place(Frozen, frozen=True, kw_only=True):
    """A namespace of the cluster of a kubeconfig's context. Without one, of the cluster that this program runs in."""

    namespace: str
    context: str = ""

    @classmethod
    def of(cls, text: str) -> Place:
        namespace, _, context = text.partition(":")[2].partition("@")
        return cls(namespace=namespace or "default", context=context)

    def __str__(self) -> str:
        return f"{NAME}:{self.namespace}@{self.context}"

    @property
    def words(self) -> tuple[str, ...]:
        """The options of `kubectl`."""
        context = ("--context", self.context) if self.context else ()
        return (*context, "--namespace", self.namespace)

    def commands(self, text: str) -> str:
        """Return a text whose `kubectl` commands have this place's options, and its name for {namespace}."""
        kubectl = f"{shlex.join(('kubectl', *self.words))} "
        return _KUBECTL.sub(lambda _found: kubectl, text).replace("{namespace}", self.namespace)

    def problem(self, problem: Problem) -> Problem:
        """Return a problem with such commands in its hint."""
        return replaced(problem, hint=problem.hint and self.commands(problem.hint))
