"""Accelerators and instance types, from `accelerators.json` and `aws/instance_types.json`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog import mig, names
from tgi_deploy.catalog.fields import (
    IGNORED,
    OPTIONAL_TEXT,
    REQUIRED_TEXT,
    Field,
    boolean,
    capability,
    count,
    list_of,
    number,
    one_of,
    positive,
    read,
    table,
    text,
)
from tgi_deploy.errors import InputError
from tgi_deploy.text import quoted
from tgi_deploy.values.base import Where
from tgi_deploy.values.hardware import Accelerator, InstanceType
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.store import Store

ACCELERATORS_FILE: Final = "accelerators.json"
INSTANCE_TYPES_FILE: Final = "aws/instance_types.json"
_MIB: Final = 2**20

_INTERCONNECT: Final = Field(check=one_of("none", "pcie", "pcie-p2p", "nvlink", "neuronlink", "ethernet"))
_ACCELERATOR: Final = {
    "vendor": REQUIRED_TEXT,
    "architecture": REQUIRED_TEXT,
    "compute_capability": Field(check=capability, required=False),
    "memory_bytes": Field(check=positive),
    "memory_basis": IGNORED,
    "bandwidth_gb_s": Field(check=number),
    "fp16_tflops": Field(check=number, required=False),
    "fp8_tflops": Field(check=number, required=False),
    "int8_tops": Field(check=number, required=False),
    "bf16": Field(check=boolean),
    "interconnect": _INTERCONNECT,
    "host_arch": Field(check=one_of("x86_64", "arm64"), required=False),
    "most_per_host": Field(check=positive, required=False),
    "aliases": Field(check=list_of(text), required=False),
    "driver_name": OPTIONAL_TEXT,
    "confidence": OPTIONAL_TEXT,
    "source": REQUIRED_TEXT,
    "surveyed": IGNORED,
    "note": OPTIONAL_TEXT,
}
_INSTANCE_TYPE: Final = {
    "status": Field(check=one_of("offered", "retired", "bundled")),
    "accelerator": REQUIRED_TEXT,
    "count": Field(check=positive, target="accelerator_count"),
    "memory_mib": Field(check=positive),
    "ec2_memory_mib": IGNORED,
    "partition": Field(check=number, required=False),
    "driver": OPTIONAL_TEXT,
    "vcpus": Field(check=positive),
    "ram_gib": Field(check=number),
    "cpu_arch": Field(check=one_of("x86_64", "arm64")),
    "interconnect": _INTERCONNECT,
    "network_gbps": Field(check=number, required=False),
    "nvme_gb": Field(check=count, required=False),
    "ebs_baseline_mb_s": Field(check=number, required=False),
    "ebs_burst_mb_s": Field(check=number, required=False),
    "capacity_block_only": Field(check=boolean, required=False),
    "usage_classes": IGNORED,
    "quota_on_demand": OPTIONAL_TEXT,
    "quota_spot": OPTIONAL_TEXT,
    "regions": IGNORED,
    "us_east_1_zone_ids": IGNORED,
    "note": OPTIONAL_TEXT,
}


class Hardware:
    """Accelerators and instance types, read on first use."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def accelerators(self) -> Mapping[str, Accelerator]:
        content = self._store.json(ACCELERATORS_FILE)
        where = Where(ACCELERATORS_FILE)
        sources = table(content.get("sources", {}), where.child("sources"))
        entries = table(content.get("accelerators"), where.child("accelerators"))
        return {
            name: _accelerator(name, raw, sources, where.child("accelerators").child(name))
            for name, raw in entries.items()
        }

    @cached_property
    def instance_types(self) -> Mapping[str, InstanceType]:
        where = Where(INSTANCE_TYPES_FILE).child("instance_types")
        entries = table(self._store.json(INSTANCE_TYPES_FILE).get("instance_types"), where)
        return {name: self._instance_type(name, raw, where.child(name)) for name, raw in entries.items()}

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """All accelerators by normalized spelling. Tests ensure that aliases are unambiguous."""
        spellings: dict[str, str] = {}
        for name, accelerator in self.accelerators.items():
            for spelling in filter(None, (name, *accelerator.aliases, accelerator.driver_name)):
                spellings.setdefault(names.folded_card(spelling), name)
        return spellings

    def accelerator(self, name: str) -> Accelerator:
        """Return an accelerator by any usual spelling; `A100-80GB-MIG-3g.40gb` is a slice of a GPU.

        Raises:
            InputError: `unknown_accelerator`.
        """
        if name in self.accelerators:
            return self.accelerators[name]
        card, profile = mig.split(name)
        if profile and not card:
            raise mig.cardless(profile, self._store.json(ACCELERATORS_FILE))
        if profile:
            return mig.slice_of(self.accelerator(card), profile, self._store.json(ACCELERATORS_FILE))
        folded = names.folded_card(name)
        if folded in self._names:
            return self.accelerators[self._names[folded]]
        self._reject_ambiguous(name, folded)
        self._reject_foreign(name, folded)
        raise names.unknown(
            "unknown_accelerator", "accelerator", name, self.accelerators,
            otherwise="'tgi-deploy catalog list accelerators' lists them all",
        )  # fmt: skip

    def instance_type(self, name: str) -> InstanceType:
        """Return an instance type by exact name.

        Raises:
            InputError: `unknown_instance_type`.
        """
        if name not in self.instance_types:
            raise names.unknown(
                "unknown_instance_type", "accelerated instance type", name, self.instance_types,
                otherwise=f"{self._types_of(name)}'tgi-deploy catalog list instances' lists them all",
            )  # fmt: skip
        return self.instance_types[name]

    def _types_of(self, name: str) -> str:
        """Return a hint about another meaning of the name; empty for an unknown one."""
        from tgi_deploy.catalog.elsewhere import elsewhere  # noqa: PLC0415 -- only needed when something is wrong

        there = next((item for item in elsewhere(self._store, self.accelerators) if item.machine == name), None)
        if there is not None:
            return f"it is a machine of {there.cloud}: --hardware {there.count}x{there.accelerator} plans for it; "
        return self._family(name)

    def _family(self, name: str) -> str:
        """Return a hint with the types of a family (`g6e`) or with a GPU (`L40S`); empty for other names."""
        card = self._names.get(names.folded_card(name))
        family = f"{name.casefold()}."
        types = [
            item.name
            for item in self.instance_types.values()
            if item.status in {"offered", "hosted"} and (item.accelerator.name == card or item.name.startswith(family))
        ]
        return f"types {'with' if card else 'of'} {card or name} are {', '.join(types)}; " if types else ""

    def owned(self, text_: str) -> InstanceType:
        """Return an owned machine from `2xRTX-4090`. Its CPUs and memory are unknown: 0.

        Raises:
            InputError: `bad_option_value`, `more_than_one_host` or `unknown_accelerator`.
        """
        number_, card = names.hardware(text_)
        chip = self.accelerator(card)
        _check_host(number_, chip)
        return InstanceType(
            name=f"{number_}x{chip.name}",
            status="owned",
            accelerator=chip,
            accelerator_count=number_,
            memory_bytes_per_accelerator=chip.memory_bytes,
            vcpus=0,
            ram_bytes=0,
            cpu_arch=chip.host_arch,
            interconnect=chip.interconnect if number_ > 1 else "none",
            partition=chip.slice,
        )

    def _reject_ambiguous(self, name: str, folded: str) -> None:
        ambiguous: Mapping[str, list[str]] = self._store.json(ACCELERATORS_FILE).get("ambiguous", {})
        for short, choices in ambiguous.items():
            if names.folded_card(short) == folded:
                raise InputError(
                    "unknown_accelerator",
                    f"{quoted(name)} could be {', '.join(choices)}",
                    hint=f"name one, for example {choices[-1] if len(choices) == 2 else choices[1]}",  # noqa: PLR2004 -- of two, the larger
                )

    def _reject_foreign(self, name: str, folded: str) -> None:
        """Reject known chips that no engine image runs on, each with the reason."""
        foreign: Mapping[str, str] = self._store.json(ACCELERATORS_FILE).get("foreign", {})
        for word, sentence in foreign.items():
            if folded.startswith(names.folded_card(word)):
                raise InputError(
                    "unknown_accelerator",
                    f"{quoted(name)}: {sentence}",
                    hint="'tgi-deploy catalog list accelerators' lists the supported ones",
                )

    def _instance_type(self, name: str, raw: object, where: Where) -> InstanceType:
        found = read(raw, _INSTANCE_TYPE, where)
        accelerator = self.accelerators.get(found.pop("accelerator"))
        if accelerator is None:
            raise where.child("accelerator").error("is not an accelerator of accelerators.json")
        share = found.get("partition", 1.0)
        return InstanceType(
            name=name,
            accelerator=accelerator if share == 1 else mig.fraction(accelerator, share),
            memory_bytes_per_accelerator=found.pop("memory_mib") * _MIB,
            ram_bytes=int(found.pop("ram_gib") * GIB),
            nvme_bytes=found.pop("nvme_gb", 0) * 10**9,
            **found,
        )


def _check_host(number_: int, chip: Accelerator) -> None:
    if number_ <= chip.most_per_host:
        return
    raise InputError(
        "more_than_one_host",
        f"{number_} x {chip.name} is more than one host has ({chip.most_per_host}), "
        "and one copy of the engine can't span hosts",
        hint=f"plan for one host, such as --hardware {chip.most_per_host}x{chip.name}, and run a copy on each",
    )


def _accelerator(name: str, raw: object, sources: Mapping[str, str], where: Where) -> Accelerator:
    found = read(raw, _ACCELERATOR, where)
    found.setdefault("compute_capability", None)
    for rate in ("fp16_tflops", "fp8_tflops", "int8_tops"):
        found.setdefault(rate, None)
    found["source"] = sources.get(found["source"], found["source"])
    return Accelerator(name=name, **found)
