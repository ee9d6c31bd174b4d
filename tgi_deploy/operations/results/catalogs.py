"""Results of catalog and profile: what the tool knows, and files made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare
from tgi_deploy.operations.planning.deployment_file import deployment_text
from tgi_deploy.operations.planning.option_texts import resolve
from tgi_deploy.operations.planning.profile_file import draft, entry_document
from tgi_deploy.values.base import Result, as_dict
from tgi_deploy.values.catalog_results import (
    DeploymentTextData,
    EngineEntry,
    EnginesData,
    EntryData,
    HardwareData,
    HardwareEntry,
    ModelEntry,
    ModelsData,
    ProfileData,
    ProfilesData,
    ProfileTextData,
    RegionEntry,
    RegionsData,
    TextData,
)
from tgi_deploy.values.names import check_name, default_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.model import Profile

ListData = RegionsData | EnginesData | ModelsData | HardwareData
HardwareKind = Literal["accelerators", "instances", "hardware"]
Kind = Literal["accelerator", "instance", "engine", "model"]


def list_result(names: tuple[str, ...], catalog: Catalog, *, region: str, release: str) -> Result[ListData, ListData]:
    """Return every entry of a kind, or the hardware that is named. Raises InputError."""
    data = _listed(names, catalog, region, release)
    return Result(data=data, outcome=data)


def _listed(names: tuple[str, ...], catalog: Catalog, region: str, release: str) -> ListData:
    kind = names[0] if len(names) == 1 else ""
    if kind == "regions":
        return RegionsData(items=tuple(RegionEntry(name=name) for name in catalog.regions()))
    if kind == "engines":
        return EnginesData(items=tuple(_engine(catalog, version) for version in catalog.release_versions()))
    if kind == "models":
        profiles = _profiles(catalog)
        taken = {item.hub_id for item in profiles}
        others = (name for name in catalog.hub_ids() if name not in taken)
        return ModelsData(items=(*profiles, *(ModelEntry(name=name, hub_id=name, summary="") for name in others)))
    if kind == "accelerators":
        return _hardware("accelerators", catalog.names("accelerators"), catalog, region, release)
    if kind == "instances":
        return _hardware("instances", catalog.names("instances"), catalog, region, release)
    return _hardware("hardware", names, catalog, region, release)


def _engine(catalog: Catalog, version: str) -> EngineEntry:
    found = catalog.release(version)
    return EngineEntry(
        name=found.name,
        version=version,
        released=found.released,
        image=found.image,
        default=version == catalog.default_release,
    )


def _profiles(catalog: Catalog) -> tuple[ModelEntry, ...]:
    found = map(catalog.resolve, catalog.profile_names())
    return tuple(ModelEntry(name=item.name, hub_id=item.model.hub_id, summary=item.summary) for item in found)


def _hardware(kind: HardwareKind, names: tuple[str, ...], catalog: Catalog, region: str, release: str) -> HardwareData:
    return HardwareData(
        kind=kind,
        region=region,
        engine_version=release,
        catalog_date=catalog.date,
        items=compare(names, catalog, region=region, release=release),
    )


def entry_result(name: str, catalog: Catalog, *, region: str, release: str) -> Result[EntryData, HardwareEntry | None]:
    """Return the entry of that name, of whichever kind knows it. Raises InputError `unknown_entry`."""
    kind, found = _find(catalog, name)
    item = entry_document(found)
    if kind not in {"accelerator", "instance"}:
        return Result(data=EntryData(kind=kind, item=item), outcome=None)
    [shown] = compare((item["name"],), catalog, region=region, release=release)
    added = {
        "price": None if shown.price is None else as_dict(shown.price),
        "engine": as_dict(shown.engine),
        "misquoted": shown.misquoted,
    }
    return Result(data=EntryData(kind=kind, item=item | added), outcome=shown)


def _find(catalog: Catalog, name: str) -> tuple[Kind, Value]:
    finders: tuple[tuple[Kind, Callable[[str], Value]], ...] = (
        ("accelerator", catalog.accelerator),
        ("instance", catalog.instance_type),
        ("engine", catalog.release),
        ("model", catalog.resolve),
    )
    hints = []
    for kind, find in finders:
        try:
            return kind, find(name)
        except InputError as error:
            hints.append(error.hint)
    suggestion = next((hint for hint in hints if hint and "did you mean" in hint.lower()), None)
    raise InputError(
        "unknown_entry",
        f"looking up {name[:200]!r}: no accelerator, instance type, engine version or model has this name",
        hint=suggestion or "'tgi-deploy catalog list accelerators' (or instances, engines, models) shows the names",
    )


def profiles_result(catalog: Catalog) -> Result[ProfilesData, ProfilesData]:
    data = ProfilesData(profiles=_profiles(catalog))
    return Result(data=data, outcome=data)


def profile_result(profile: Profile) -> Result[ProfileData, Profile]:
    return Result(data=ProfileData(profile=entry_document(profile)), outcome=profile)


def draft_result(profile: Profile) -> Result[ProfileTextData, Profile]:
    """Return a profile's first draft."""
    return Result(data=ProfileTextData(profile=TextData(name=profile.name, text=draft(profile))), outcome=profile)


def deployment_result(
    texts: OptionTexts, catalog: Catalog, *, name: str | None, target: str | None, own: Mapping[str, Any]
) -> Result[DeploymentTextData, str]:
    """Return the file of `up -f` for a request; `target` None: the default one. Raises InputError."""
    named = name or default_name(resolve(texts, {}, catalog).model.name)
    check_name(named)
    given = {key: value for key, value in own.items() if value}
    text = deployment_text(named, texts, target, given)
    return Result(data=DeploymentTextData(deployment=TextData(name=named, text=text)), outcome=text)
