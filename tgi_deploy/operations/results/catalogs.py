"""Results of catalog and profile: known entries, and files generated from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.compare import compare
from tgi_deploy.operations.planning.deployment_file import deployment_text
from tgi_deploy.operations.planning.option_texts import resolve
from tgi_deploy.operations.planning.profile_file import draft, entry_document
from tgi_deploy.values.base import Result, as_dict
from tgi_deploy.values.catalog_results import (
    AcceleratorData,
    AcceleratorItem,
    DeploymentTextData,
    EngineData,
    EngineEntry,
    EngineItem,
    EnginesData,
    HardwareData,
    HardwareEntry,
    InstanceData,
    InstanceItem,
    ModelData,
    ModelEntry,
    ModelsData,
    ProfileData,
    ProfilesData,
    ProfileTextData,
    RegionEntry,
    RegionsData,
    ShownAccelerator,
    TextData,
)
from tgi_deploy.values.engine import Release
from tgi_deploy.values.hardware import Accelerator, InstanceType
from tgi_deploy.values.model import Profile
from tgi_deploy.values.names import check_name, default_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.planning.option_texts import OptionTexts

ListData = RegionsData | EnginesData | ModelsData | HardwareData
HardwareKind = Literal["accelerators", "instances", "hardware"]
EntryData = AcceleratorData | InstanceData | EngineData | ModelData


def list_result(
    names: tuple[str, ...], catalog: Catalog, hosted: tuple[Catalog, ...], *, region: str, release: str
) -> Result[ListData, ListData]:
    """Return every entry of a kind, or the named hardware. `hosted` are the catalogs of services. Raises InputError."""
    data = _listed(names, catalog, hosted, region, release)
    return Result(data=data, outcome=data)


def _listed(
    names: tuple[str, ...], catalog: Catalog, hosted: tuple[Catalog, ...], region: str, release: str
) -> ListData:
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
        return _hardware("accelerators", catalog.names("accelerators"), catalog, (), region, release)
    if kind == "instances":
        every = tuple(name for item in (catalog, *hosted) for name in item.names("instances"))
        return _hardware("instances", every, catalog, hosted, region, release)
    return _hardware("hardware", names, catalog, hosted, region, release)


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


def _hardware(
    kind: HardwareKind,
    names: tuple[str, ...],
    catalog: Catalog,
    hosted: tuple[Catalog, ...],
    region: str,
    release: str,
) -> HardwareData:
    return HardwareData(
        kind=kind,
        region=region,
        engine_version=release,
        catalog_date=catalog.date,
        items=compare(names, catalog, region=region, release=release, hosted=hosted),
    )


def entry_result(
    name: str, catalog: Catalog, hosted: tuple[Catalog, ...], *, region: str, release: str
) -> Result[EntryData, HardwareEntry | None]:
    """Return the entry of that name, of any kind. Raises InputError `unknown_entry`."""
    found = _find(catalog, hosted, name)
    if isinstance(found, Profile):
        return Result(data=ModelData(item=found), outcome=None)
    if isinstance(found, Release):
        return Result(data=EngineData(item=_release(found)), outcome=None)
    [shown] = compare((found.name,), catalog, region=region, release=release, hosted=hosted)
    item = {**entry_document(found), "price": shown.price, "engine": shown.engine, "misquoted": shown.misquoted}
    if isinstance(found, Accelerator):
        return Result(data=AcceleratorData(item=AcceleratorItem(**item)), outcome=shown)
    chip = ShownAccelerator(**item.pop("accelerator"))
    return Result(data=InstanceData(item=InstanceItem(**item, accelerator=chip)), outcome=shown)


def _release(found: Release) -> EngineItem:
    shared = {name: item for name, item in as_dict(found).items() if name in EngineItem.__struct_fields__}
    return EngineItem(**shared, methods=found.methods)


def _find(catalog: Catalog, hosted: tuple[Catalog, ...], name: str) -> Accelerator | InstanceType | Release | Profile:
    finders: tuple[Callable[[str], Accelerator | InstanceType | Release | Profile], ...] = (
        catalog.accelerator,
        catalog.instance_type,
        *(item.instance_type for item in hosted if name in item.instance_types()),
        catalog.release,
        catalog.resolve,
    )
    hints = []
    for find in finders:
        try:
            return find(name)
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
    return Result(data=ProfileData(profile=profile), outcome=profile)


def draft_result(profile: Profile) -> Result[ProfileTextData, Profile]:
    """Return a profile's first draft."""
    return Result(data=ProfileTextData(profile=TextData(name=profile.name, text=draft(profile))), outcome=profile)


def deployment_result(
    texts: OptionTexts, catalog: Catalog, *, name: str | None, target: str | None, own: Mapping[str, Any]
) -> Result[DeploymentTextData, str]:
    """Return the text of a file for `up -f`; `target` None means the default target. Raises InputError."""
    named = name or default_name(resolve(texts, {}, catalog).model.name)
    check_name(named)
    given = {key: value for key, value in own.items() if value}
    text = deployment_text(named, texts, target, given)
    return Result(data=DeploymentTextData(deployment=TextData(name=named, text=text)), outcome=text)
