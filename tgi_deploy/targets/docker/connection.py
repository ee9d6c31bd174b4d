"""Connects to Docker hosts. Docker's package is imported on first use."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tgi_deploy.catalog.store import Store
from tgi_deploy.clock import SystemClock
from tgi_deploy.targets.docker.endpoint import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.reconcile.ports import Listener
    from tgi_deploy.targets.docker.api import Api
    from tgi_deploy.targets.docker.cloud import DockerCloud


class Hosts:
    """Docker hosts by place, with certificates and secrets from the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.cloud = cache(self._cloud)

    def pull(self, place: str, image: str, listener: Listener) -> None:
        """Pull an image, reporting progress."""
        api = self._api(place)
        from tgi_deploy.targets.docker.pull import pull  # noqa: PLC0415 -- needs docker's package, as _api has checked

        pull(api, image, listener=listener, clock=SystemClock())

    def _cloud(self, place: str) -> DockerCloud:
        api = self._api(place)
        from tgi_deploy.targets.docker.cloud import DockerCloud  # noqa: PLC0415 -- startup time

        return DockerCloud(api=api)

    def _api(self, place: str) -> Api:
        """Raises InputError `extra_missing` if the extra is not installed."""
        try:
            from tgi_deploy.targets.docker.api import Api  # noqa: PLC0415 -- most commands ask no Docker host
            from tgi_deploy.targets.docker.errors import ErrorTable  # noqa: PLC0415 -- startup time
        except ImportError as error:
            from tgi_deploy.extras import extra_missing  # noqa: PLC0415 -- only an installation without it pays for it

            raise extra_missing("docker", "connecting to a Docker host", error) from error
        table = ErrorTable.of(Store.behind().json("docker/errors.json"))
        return Api(endpoint=endpoint_of(place, self._environ), table=table, environ=self._environ)
