"""Connects to EC2: sessions, regions and account lookups. boto3 is imported on first use."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING

from tgi_deploy.catalog.store import Store
from tgi_deploy.clock import SystemClock
from tgi_deploy.targets.ec2.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.catalog.quotas import Quota
    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.aws.session import SessionFactory
    from tgi_deploy.targets.aws.session_manager import SessionManager
    from tgi_deploy.targets.ec2.inspection import Inspector
    from tgi_deploy.targets.ec2.region import Region


class Connection:
    """One account. `endpoint_url` None is AWS itself; `access_key` replaces the caller's credentials.

    `unsearched` collects (region, kind) → why the search failed. `plugin` replaces AWS's Session Manager plugin.
    """

    def __init__(
        self,
        *,
        secret_of: Callable[[str], Secret],
        endpoint_url: str | None = None,
        access_key: str | None = None,
        unsearched: dict[tuple[str, str], str] | None = None,
        plugin: Sequence[str] = (),
    ) -> None:
        self._secret_of = secret_of
        self._endpoint_url, self._access_key = endpoint_url, access_key
        self._plugin = plugin
        self._unsearched = {} if unsearched is None else unsearched
        self.region = cache(self._region)

    @cached_property
    def sessions(self) -> SessionFactory:
        """Raises InputError `bad_url`."""
        from tgi_deploy.targets.aws.errors import ErrorTable  # noqa: PLC0415 -- commands that ask no cloud load no SDK
        from tgi_deploy.targets.aws.session import SessionFactory  # noqa: PLC0415 -- startup time

        table = ErrorTable.of(Store.behind().json("aws/errors.json"))
        return SessionFactory(table=table, endpoint_url=self._endpoint_url, access_key=self._access_key)

    @cached_property
    def _image_parameters(self) -> list[dict[str, str]]:
        parameters: list[dict[str, str]] = Store.behind().json("aws/amis.json")["parameters"]
        return parameters

    @cached_property
    def session_manager(self) -> SessionManager:
        from tgi_deploy.targets.aws.session_manager import PLUGIN, SessionManager  # noqa: PLC0415 -- see sessions

        return SessionManager(self._api, plugin=self._plugin or PLUGIN)

    def _api(self, region: str) -> Api:
        from tgi_deploy.targets.aws.api import Api  # noqa: PLC0415 -- see sessions
        from tgi_deploy.targets.aws.retry import Retrier  # noqa: PLC0415 -- startup time

        return Api(region=region, sessions=self.sessions, retrier=Retrier(SystemClock()))

    def _region(self, name: str) -> Region:
        from tgi_deploy.targets.ec2.cloud import Ec2Cloud  # noqa: PLC0415 -- startup time

        return Ec2Cloud(
            api=self._api(name),
            image_parameters=self._image_parameters,
            secret_of=self._secret_of,
            unsearched=self._unsearched,
        )

    def survey(
        self,
        catalog: Callable[[], Catalog],
        profiles_dir: Path | None,
        *,
        hub_access: Callable[[str, str], None] | None,
        hub_skipped_reason: str,
        hub_token: bool,
    ) -> Survey:
        """Return the account survey; the hub arguments are those of `Survey`."""
        types = cache(lambda: catalog().instance_types())
        return Survey(
            inspector=cache(self._inspector),
            quotas=cache(lambda: _quotas(profiles_dir)),
            vcpus=lambda name: types()[name].vcpus if name in types() else None,
            hub_access=hub_access,
            hub_skipped_reason=hub_skipped_reason,
            hub_token=hub_token,
        )

    def _inspector(self, region: str) -> Inspector:
        from tgi_deploy.targets.ec2.account_probe import Ec2Inspector  # noqa: PLC0415 -- see sessions

        made = Ec2Inspector(region=region, sessions=self.sessions)
        made.warm_up()
        return made


def _quotas(profiles_dir: Path | None) -> Mapping[str, Quota]:
    from tgi_deploy.catalog.quotas import read_quotas  # noqa: PLC0415 -- only looks at an account read them

    return read_quotas(profiles_dir)
