"""The catalog of a service that runs engines on its own machines, from `<service>/hosting.json`.

Its instance types are the provider's under other names. `<service>/prices/<region>.json` lists prices; any other one is
derived from the provider's, and is an estimate.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog import prices
from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.catalog.fields import table
from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Value, Where, decode, replaced
from tgi_deploy.values.supply import ExtraPrices, Hosting, Offer, Supply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tgi_deploy.catalog.catalog import DefaultRegion
    from tgi_deploy.catalog.models import MoreModels
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.values.engine import Release
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.request import Market

FILE: Final = "hosting.json"
_MARKET: Final = "on-demand"
_CENT_OF_A_CENT: Final = Decimal("0.0001")


class _DerivedPrices(Value, frozen=True, kw_only=True):
    """`ratios` to the provider's price, by family or by type, which wins."""

    about: str
    confidence: str
    ratios: dict[str, Decimal]


class _VolumePrice(Value, frozen=True, kw_only=True):
    type: str
    times_gp3: Decimal
    source: str


class _Prices(Value, frozen=True, kw_only=True):
    derived: _DerivedPrices
    volume: _VolumePrice


class _Limits(Value, frozen=True, kw_only=True):
    about: str
    answer_s: int
    stream_s: int
    start_s: int
    stop_s: int
    volume_gib: int


class _Container(Value, frozen=True, kw_only=True):
    port: int
    cache: str
    variables: dict[str, str]


class MachineImage(Value, frozen=True, kw_only=True):
    """An image that machines start from. `cuda` is the newest version that its driver supports."""

    name: str
    driver: str
    cuda: str


class HostedImage(Value, frozen=True, kw_only=True):
    """The service's image of a release, without its registry."""

    image: str
    cuda: str


class HostingFile(Value, frozen=True, kw_only=True):
    """The parsed file. `accounts` has the registry's account by region."""

    collected_at: str
    source: str
    service: str
    types_begin_with: str
    types: tuple[str, ...]
    prices: _Prices
    limits: _Limits
    container: _Container
    machine_images: tuple[MachineImage, ...]
    default: str
    releases: dict[str, HostedImage]
    accounts: dict[str, str]

    def machine_image(self, version: str) -> str | None:
        """Return the oldest image whose driver supports the CUDA version of a release; None for an unknown release."""
        found = self.releases.get(version)
        if found is None:
            return None
        fits = (item.name for item in self.machine_images if _number(item.cuda) >= _number(found.cuda))
        return next(fits, self.machine_images[-1].name)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def read_hosting(service: str, store: Store | None = None) -> HostingFile:
    """Return a service's parsed file. Raises InputError `bad_profile`."""
    name = f"{service}/{FILE}"
    return decode((store or Store.behind()).json(name), HostingFile, Where(name))


class HostedCatalog(Catalog):
    """A catalog whose machines, prices, images and default release are those of `service`."""

    def __init__(
        self,
        store: Store,
        more: MoreModels | None,
        engines: Sequence[Engine],
        default_region: DefaultRegion,
        *,
        service: str,
    ) -> None:
        super().__init__(store, more, engines, default_region)
        self._service = service

    @cached_property
    def file(self) -> HostingFile:
        return read_hosting(self._service, self._store)

    @property
    def date(self) -> str:
        return self.file.collected_at

    def instance_types(self) -> Mapping[str, InstanceType]:
        return self._types

    @cached_property
    def _types(self) -> Mapping[str, InstanceType]:
        begin, known = self.file.types_begin_with, super().instance_types()
        return {
            name: replaced(hardware, name=name, status="hosted", quota_on_demand=None, quota_spot=None, driver=None)
            for name in self.file.types
            if (hardware := known.get(name.removeprefix(begin))) is not None
        }

    def instance_type(self, name: str) -> InstanceType:
        """Return an instance type by exact name. Raises `unknown_instance_type`."""
        if name in self._types:
            return self._types[name]
        hosted = f"{self.file.types_begin_with}{name}"
        if hosted in self._types:
            raise InputError(
                "unknown_instance_type", f"{name} is not a machine of {self.file.service}", hint=f"name it {hosted}"
            )
        return super().instance_type(name)

    def regions(self) -> tuple[str, ...]:
        """Regions with prices and with a registry."""
        return tuple(region for region in super().regions() if region in self.file.accounts)

    @cached_property
    def default_release(self) -> str:
        return self.file.default

    @property
    def kind_of_release(self) -> str:
        return f"{self.file.service} image of {self.engine.title}"

    def release_versions(self) -> tuple[str, ...]:
        return tuple(version for version in super().release_versions() if version in self.file.releases)

    def release(self, version: str) -> Release:
        """Return a release with the service's image. Raises `unknown_engine_version` if there is none."""
        found = super().release(version)
        return replaced(found, image=self.file.releases[version].image)

    def supply(self, *, release: str, regions: tuple[str, ...], markets: tuple[Market, ...]) -> Supply:
        found = super().supply(release=release, regions=regions, markets=markets)
        volume = self.file.prices.volume
        return replaced(
            found,
            hosting=self._hosting,
            extra_prices={
                region: ExtraPrices(
                    volume_usd_per_gib_month=extra.volume_usd_per_gib_month * volume.times_gp3,
                    volume_type=volume.type,
                    public_ipv4_usd_per_hour=Decimal(0),
                    load_balancer_usd_per_hour=Decimal(0),
                    estimated=True,
                    source=volume.source,
                    date=self.file.collected_at,
                )
                for region, extra in found.extra_prices.items()
            },
        )

    @property
    def _hosting(self) -> Hosting:
        file = self.file
        return Hosting(
            service=file.service,
            answer_s=file.limits.answer_s,
            stream_s=file.limits.stream_s,
            start_s=file.limits.start_s,
            volume_gib=file.limits.volume_gib,
            port=file.container.port,
            cache=file.container.cache,
            variables=file.container.variables,
            registries={region: _registry(account, region) for region, account in file.accounts.items()},
        )

    @property
    def _own_prices_file(self) -> str:
        return f"{self._service}/{super()._own_prices_file}"

    def _listed_offers(self, region: str, markets: tuple[Market, ...]) -> Iterator[Offer]:
        """Yield the machines with a listed price, and those that the provider rents out in the region without it."""
        if _MARKET not in markets:
            return
        name, folder = f"{self._prices_folder}/{region}.json", self._prices_folder
        listed = table(self._store.json(name).get("prices"), Where(name)) if self._store.find(name) else {}
        if listed:
            yield from prices.offers(self._store, region, (_MARKET,), self._types, folder)
        for offer in prices.offers(self._store, region, (_MARKET,), super().instance_types()):
            hardware = self._types.get(f"{self.file.types_begin_with}{offer.instance_type.name}")
            if hardware is not None and hardware.name not in listed:
                yield self._derived(replaced(offer, instance_type=hardware))

    @property
    def _prices_folder(self) -> str:
        return f"{self._service}/prices"

    def _derived(self, offer: Offer) -> Offer:
        derived, name = self.file.prices.derived, offer.instance_type.name
        family = name.removeprefix(self.file.types_begin_with).partition(".")[0]
        ratio = derived.ratios.get(name) or derived.ratios.get(family)
        if ratio is None or offer.usd_per_hour is None:
            return replaced(offer, usd_per_hour=None)
        return replaced(
            offer,
            usd_per_hour=(offer.usd_per_hour * ratio).quantize(_CENT_OF_A_CENT, ROUND_HALF_UP),
            price_source=f"derived: {ratio.normalize():f} times the price of the same machine without the service; "
            f"{derived.confidence} confidence",
            estimated=True,
        )


def _registry(account: str, region: str) -> str:
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{suffix}"
