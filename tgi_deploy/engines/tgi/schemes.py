"""Schemes: the unchanged checkpoint, quantized while loading, or a published quantized copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.engine import AUTO, UNQUANTIZED, Scheme
from tgi_deploy.values.model import FORMAT_ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.tgi.release import ModelClass, QuantizationRule, TgiRelease
    from tgi_deploy.values.hardware import Accelerator
    from tgi_deploy.values.model import ModelSpec, Profile, QuantizedRepository

_SIXTEEN_BITS: Final = 16.0


def schemes(profile: Profile, release: TgiRelease, wanted: str) -> tuple[Scheme, ...]:
    """Return the schemes for this profile that `wanted` allows, best quality first."""
    found = tuple(_all_schemes(profile, release))
    if wanted == AUTO:
        return found
    chosen = tuple(scheme for scheme in found if scheme.name == wanted)
    return chosen or (_unavailable(profile, release, wanted),)


def _all_schemes(profile: Profile, release: TgiRelease) -> Iterator[Scheme]:
    own = profile.model.quantization
    if own is not None:
        method = FORMAT_ALIASES.get(own.method, own.method)
        rule = release.quantizations.get(method)
        bits = float(own.bits) if rule is None else _effective_bits(rule, float(own.bits), own.group_size)
        known = rule is not None and rule.takes(own.bits)
        yield Scheme(
            name=method, hub_id=profile.model.hub_id, bits=bits, lost_bits=0.0, prequantized=True,
            group_size=own.group_size, known=known, **_facts(rule),
        )  # fmt: skip
        return
    yield Scheme(name=UNQUANTIZED, hub_id=profile.model.hub_id, bits=_SIXTEEN_BITS, lost_bits=0.0, prequantized=False)
    yield from sorted(_quantized(profile, release), key=lambda scheme: (scheme.lost_bits, scheme.order_name))


def _quantized(profile: Profile, release: TgiRelease) -> Iterator[Scheme]:
    published = {repository.method for repository in profile.quantized}
    for rule in release.quantizations.values():
        if rule.on_the_fly and rule.method not in published:
            yield _scheme(rule, profile.model, rule.bits)
    for repository in profile.quantized:
        known = release.quantizations.get(repository.method)
        if known is not None and known.takes(repository.bits):
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
        group_size=group,
        intermediate_size=published.intermediate_size if published else None,
        **_facts(rule),
    )


def _facts(rule: QuantizationRule | None) -> dict[str, Any]:
    """Return a scheme's fields from the release's rule for its method."""
    if rule is None:
        return {}
    return {
        "method": rule.method,
        "cuda_graphs": rule.cuda_graphs,
        "native_fp8": rule.native_fp8_compute,
        "fused_experts": rule.fused_moe,
        "packs_head": rule.packs_head,
        "after": rule.after,
    }


def _effective_bits(rule: QuantizationRule, bits: float, group: int | None) -> float:
    return bits + (rule.group_overhead_bits / group if group and group > 0 else 0.0)


def _unavailable(profile: Profile, release: TgiRelease, wanted: str) -> Scheme:
    """Return a requested scheme that is not available for this checkpoint; a check reports why."""
    rule = release.quantizations.get(wanted)
    return Scheme(
        name=wanted, hub_id=profile.model.hub_id, bits=_SIXTEEN_BITS if rule is None else rule.bits, lost_bits=0.0,
        prequantized=False, known=False, **_facts(rule),
    )  # fmt: skip


def served_dtype(
    model: ModelSpec, rule: QuantizationRule | None, model_class: ModelClass, accelerator: Accelerator
) -> str:
    """Return the 16-bit type of activations and unquantized weights.

    It is the checkpoint's type if the accelerator supports it; otherwise the engine would use its class's default
    (mostly `float16`).
    """
    if rule is not None and rule.forces_dtype is not None:
        return rule.forces_dtype
    own = model.torch_dtype
    wanted = own if own in {"bfloat16", "float16"} else model_class.default_dtype
    return "float16" if wanted == "bfloat16" and not accelerator.bf16 else wanted
