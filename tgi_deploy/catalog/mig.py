"""GPU slices: MIG profiles, from the `mig` section of `accelerators.json`, and EC2's fractional GPUs.

A profile such as `3g.40gb` has a share of the GPU's bandwidth (in eighths; quarters on the A30), a number of its
multiprocessors, and the memory that the driver reports. The tool plans for existing slices; it does not create them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Value, Where, decode, replaced
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.hardware import Accelerator

_SLICE: Final = re.compile(r"(?:(?P<card>.+?)[ _-])??(?:MIG[ _-])?(?P<profile>[1-7]g\.\d{1,3}gb)", re.IGNORECASE)
_RATES: Final = ("fp16_tflops", "fp8_tflops", "int8_tops")


class _Profile(Value, frozen=True, kw_only=True):
    """`instances`: how many fit on one GPU."""

    parts: int
    multiprocessors: int
    memory_gib: float
    instances: int


class _Card(Value, frozen=True, kw_only=True):
    parts: int
    multiprocessors: int
    profiles: dict[str, _Profile]
    source: str
    confidence: str = "high"
    note: str | None = None


class _Mig(Value, frozen=True, kw_only=True):
    note: str
    cards: dict[str, _Card]


def split(name: str) -> tuple[str, str]:
    """Return GPU and profile of `A100-80GB-MIG-3g.40gb`; the profile is empty for a whole GPU."""
    found = _SLICE.fullmatch(name)
    return (found["card"] or "", found["profile"].lower()) if found else (name, "")


def slice_of(chip: Accelerator, profile: str, content: Mapping[str, Any]) -> Accelerator:
    """Return a slice of the chip as an accelerator. Raises InputError `unknown_accelerator`."""
    card = _table(content).cards.get(chip.name)
    cut = card.profiles.get(profile) if card else None
    if card is None or cut is None:
        known = f"its profiles are {', '.join(card.profiles)}" if card else "it does not support MIG"
        raise InputError("unknown_accelerator", f"there is no slice {profile} of {chip.name}: {known}")
    return replaced(
        _share_of(chip, cut.parts / card.parts, cut.multiprocessors / card.multiprocessors),
        name=f"{chip.name}-MIG-{profile}",
        memory_bytes=int(cut.memory_gib * GIB),
        most_per_host=chip.most_per_host * cut.instances,
        aliases=(),
        driver_name=None,
        confidence=card.confidence,
        source=content["sources"][card.source],
        note=card.note,
        loses=f"a slice has {cut.multiprocessors} of the card's {card.multiprocessors} multiprocessors and "
        f"{cut.parts} of {card.parts} parts of its bandwidth, and no link to other slices; create it yourself with "
        f"'nvidia-smi mig -cgi {profile} -C'",
    )


def fraction(chip: Accelerator, share: float) -> Accelerator:
    """Return the fraction of a chip that a machine has; its memory comes from the machine."""
    return _share_of(chip, share, share)


def _share_of(chip: Accelerator, share: float, compute: float) -> Accelerator:
    rates = {name: rate * compute for name in _RATES if (rate := getattr(chip, name)) is not None}
    return replaced(chip, bandwidth_gb_s=chip.bandwidth_gb_s * share, interconnect="none", slice=share, **rates)


def cardless(profile: str, content: Mapping[str, Any]) -> InputError:
    """Return the error for a profile without a GPU."""
    cards = [name for name, card in _table(content).cards.items() if profile in card.profiles]
    return InputError(
        "unknown_accelerator",
        f"{profile} is a slice, and its GPU is missing",
        hint=f"write it like {f'{cards[0]}-MIG-{profile}' if cards else 'A100-80GB-MIG-3g.40gb'}",
    )


def _table(content: Mapping[str, Any]) -> _Mig:
    return decode(content.get("mig"), _Mig, Where("accelerators.json").child("mig"))
