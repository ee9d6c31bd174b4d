"""Connects to clusters. The packages of the extra are imported on first use."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING

from tgi_deploy.targets.kubernetes.kubeconfig import chosen_place, cluster_of
from tgi_deploy.targets.kubernetes.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.errors import InputError
    from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
    from tgi_deploy.targets.kubernetes.forward import Forwards
    from tgi_deploy.targets.kubernetes.options import KubernetesOptions
    from tgi_deploy.targets.kubernetes.transport import Transport


class Clusters:
    """Clusters by place, with credentials from the kubeconfig at the time of the first call.

    `environ` is called at the same time, and returns the variables that name the kubeconfig. `unsearched` collects
    (place, kind) → why the search failed.
    """

    def __init__(self, environ: Callable[[], Mapping[str, str]], unsearched: dict[tuple[str, str], str]) -> None:
        self._unsearched = unsearched
        self._environ = cache(environ)
        self.cloud: Callable[[str], KubernetesCloud] = cache(self._cloud)
        self.transport: Callable[[str], Transport] = cache(self._transport)

    def place(self, options: KubernetesOptions) -> str:
        """Return the place that the options choose. Raises InputError as `chosen_place` does."""
        try:
            return str(chosen_place(self._environ(), options.kube_context or "", options.namespace or ""))
        except ImportError as error:
            raise _extra_missing(error) from error

    @cached_property
    def forwards(self) -> Forwards:
        try:
            from tgi_deploy.targets.kubernetes.forward import Forwards  # noqa: PLC0415 -- few commands forward a port
        except ImportError as error:
            raise _extra_missing(error) from error
        return Forwards(self.cloud, self.transport)

    def _cloud(self, place: str) -> KubernetesCloud:
        from tgi_deploy.targets.kubernetes.api import Api  # noqa: PLC0415 -- most commands ask no cluster
        from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud  # noqa: PLC0415 -- startup time

        api = Api(place=Place.of(place), sender=self.transport(place))
        return KubernetesCloud(api=api, unsearched=self._unsearched)

    def _transport(self, place: str) -> Transport:
        try:
            from tgi_deploy.targets.kubernetes.transport import Transport  # noqa: PLC0415 -- startup time

            environ = self._environ()
            return Transport(cluster_of(Place.of(place), environ), environ)
        except ImportError as error:
            raise _extra_missing(error) from error


def _extra_missing(error: ImportError) -> InputError:
    from tgi_deploy.extras import extra_missing  # noqa: PLC0415 -- only an installation without it pays for it

    return extra_missing("kubernetes", "connecting to a cluster", error)
