"""Connects to SageMaker. boto3 is imported on first use."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING

from tgi_deploy.catalog.store import Store
from tgi_deploy.clock import SystemClock
from tgi_deploy.targets.sagemaker.names import region_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.aws.session import SessionFactory
    from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud


class Connection:
    """One account. `endpoint_url` None is AWS itself; `access_key` replaces the caller's credentials.

    `unsearched` collects (place, kind) → why the search failed.
    """

    def __init__(
        self,
        *,
        secret_of: Callable[[str], Secret],
        endpoint_url: str | None = None,
        access_key: str | None = None,
        unsearched: dict[tuple[str, str], str] | None = None,
    ) -> None:
        self._secret_of = secret_of
        self._endpoint_url, self._access_key = endpoint_url, access_key
        self._unsearched = {} if unsearched is None else unsearched
        self.cloud: Callable[[str], SageMakerCloud] = cache(self._cloud)

    @cached_property
    def sessions(self) -> SessionFactory:
        """Raises InputError `bad_url`."""
        from tgi_deploy.targets.aws.errors import ErrorTable  # noqa: PLC0415 -- commands that ask no cloud load no SDK
        from tgi_deploy.targets.aws.session import SessionFactory  # noqa: PLC0415 -- startup time

        table = ErrorTable.of(Store.behind().json("aws/errors.json"))
        return SessionFactory(table=table, endpoint_url=self._endpoint_url, access_key=self._access_key)

    def api(self, region: str) -> Api:
        from tgi_deploy.targets.aws.api import Api  # noqa: PLC0415 -- see sessions
        from tgi_deploy.targets.aws.retry import Retrier  # noqa: PLC0415 -- startup time

        return Api(region=region, sessions=self.sessions, retrier=Retrier(SystemClock()))

    def _cloud(self, place: str) -> SageMakerCloud:
        from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud  # noqa: PLC0415 -- see sessions

        return SageMakerCloud(api=self.api(region_of(place)), secret_of=self._secret_of, unsearched=self._unsearched)
