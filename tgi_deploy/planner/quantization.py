"""Which weights to serve: the checkpoint as it is, quantized on the fly, or a published quantized copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.planner.types import EngineRelease, ModelClass, QuantizationRule
    from tgi_deploy.values.hardware import Accelerator
    from tgi_deploy.values.model import ModelSpec, Profile, QuantizedRepository

UNQUANTIZED: Final = "none"
AUTO: Final = "auto"
_SIXTEEN_BITS: Final = 16.0

# `quant_method` of config.json → the launcher's name for it, where the two differ.
METHOD_ALIASES: Final = {"fbgemm_fp8": "fp8"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """One way to serve the weights.

    `bits` is what a linear layer's weight takes, group scales included; `lost_bits` counts whole bits from the
    checkpoint's own precision: scales are overhead, no quality. `recast`: activations leave the checkpoint's
    16-bit type. `rule` is None for a 16-bit checkpoint served as it is, or for a method the release doesn't know.
    """

    name: str
    hub_id: str
    bits: float
    lost_bits: float
    prequantized: bool
    recast: bool = False
    rule: QuantizationRule | None = None
    group_size: int | None = None
    known: bool = True

    @property
    def order_name(self) -> str:
        """What a tie ends in: methods that keep the checkpoint's 16-bit type come before those that don't."""
        return f"{self.recast:d} {self.name}"


def schemes(profile: Profile, release: EngineRelease, wanted: str) -> tuple[Scheme, ...]:
    """Every way to serve this profile on this release that the wish allows, best quality first."""
    found = tuple(_all_schemes(profile, release))
    if wanted == AUTO:
        return found
    chosen = tuple(scheme for scheme in found if scheme.name == wanted)
    return chosen or (_unavailable(profile, release, wanted),)


def _all_schemes(profile: Profile, release: EngineRelease) -> Iterator[Scheme]:
    own = profile.model.quantization
    if own is not None:
        method = METHOD_ALIASES.get(own.method, own.method)
        rule = release.quantizations.get(method)
        bits = float(own.bits) if rule is None else _effective_bits(rule, float(own.bits), own.group_size)
        yield Scheme(
            name=method, hub_id=profile.model.hub_id, bits=bits, lost_bits=0.0, prequantized=True, rule=rule,
            group_size=own.group_size, known=rule is not None and rule.prequantized,
        )  # fmt: skip
        return
    yield _as_it_is(profile)
    yield from sorted(_quantized(profile, release), key=lambda scheme: (scheme.lost_bits, scheme.name))


def _as_it_is(profile: Profile) -> Scheme:
    return Scheme(name=UNQUANTIZED, hub_id=profile.model.hub_id, bits=_SIXTEEN_BITS, lost_bits=0.0, prequantized=False)


def _quantized(profile: Profile, release: EngineRelease) -> Iterator[Scheme]:
    published = {repository.method for repository in profile.quantized}
    for rule in release.quantizations.values():
        if rule.on_the_fly and rule.method not in published:
            yield _scheme(rule, profile.model, rule.bits)
    for repository in profile.quantized:
        known = release.quantizations.get(repository.method)
        if known is not None and known.prequantized:
            yield _scheme(known, profile.model, float(repository.bits), repository)


def _scheme(
    rule: QuantizationRule, model: ModelSpec, bits: float, published: QuantizedRepository | None = None
) -> Scheme:
    group = published.group_size if published else None
    return Scheme(
        name=rule.method,
        hub_id=published.hub_id if published else model.hub_id,
        bits=_effective_bits(rule, bits, group),
        lost_bits=_SIXTEEN_BITS - int(bits),
        prequantized=published is not None,
        recast=rule.forces_dtype not in {None, model.torch_dtype},
        rule=rule,
        group_size=group,
    )


def _effective_bits(rule: QuantizationRule, bits: float, group: int | None) -> float:
    return bits + (rule.group_overhead_bits / group if group and group > 0 else 0.0)


def _unavailable(profile: Profile, release: EngineRelease, wanted: str) -> Scheme:
    """A method that was asked for and cannot be had for this checkpoint: a check says why."""
    rule = release.quantizations.get(wanted)
    return Scheme(
        name=wanted, hub_id=profile.model.hub_id, bits=_SIXTEEN_BITS if rule is None else rule.bits,
        lost_bits=0.0, prequantized=False, rule=rule, known=False,
    )  # fmt: skip


def served_dtype(profile: Profile, scheme: Scheme, model_class: ModelClass | None, accelerator: Accelerator) -> str:
    """The 16-bit type of activations and unquantized weights.

    The checkpoint's own type is kept where the accelerator has it; the engine would otherwise take its class's
    default (`float16` for most) whatever the checkpoint says.
    """
    if scheme.rule is not None and scheme.rule.forces_dtype is not None:
        return scheme.rule.forces_dtype
    own = profile.model.torch_dtype
    wanted = own if own in {"bfloat16", "float16"} else (model_class.default_dtype if model_class else "float16")
    return "float16" if wanted == "bfloat16" and not accelerator.bf16 else wanted
