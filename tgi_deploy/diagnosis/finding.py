"""Findings: a cause, the line that shows it, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Diagnosis
from tgi_deploy.values.base import replaced
from tgi_deploy.values.results import Finding

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from tgi_deploy.diagnosis.lines import LogLine
    from tgi_deploy.diagnosis.patterns import FailurePattern, Page, Remedy

LINE_CHARS: Final = 400
# By rank: an exact pattern; the same in a warning; a vague one; the same in a warning; a wrapper.
_CONFIDENCE: Final = (0.95, 0.6, 0.7, 0.4, 0.6, 0.3)
_OTHER_SHARE: Final = 0.5
_HANG_CONFIDENCE: Final = 0.5
# Derived numbers: name → (from, multiplied by, divided by).
_DERIVED: Final = {
    "half_tokens": ("tokens", 1, 2),
    "half_prefill": ("prefill", 1, 2),
    "half_context": ("context", 1, 2),
    "half_shards": ("num_shard", 1, 2),
    "double_disk_gib": ("disk_gib", 2, 1),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A line that matches a failure's pattern. `rank`: 0 is the strongest; `phase` is where it occurred.

    `pending`: it counts only if the start failed. `forbids`: it counts until the start ends, whatever follows.
    """

    pattern: FailurePattern
    phase: str
    line: LogLine
    match: re.Match[str]
    rank: int
    pending: bool
    forbids: bool = False


def findings_of(
    evidence: Evidence, pages: Mapping[str, Page], facts: Mapping[str, str], *, share: float = 1.0
) -> tuple[Finding, ...]:
    """Return the findings of a line, one for each cause that it matches.

    `facts` are from the plan and the log; `share` lowers the confidence.
    """
    first = _finding(evidence, facts, share)
    causes = evidence.pattern.other_causes
    if not causes:
        return (first,)
    others = (_other(first, pages[cause.code], cause.distinguish_by, facts) for cause in causes)
    return (replaced(first, distinguish_by=causes[0].distinguish_by), *others)


def _finding(evidence: Evidence, facts: Mapping[str, str], share: float) -> Finding:
    cause, remedy = _page_of(evidence)
    sentence, commands = remedy_of(remedy, {**facts, **_numbers(evidence)})
    return Finding(
        code=evidence.pattern.code,
        startup_phase=evidence.phase,
        confidence=round(_CONFIDENCE[evidence.rank] * share, 2),
        evidence=evidence.line.text[:LINE_CHARS],
        line=evidence.line.number,
        cause=cause,
        remedy=sentence,
        commands=commands,
    )


def _other(first: Finding, page: Page, distinguish_by: str, facts: Mapping[str, str]) -> Finding:
    sentence, commands = remedy_of(page.remedy, facts)
    return replaced(
        first,
        code=page.code,
        startup_phase=page.phase,
        confidence=round(first.confidence * _OTHER_SHARE, 2),
        cause=page.cause,
        remedy=sentence,
        commands=commands,
        distinguish_by=distinguish_by,
    )


def hang_of(page: Page, last: LogLine, *, ranks: int, waited_s: float, facts: Mapping[str, str]) -> Finding:
    """Return the finding for shards that only wait; `last` is their last line."""
    sentence, commands = remedy_of(page.remedy, facts)
    return Finding(
        code=page.code,
        startup_phase=page.phase,
        confidence=_HANG_CONFIDENCE,
        evidence=last.text[:LINE_CHARS],
        line=last.number,
        cause=f"{ranks} shards have only waited for {waited_s:.0f} s. {page.cause}",
        remedy=sentence,
        commands=commands,
        distinguish_by="a GPU at 100 % in nvidia-smi with no progress is a hang; disk reads in iostat are a slow load",
    )


def remedy_of(remedy: Remedy, facts: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the sentence, and the first command whose facts are known, if any."""
    sentence, command = remedy.filled(_with_derived(facts))
    return sentence, () if command is None else (command,)


def diagnosis_of(finding: Finding | None) -> Diagnosis:
    """Return a finding as an error's diagnosis."""
    if finding is None:
        return Diagnosis()
    return Diagnosis(
        finding=finding.code,
        cause=finding.cause,
        evidence=finding.evidence,
        line=finding.line or None,
        remedy=finding.remedy_line,
        command=next(iter(finding.commands), None),
    )


def _with_derived(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the facts with derived numbers."""
    known = dict(facts)
    for name, (source, times, over) in _DERIVED.items():
        value = known.get(source, "")
        if value.isdecimal() and int(value) * times // over > 0:
            known[name] = str(int(value) * times // over)
    return known


def _numbers(evidence: Evidence) -> dict[str, str]:
    return {name: value for name, value in evidence.match.groupdict().items() if value}


def _page_of(evidence: Evidence) -> tuple[str, Remedy]:
    """Return cause and remedy, using those for a small number if it applies."""
    small = evidence.pattern.small
    if small is not None:
        value = evidence.match.groupdict().get(small.group) or ""
        if value.isdecimal() and int(value) <= small.at_most:
            return small.cause, small.remedy
    return evidence.pattern.cause, evidence.pattern.remedy
