"""A cause, the line that shows it, and what to do: what waiting and diagnosis both tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.attempts import LINE_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.reconcile.attempts import Evidence
    from tgi_deploy.reconcile.signatures import Remedy, Signature

# By rank: an exact text; the same in a warning; a vague one; the same in a warning; a wrapper.
_CONFIDENCE: Final = (0.95, 0.6, 0.7, 0.4, 0.6, 0.3)
_SURE: Final = 0.9
# Numbers that follow from others: name → (from, multiplied by, divided by).
_DERIVED: Final = {
    "half_tokens": ("tokens", 1, 2),
    "half_prefill": ("prefill", 1, 2),
    "half_context": ("context", 1, 2),
    "double_shards": ("num_shard", 2, 1),
    "half_shards": ("num_shard", 1, 2),
    "double_disk_gib": ("disk_gib", 2, 1),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause and the line that shows it.

    `confidence` runs from 0 to 1. `line` counts the raw log's lines from 1, 0 where nothing is a line. `apart` says
    what would tell this cause from the other one that the same line fits.
    """

    code: str
    phase: str
    confidence: float
    evidence: str
    line: int
    cause: str
    remedy: str
    apart: str = ""

    @property
    def vague(self) -> bool:
        return self.confidence < _SURE


def finding_of(evidence: Evidence, facts: Mapping[str, str] | None = None, *, share: float = 1.0) -> Finding:
    """The finding that a line makes. `facts`: what the plan and the log know; `share` lowers the confidence."""
    signature, line = evidence.signature, evidence.line
    known = with_derived({**(facts or {}), **_numbers(evidence)})
    cause, remedy = _told(signature, evidence)
    return Finding(
        code=signature.code,
        phase=evidence.phase,
        confidence=round(_CONFIDENCE[evidence.rank] * share, 2),
        evidence=line.text[:LINE_CHARS],
        line=line.number,
        cause=cause,
        remedy=remedy.told(known),
    )


def with_derived(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts and the numbers that follow from them."""
    known = dict(facts)
    for name, (source, times, over) in _DERIVED.items():
        value = known.get(source, "")
        if value.isdecimal() and int(value) * times // over > 0:
            known[name] = str(int(value) * times // over)
    return known


def _numbers(evidence: Evidence) -> dict[str, str]:
    return {name: value for name, value in evidence.match.groupdict().items() if value}


def _told(signature: Signature, evidence: Evidence) -> tuple[str, Remedy]:
    small = signature.small
    if small is not None:
        value = evidence.match.groupdict().get(small.group) or ""
        if value.isdecimal() and int(value) <= small.at_most:
            return small.cause, small.remedy
    return signature.cause, signature.remedy
