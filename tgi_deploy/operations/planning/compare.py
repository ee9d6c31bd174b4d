"""Compares accelerators and instance types: dense figures, prices, engine support, commonly misquoted figures."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from tgi_deploy.catalog.comparison import Support
from tgi_deploy.values.base import replaced
from tgi_deploy.values.catalog_results import EngineVerdict, HardwareEntry, HardwarePrice, MisquotedFigure
from tgi_deploy.values.hardware import InstanceType
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.catalog.comparison import Misquote
    from tgi_deploy.values.catalog_results import Verdict
    from tgi_deploy.values.hardware import Accelerator
    from tgi_deploy.values.supply import Offer


def compare(
    names: Sequence[str], catalog: Catalog, *, region: str, release: str, hosted: Sequence[Catalog] = ()
) -> tuple[HardwareEntry, ...]:
    """Return one entry per name, in order. `hosted` are the catalogs of services, which have their own machines.

    Raises InputError `unknown_accelerator`, `unknown_instance_type`, `unknown_region` or
    `unknown_engine_version`.
    """
    offers = catalog.offers((region,), ("on-demand",))
    catalog.release(release)
    found: dict[Accelerator | InstanceType, HardwareEntry] = {}
    for name in names:
        owner = next((item for item in hosted if name in item.instance_types()), None)
        if owner is None:
            item = _find(name, catalog)
            found[item] = _entry(item, offers, catalog, release)
        else:
            item = owner.instance_type(name)
            found[item] = _hosted_entry(item, owner, region, release, known=catalog.default_release)
    return tuple(found.values())


def _hosted_entry(item: InstanceType, owner: Catalog, region: str, release: str, *, known: str) -> HardwareEntry:
    """Return the entry of a service's machine. By default, `known`, it is judged for the service's own release."""
    offers = owner.offers((region,), ("on-demand",)) if region in owner.regions() else ()
    runs = release in owner.release_versions()
    shown = _entry(item, offers, owner, release if runs else owner.default_release)
    if runs or release == known:
        return shown
    reason = f"There is no {owner.kind_of_release} {release}; the newest is {owner.default_release}."
    return replaced(shown, engine=_verdict("no", Support(backend=None), reason))


def _find(name: str, catalog: Catalog) -> Accelerator | InstanceType:
    """Return the instance type or accelerator with a name: EC2's instance types have a dot in theirs."""
    if name in catalog.instance_types() or ("." in name and not name.upper().startswith("GH")):
        return catalog.instance_type(name)
    return catalog.accelerator(name)


def _entry(item: Accelerator | InstanceType, offers: Iterable[Offer], catalog: Catalog, release: str) -> HardwareEntry:
    machine, chip = (item, item.accelerator) if isinstance(item, InstanceType) else (None, item)
    support = catalog.comparison.support(chip.name)
    shown = HardwareEntry(
        name=item.name,
        accelerator=chip.name,
        vendor=chip.vendor,
        architecture=chip.architecture,
        compute_capability=".".join(map(str, chip.compute_capability)) if chip.compute_capability else None,
        accelerator_count=machine.accelerator_count if machine else 1,
        partition=machine.partition if machine else 1.0,
        memory_bytes=machine.memory_bytes_per_accelerator if machine else chip.memory_bytes,
        bandwidth_gb_s=chip.bandwidth_gb_s,
        fp16_tflops=chip.fp16_tflops,
        fp8_tflops=chip.fp8_tflops,
        int8_tops=chip.int8_tops,
        bf16=chip.bf16,
        interconnect=machine.interconnect if machine else chip.interconnect,
        price=_price(item, offers),
        engine=_running(chip, machine, support, catalog, release),
        misquoted=tuple(map(_misquoted, catalog.comparison.misquoted(chip.name))),
        confidence=chip.confidence,
        source=chip.source,
        note=chip.note,
    )
    if machine is None:
        return shown
    return replaced(
        shown,
        status=machine.status,
        memory_bytes_per_accelerator=machine.memory_bytes_per_accelerator,
        vcpus=machine.vcpus,
        ram_bytes=machine.ram_bytes,
        nvme_bytes=machine.nvme_bytes,
    )


def _misquoted(item: Misquote) -> MisquotedFigure:
    return MisquotedFigure(figure=item.figure, quoted=item.quoted, right=item.right, why=item.why, source=item.source)


def _price(item: Accelerator | InstanceType, offers: Iterable[Offer]) -> HardwarePrice | None:
    """Return the lowest on-demand price in the region; None if the hardware is not offered or its price is unknown."""
    priced = [offer for offer in offers if offer.usd_per_hour is not None and _has(offer.instance_type, item)]
    if not priced:
        return None
    offer = min(priced, key=lambda offer: (offer.usd_per_hour, offer.instance_type.name))
    machine = offer.instance_type
    if offer.usd_per_hour is None:
        raise AssertionError("offers without a price were filtered out")
    memory_gib = Decimal(machine.memory_bytes_per_accelerator * machine.accelerator_count) / GIB
    return HardwarePrice(
        instance_type=machine.name,
        usd_per_hour=offer.usd_per_hour,
        usd_per_gib_hour=round(offer.usd_per_hour / memory_gib, 6),
        source=offer.price_source,
        date=offer.price_date,
        estimated=offer.estimated,
    )


def _has(machine: InstanceType, item: Accelerator | InstanceType) -> bool:
    """Return whether a machine is the named one, or has whole chips of that name."""
    if isinstance(item, InstanceType):
        return machine.name == item.name
    return machine.accelerator.name == item.name and machine.partition == 1


def _running(
    chip: Accelerator, machine: InstanceType | None, support: Support, catalog: Catalog, release: str
) -> EngineVerdict:
    backend = support.backend
    if backend is None:
        return _verdict("no", support, support.reason)
    if machine is not None and machine.cpu_arch not in catalog.release(release).cpu_archs:
        return _verdict("no", Support(backend=None), f"The engine has no image for its {machine.cpu_arch} CPU.")
    if not backend.planned:
        unproven = "not proven: " if support.unproven else ""
        return _verdict("by_hand", support, f"{unproven}{support.reason} Needs {backend.needs}.")
    if chip.compute_capability is None:
        return _on_a_build(chip, support, catalog, release)
    return _on_cuda(chip, machine, support, catalog, release)


def _on_a_build(chip: Accelerator, support: Support, catalog: Catalog, version: str) -> EngineVerdict:
    """Return the verdict for chips without CUDA: they need an image of the release that plans support."""
    backend = support.backend
    release = catalog.release(version).on(chip)
    if backend is None or release.host is None:
        return _verdict("by_hand", support, support.reason)
    return _verdict("runs", support, f"{support.reason} Needs {backend.needs}.", image=release.image)


def _on_cuda(
    chip: Accelerator, machine: InstanceType | None, support: Support, catalog: Catalog, version: str
) -> EngineVerdict:
    """Return the verdict by the release's table of compute capabilities."""
    release = catalog.release(version)
    rule = release.architecture_rule(chip.compute_capability)
    if rule is None or rule.verdict == "refused":
        reason = rule.message if rule else f"{catalog.engine.title} {version} has no rule for its compute capability."
        return _verdict("no", Support(backend=None, source=rule.source if rule else ""), reason)
    whole = machine is None or machine.partition == 1
    fraction = "" if whole else "The engine runs, but plans need whole accelerators. "
    if rule.verdict == "override":
        reason = f"{rule.message} With --allow-turing; lost: {rule.loses}."
        return _verdict("override", support, f"{fraction}{reason}", image=release.image)
    return _verdict("runs" if whole else "by_hand", support, fraction.strip(), image=release.image)


def _verdict(verdict: Verdict, support: Support, reason: str, *, image: str | None = None) -> EngineVerdict:
    backend = support.backend
    return EngineVerdict(
        verdict=verdict,
        backend=backend.title if backend else None,
        image=image or (backend.image if backend else None),
        reason=reason,
        source=support.source or (backend.source if backend else ""),
    )
