"""The catalog, the only reader of `profiles/`. Each file is read once, on first use."""

from __future__ import annotations

from copy import copy
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog import names, own_prices, prices
from tgi_deploy.catalog.engines import EngineDocuments
from tgi_deploy.catalog.fields import text
from tgi_deploy.catalog.hardware import INSTANCE_TYPES_FILE, Hardware
from tgi_deploy.catalog.models import Models
from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Where, decode, replaced
from tgi_deploy.values.quality import QualityTable
from tgi_deploy.values.supply import ExtraPrices, Offer, Supply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tgi_deploy.catalog.comparison import Comparison
    from tgi_deploy.catalog.models import MoreModels
    from tgi_deploy.catalog.predictions import Predictions
    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.values.engine import Release
    from tgi_deploy.values.hardware import Accelerator, EntryKind, InstanceType
    from tgi_deploy.values.model import Profile
    from tgi_deploy.values.request import Market
    from tgi_deploy.values.supply import AddedMachine, Elsewhere

    DefaultRegion = Callable[[Mapping[str, str]], tuple[str, str]]

ENGINE_FILE: Final = "engine.json"
QUALITY_FILE: Final = "quality.json"
LOCAL_REGION: Final = "local"


def _unconfigured(_environ: Mapping[str, str]) -> tuple[str, str]:
    return LOCAL_REGION, "default"


class Catalog:
    """Facts about models, hardware, prices and engine releases. Plans use the first of `engines`.

    `default_region` returns the default region and its source.
    """

    def __init__(
        self,
        store: Store,
        more: MoreModels | None = None,
        engines: Sequence[Engine] = (),
        default_region: DefaultRegion = _unconfigured,
    ) -> None:
        self._store = store
        self._hardware = Hardware(store)
        self._more = more
        self._models = Models(store, more)
        self._engines = tuple(engines)
        self.default_region = default_region
        self._releases: dict[str, Release] = {}
        self.added: Mapping[str, AddedMachine] = {}

    @property
    def _own_prices_file(self) -> str:
        return own_prices.FILE

    @classmethod
    def open(
        cls,
        user_dir: Path | None = None,
        *,
        more: MoreModels | None = None,
        engines: Sequence[Engine] = (),
        default_region: DefaultRegion = _unconfigured,
    ) -> Catalog:
        """Open the packaged catalog; a user's folder with the same layout overrides it, `more` extends it.

        Raises:
            InputError: `unreadable_path` if the user's folder does not exist.
        """
        if user_dir is not None and not user_dir.is_dir():
            raise InputError(
                "unreadable_path",
                f"{quoted(str(user_dir))} is not a folder with profiles",
                hint="use a folder with the packaged layout, such as one with models/my-model.toml",
            )
        return cls(Store.behind(user_dir), more, engines, default_region)

    def with_added(self, machines: Mapping[str, AddedMachine]) -> Catalog:
        """Return the same catalog with the prices of owned hardware that a cluster can add."""
        if not machines:
            return self
        found = copy(self)
        found.added = machines
        return found

    def hosted(self, service: str) -> Catalog:
        """Return the same catalog with the machines, prices and images of a service."""
        from tgi_deploy.catalog.hosting import HostedCatalog  # noqa: PLC0415 -- few plans are for a service

        return HostedCatalog(self._store, self._more, self._engines, self.default_region, service=service)

    @property
    def date(self) -> str:
        """The day the figures were collected. Each price has its own date."""
        return self._header(INSTANCE_TYPES_FILE, "collected_at")

    def profile_names(self) -> tuple[str, ...]:
        return self._models.profile_names()

    def hub_ids(self) -> tuple[str, ...]:
        return self._models.hub_ids()

    def names(self, kind: EntryKind) -> tuple[str, ...]:
        """Return the names of all entries of a kind. For models: profiles, then hub ids that are known without one."""
        if kind == "models":
            return (*self.profile_names(), *self.hub_ids())
        if kind == "engines":
            return self.release_versions()
        if kind == "regions":
            return self.regions()
        return tuple(self.accelerators() if kind == "accelerators" else self.instance_types())

    def resolve(self, model: str) -> Profile:
        """Resolve MODEL: a profile name, a hub id (`org/name`, `org/name@revision`), or a directory.

        Raises:
            InputError: `unknown_model`, `bad_model_name`, `unreadable_path`, `bad_model_config`, `bad_profile`,
                `bad_checkpoint`, and with `more` `hub_offline`, `extra_missing`, `hub_unreachable`,
                `hub_not_found`, `hub_gated`.
        """
        return self._models.resolve(model)

    def accelerators(self) -> Mapping[str, Accelerator]:
        return self._hardware.accelerators

    def accelerator(self, name: str) -> Accelerator:
        """Return an accelerator by any usual spelling. Raises `unknown_accelerator`."""
        return self._hardware.accelerator(name)

    def instance_types(self) -> Mapping[str, InstanceType]:
        return self._hardware.instance_types

    def instance_type(self, name: str) -> InstanceType:
        """Return an instance type by exact name. Raises `unknown_instance_type`."""
        return self._hardware.instance_type(name)

    def regions(self) -> tuple[str, ...]:
        """Regions with prices."""
        return self._store.names(prices.PRICES_FOLDER, ".json")

    @property
    def engine(self) -> Engine:
        """The engine of plans."""
        if not self._engines:
            raise ValueError("this catalog was opened without engines and has no releases")
        return self._engines[0]

    @cached_property
    def _documents(self) -> EngineDocuments:
        return EngineDocuments(self._store, self.engine.name)

    @cached_property
    def comparison(self) -> Comparison:
        """Data for comparisons only."""
        from tgi_deploy.catalog.comparison import Comparison  # noqa: PLC0415 -- planning compares nothing

        return Comparison(self._store, self._documents.folder)

    @cached_property
    def predictions(self) -> Predictions:
        """The constants of predictions."""
        from tgi_deploy.catalog.predictions import Predictions  # noqa: PLC0415 -- most commands predict nothing

        return Predictions(self._store)

    @cached_property
    def quality(self) -> QualityTable:
        """The quality loss of quantization methods."""
        return decode(self._store.json(QUALITY_FILE), QualityTable, Where(QUALITY_FILE))

    @cached_property
    def default_release(self) -> str:
        return self._of_engine("default")

    @property
    def kind_of_release(self) -> str:
        """What its releases are called in messages."""
        return f"{self.engine.title} release"

    def cpu_image(self, version: str) -> str:
        """Return the engine's official image for hosts without a GPU, which this tool does not plan."""
        return f"{self.release(version).image}{self._of_engine('cpu_image_suffix')}"

    def _of_engine(self, key: str) -> str:
        return self._header(f"{self._documents.folder}/{ENGINE_FILE}", key)

    def release_versions(self) -> tuple[str, ...]:
        """Return the versions, oldest first."""
        return self._documents.versions()

    def release(self, version: str) -> Release:
        """Return a release. Raises `unknown_engine_version` if it is not in the catalog."""
        if version not in self._releases:
            known = self.release_versions()
            if version not in known:
                raise names.unknown(
                    "unknown_engine_version", self.kind_of_release, version, known,
                    otherwise=f"known versions: {known[0]} to {known[-1]}" if known else "no version is known",
                )  # fmt: skip
            self._releases[version] = self.engine.release(version, self._documents)
        return self._releases[version]

    def supply(self, *, release: str, regions: tuple[str, ...], markets: tuple[Market, ...]) -> Supply:
        """Return all offers of these regions (none given: all) and markets.

        Raises:
            InputError: `unknown_region` or `unknown_engine_version`.
        """
        wanted = regions or self.regions()
        return Supply(
            offers=self.offers(wanted, markets),
            extra_prices=prices.extras(self._store, wanted),
            release=self.release(release),
            date=self.date,
            speed=self.predictions.speed,
            quality=self.quality,
        )

    def offers(self, regions: tuple[str, ...], markets: tuple[Market, ...]) -> tuple[Offer, ...]:
        """Return all offers of these regions and markets. Raises InputError `unknown_region`."""
        for region in regions:
            self.check_region(region)
        own = own_prices.overlay(self._store, self.instance_types().keys(), self._own_prices_file)
        return tuple(own(offer) for region in dict.fromkeys(regions) for offer in self._listed_offers(region, markets))

    def _listed_offers(self, region: str, markets: tuple[Market, ...]) -> Iterator[Offer]:
        return prices.offers(self._store, region, markets, self.instance_types())

    def elsewhere(self, accelerator: str, count: int) -> tuple[Elsewhere, ...]:
        """Return other clouds' list prices for this number of accelerators, the cheapest first."""
        from tgi_deploy.catalog.elsewhere import elsewhere  # noqa: PLC0415 -- few plans are compared with it

        known = elsewhere(self._store, self.accelerators())
        return tuple(item for item in known if (item.accelerator, item.count) == (accelerator, count))

    def owned_supply(self, *, release: str, hardware: str) -> Supply:
        """Return offers for owned machines, like `2xRTX-4090`, or several separated by commas.

        Only those that first have to be added have a price.

        Raises:
            InputError: `bad_option_value`, `unknown_accelerator`, `unknown_engine_version`.
        """
        machines = map(self._hardware.owned, hardware.split(","))
        return Supply(
            offers=tuple(map(self._owned_offer, machines)),
            release=self.release(release),
            extra_prices={} if self.added else {LOCAL_REGION: _NOTHING_BILLED},
            date=self.date,
            speed=self.predictions.speed,
            quality=self.quality,
        )

    def _owned_offer(self, machine: InstanceType) -> Offer:
        offer = Offer(instance_type=machine, region=LOCAL_REGION, market="owned", usd_per_hour=None)
        new = self.added.get(machine.name)
        if new is None or not new.needed:
            return offer
        return replaced(
            offer,
            usd_per_hour=new.usd_per_hour,
            price_source=new.price_source,
            price_date=new.price_date,
            estimated=new.estimated,
        )

    def check_region(self, region: str) -> None:
        """Raise InputError `unknown_region` for a region without prices."""
        known = self.regions()
        if region in known:
            return
        everything = f"known regions: {', '.join(known)}"
        if "," in region:
            everything = "repeat the option for each region"
        elif names.suggestion(region, known):
            everything = "'tgi-deploy catalog list regions' lists them all"
        raise names.unknown("unknown_region", "region with known prices", region, known, otherwise=everything)

    def _header(self, name: str, key: str) -> str:
        try:
            return text(self._store.json(name).get(key))
        except ValueError as problem:
            raise Where(name).child(key).error(str(problem)) from None


_NOTHING_BILLED: Final = ExtraPrices(
    volume_usd_per_gib_month=Decimal(0),
    public_ipv4_usd_per_hour=Decimal(0),
    load_balancer_usd_per_hour=Decimal(0),
    estimated=False,
    source="your own machine",
    date="",
)
